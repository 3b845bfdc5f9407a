"""A store that does not answer is not asked again at once: of many runs, each would wait for the same silence."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from gnnexp.trackers.base import AwayError, Tracker

T = TypeVar("T")
# Stores that refuse at once may be asked for every run. After a longer wait, a store is left alone for so many times
# the wait, at most for so many seconds: it may be back.
_SHORT_S, _TIMES, _LONGEST_S = 1.0, 10.0, 60.0


@dataclass(frozen=True)
class _Silence:
    """Why a store did not answer, and until when it is left alone, on the monotonic clock."""

    why: str
    until: float


class Patience:
    """Passes deliveries on, but not to a store that did not answer a moment ago."""

    def __init__(self) -> None:
        self._silent: dict[str, _Silence] = {}

    def ask(self, tracker: Tracker, deliver: Callable[[], T]) -> T:
        """What `deliver` returns, a delivery by `tracker`.

        Raises:
            AwayError: the store did not answer, now or a moment ago.
        """
        where, now = tracker.where(), time.monotonic()
        silence = self._silent.get(where)
        if silence is not None and now < silence.until:
            raise AwayError(f"{silence.why} (not asked again: it did not answer a moment ago)", 0.0)
        try:
            return deliver()
        except AwayError as error:
            if error.waited_s > _SHORT_S:
                pause_s = min(_LONGEST_S, _TIMES * error.waited_s)
                self._silent[where] = _Silence(str(error), time.monotonic() + pause_s)
            raise
