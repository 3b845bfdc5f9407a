"""Is one system better than another? Differences of pairs, their intervals, and verdicts, as plain functions.

A pair is two runs with the same seed, graph and split: what the seed does to both cancels, so that the difference is
far sharper than two means. Times, bytes and counts are compared by their ratio (paired t on logarithms), shares by
their difference in points.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

# Probability of a wrong "differs", over all rivals of one column and all looks.
ALPHA = 0.05
# Fewer pairs decide nothing: two shares of few vertices are easily as far apart by chance.
LEAST_PAIRS = 3
# More seeds than these are not worth a number.
MOST_SEEDS = 10_000
# Above this many rivals, levels are corrected (Holm).
MOST_UNCORRECTED = 3


class Verdict(StrEnum):
    """What pairs show."""

    DIFFERS = "differs"
    EQUAL = "equal"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class PairedDifference:
    """Two systems in one quantity.

    Attributes:
        differences: per pair, the rival minus the other; for a ratio, of the natural logarithms.
        is_ratio: whether the differences are of logarithms.
        margin: half the width of the range in which the two count as equal, in the unit of the differences.
    """

    differences: tuple[float, ...]
    is_ratio: bool
    margin: float

    @property
    def mean(self) -> float:
        """The mean difference; NaN without a pair."""
        return statistics.fmean(self.differences) if self.differences else math.nan

    @property
    def deviation(self) -> float:
        """Standard deviation of the differences; NaN below two pairs."""
        return statistics.stdev(self.differences) if len(self.differences) > 1 else math.nan

    def interval(self, level: float = ALPHA) -> tuple[float, float]:
        """The interval that misses the true difference with probability `level` (Student's t); NaN below two pairs."""
        half = half_width(self.deviation, len(self.differences), level)
        return self.mean - half, self.mean + half

    @property
    def p_value(self) -> float:
        """Probability of a mean difference of this size or more between equal systems; NaN below two pairs."""
        if len(self.differences) < 2:
            return math.nan
        if not self.deviation:
            return 0.0 if self.mean else 1.0
        from scipy.special import stdtr

        t = abs(self.mean) / self.deviation * math.sqrt(len(self.differences))
        return float(2 * stdtr(len(self.differences) - 1, -t))

    def verdict(self, level: float = ALPHA) -> Verdict:
        """Equal if the interval lies inside of the margin, else different if 0 lies outside of it.

        Below `LEAST_PAIRS` it is undecided, unless all pairs (at least two) are exactly equal.
        """
        low, high = self.interval(level)
        if len(self.differences) > 1 and not any(self.differences):
            return Verdict.EQUAL
        if len(self.differences) < LEAST_PAIRS:
            return Verdict.UNDECIDED
        if max(abs(low), abs(high)) <= self.margin:
            return Verdict.EQUAL
        return Verdict.DIFFERS if low > 0 or high < 0 else Verdict.UNDECIDED

    def more_pairs(self, level: float = ALPHA) -> int | None:
        """About how many more pairs would decide, if their mean and deviation stay; None: more than `MOST_SEEDS`.

        Needs at least two pairs. The interval has to become narrower than its distance from 0 or, if that is nearer,
        than the room up to the margin.
        """
        wanted = max(abs(self.mean), self.margin - abs(self.mean))
        now = len(self.differences)
        if half_width(self.deviation, max(now, LEAST_PAIRS), level) < wanted:
            return max(LEAST_PAIRS - now, 0)
        if half_width(self.deviation, now + MOST_SEEDS, level) >= wanted:
            return None
        low, high = now, now + MOST_SEEDS  # `low` pairs are too few, `high` are enough
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if half_width(self.deviation, middle, level) < wanted else (middle, high)
        return high - now


def half_width(deviation: float, count: int, level: float) -> float:
    """Half the width of the interval of a mean of `count` values (Student's t); NaN below two values."""
    if count < 2 or math.isnan(deviation):
        return math.nan
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, 1 - level / 2)) * deviation / math.sqrt(count)


def holm_levels(p_values: Sequence[float], level: float = ALPHA) -> list[float]:
    """The level at which each of several rivals is judged (Holm 1979); `level` itself up to `MOST_UNCORRECTED` rivals.

    A rival that is no different at its level leaves the same level to all that have a larger p-value.
    """
    if len(p_values) <= MOST_UNCORRECTED:
        return [level] * len(p_values)
    levels, rank, stopped = [level] * len(p_values), 0, False
    order = sorted(range(len(p_values)), key=lambda place: (math.isnan(p_values[place]), p_values[place]))
    for place in order:
        levels[place] = level / (len(p_values) - rank)
        stopped = stopped or not p_values[place] <= levels[place]
        rank += not stopped
    return levels


def level_of_look(number: int, level: float = ALPHA) -> float:
    """The level of look `number`, from 1: level / 2, / 4, / 8, …, which add up to `level` over any number of looks."""
    return math.ldexp(level, -number)
