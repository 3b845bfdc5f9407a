"""How long the rest of a list of cases will take, from those of the same kind that have ended."""

from __future__ import annotations

import datetime
import hashlib
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gnnexp.experiment.experiment import Experiment

_MINUTE_S, _HOUR_S = 60, 3600


def pace_kind(experiment: Experiment) -> str:
    """The kind of a case: `data on ranks/rest`, two digests: of its dataset, and of all but its seed.

    Cases of one kind take about equally long. Next to them in time are those of the same data on as many ranks.
    """
    data = _digest(experiment.config.group("dataset").text())
    rest = _digest(experiment.config.text(without=("seed", "name", "tracker")))
    return f"{data} on {experiment.num_ranks}/{rest}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Pace:
    """What has been done.

    Attributes:
        ended: kind and seconds of each case that ran and has ended.
        at_once: how many cases run at a time, over all launchers of the sweep.
    """

    ended: Sequence[tuple[str, float]]
    at_once: int = 1

    def expected_s(self, kind: str) -> float | None:
        """Seconds of a case: the median of its kind, else of its data and ranks, else of all; None if none ended."""
        broad = kind.partition("/")[0]
        for alike in (
            [seconds for other, seconds in self.ended if other == kind],
            [seconds for other, seconds in self.ended if other.partition("/")[0] == broad],
            [seconds for _, seconds in self.ended],
        ):
            if alike:
                return statistics.median(alike)
        return None

    def left_s(self, kinds: Iterable[str], running: Iterable[tuple[str, float]] = ()) -> float | None:
        """Seconds for cases of these `kinds`, and for `running` ones (kind, seconds so far); None before an end."""
        if not self.ended:
            return None
        waiting = [self.expected_s(kind) or 0.0 for kind in kinds]
        begun = [max(0.0, (self.expected_s(kind) or 0.0) - so_far) for kind, so_far in running]
        return max(sum([*waiting, *begun]) / self.at_once, *waiting, *begun, 0.0)

    def words(self, kinds: Iterable[str], running: Iterable[tuple[str, float]] = ()) -> str:
        """`about 4 min left, until 14:32`, for a line of progress; empty before the first case has ended."""
        return time_left(self.left_s(kinds, running))


def time_left(seconds: float | None) -> str:
    """A duration and the time of its end in words; empty if it is not known."""
    if seconds is None:
        return ""
    end = datetime.datetime.now() + datetime.timedelta(seconds=seconds)
    day = "" if end.date() == datetime.datetime.now().date() else f"{end:%a} "
    return f"about {in_units(seconds)} left, until {day}{end:%H:%M}"


def in_units(seconds: float) -> str:
    """A duration in the unit that a reader would choose: `40 s`, `12 min`, `3.5 h`."""
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.0f} s"
    return f"{seconds / _MINUTE_S:.0f} min" if seconds < 2 * _HOUR_S else f"{seconds / _HOUR_S:.1f} h"
