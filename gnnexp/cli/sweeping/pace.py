"""How long the rest of a list of cases will take, from those that have ended."""

from __future__ import annotations

from dataclasses import dataclass

_MINUTE_S, _HOUR_S = 60, 3600


@dataclass(frozen=True)
class Pace:
    """What has been done.

    Attributes:
        ended: cases that ran here and have ended.
        elapsed_s: seconds since the first of them was started. Cases may run side by side.
    """

    ended: int
    elapsed_s: float

    def left_s(self, cases: int) -> float | None:
        """Seconds for `cases` more, if they take as long as the mean of those before; None before the first end."""
        return self.elapsed_s / self.ended * cases if self.ended else None

    def words(self, cases: int) -> str:
        """`about 4 min left`, for a line of progress; empty before the first case has ended."""
        left = self.left_s(cases)
        return "" if left is None else f"about {in_units(left)} left"


def in_units(seconds: float) -> str:
    """A duration in the unit that a reader would choose: `40 s`, `12 min`, `3.5 h`."""
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.0f} s"
    return f"{seconds / _MINUTE_S:.0f} min" if seconds < 2 * _HOUR_S else f"{seconds / _HOUR_S:.1f} h"
