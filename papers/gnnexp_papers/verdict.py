"""Whether values agree with what a paper claims: rules on values and their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from gnnexp_papers.claim import Check, Expects

Verdict = Literal["holds", "exceeds", "in direction", "too weak", "does not hold", "shown", "not decided", "not run"]
# A value, half the width of its 95 % interval (NaN for one seed), and what is expected of the value.
Judged = tuple[float, float, Expects]
# A claim is as good as its worst pair.
_WORST_FIRST: Sequence[Verdict] = (
    "does not hold",
    "too weak",
    "not decided",
    "in direction",
    "exceeds",
    "holds",
    "shown",
)
# A share of the distance between the published value and "no effect". Below it, the effect is too weak for the claim.
_ENOUGH = 0.25


def verdict(found: Sequence[Judged], check: Check) -> Verdict:
    """The worst of the verdicts on single values.

    - `holds`: inside of the published range.
    - `exceeds`: outside of it, on the better side.
    - `in direction`: outside, on the same side of "no effect" (a ratio of 1, a reduction or difference of 0), and at
      least a quarter as far from it as published.
    - `too weak`: less than that quarter.
    - `not decided`: the interval over seeds contains values that count as equal and values that do not, or both the
      claimed effect and none. Or a lower bound is below the range.
    - `shown`: the paper names no number, or the number follows from a definition.
    """
    known = [
        (value, 0.0 if math.isnan(half) else half, expects) for value, half, expects in found if not math.isnan(value)
    ]
    if not known:
        return "not run"
    if check.by_construction:
        return "shown"
    verdicts = {_of_one(*one, check) for one in known}
    return next(word for word in _WORST_FIRST if word in verdicts)


def _of_one(value: float, half: float, expects: Expects, check: Check) -> Verdict:
    if expects.low is None and expects.high is None and expects.mean is None:
        return "shown"
    claimed, neutral = _claimed(expects), _neutral(expects)
    low, high = _widened(claimed, neutral, check)
    if check.within is not None and _straddles(value, half, low, high):
        return "not decided"
    if value + half >= low and value - half <= high:
        return "not decided" if _may_be_none(value, half, expects, check) else "holds"
    if check.lower_bound and value < low:
        return "not decided"
    if _is_better(value, expects, (low, high)):
        return "exceeds"
    return _of_distance(value, claimed, neutral)


def _straddles(value: float, half: float, low: float, high: float) -> bool:
    """Whether an interval contains an end of the range that counts as equal: then more seeds are needed."""
    return value - half < low <= value + half or value - half <= high < value + half


def _of_distance(value: float, claimed: tuple[float, float], neutral: float | None) -> Verdict:
    """The verdict on a value that is outside of the published range and not better: how far it is from no effect."""
    if neutral is None or _claims_none(claimed, neutral):
        return "does not hold"
    nearest = min(filter(math.isfinite, claimed), key=lambda end: abs(end - neutral))
    share = (value - neutral) / (nearest - neutral) if nearest != neutral else 0.0
    return "in direction" if share >= _ENOUGH else "too weak" if share > 0 else "does not hold"


def _claimed(expects: Expects) -> tuple[float, float]:
    """The published range. Open ends are infinite, except for an "up to": it claims its best value, not a bound."""
    low, high = expects.low, expects.high
    if low is None and high is None:
        low = high = expects.mean
    if low is None and expects.better == "higher":
        low = high
    return -math.inf if low is None else low, math.inf if high is None else high


def _widened(claimed: tuple[float, float], neutral: float | None, check: Check) -> tuple[float, float]:
    """The range that counts as inside. If an effect is claimed, the tolerance is at most half of the effect."""
    low, high = claimed
    if check.within is not None:
        return low - check.within, high + check.within
    effect = None if neutral is None or _claims_none(claimed, neutral) else neutral
    return low - _allowed(low, effect, check), high + _allowed(high, effect, check)


def _allowed(end: float, effect: float | None, check: Check) -> float:
    if not math.isfinite(end):
        return 0.0
    allowed = check.tolerance * abs(end)
    return allowed if effect is None else min(allowed, abs(end - effect) / 2)


def _is_better(value: float, expects: Expects, inside: tuple[float, float]) -> bool:
    """Whether a value is beyond the end that supports the paper. A bound has no such end: it is met or not."""
    beyond = value > inside[1] if expects.better == "higher" else value < inside[0]
    return beyond and all(map(math.isfinite, inside))


def _may_be_none(value: float, half: float, expects: Expects, check: Check) -> bool:
    """Whether the interval contains "no effect" although the paper claims an effect."""
    neutral = _neutral(expects)
    if neutral is None:
        return False
    if expects.statistic == "difference":
        return check.effect and abs(value - neutral) < half
    return not _claims_none(_claimed(expects), neutral) and abs(value - neutral) < half


def _claims_none(claimed: tuple[float, float], neutral: float) -> bool:
    """Whether the claimed range contains "no effect". A bound at no effect claims the values beyond it."""
    return all(map(math.isfinite, claimed)) and claimed[0] <= neutral <= claimed[1]


def _neutral(expects: Expects) -> float | None:
    return {"ratio": 1.0, "reduction_pct": 0.0, "difference": 0.0}.get(expects.statistic)
