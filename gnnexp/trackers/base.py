"""The interface of trackers: a tracker delivers the contents of a run directory, each record once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

from gnnexp.errors import Problem


class TrackingError(Exception):
    """The store of records is unavailable or refuses. The run directory keeps everything for another delivery."""


class AwayError(TrackingError):
    """The store did not answer at all: it would not take any other run either.

    Args:
        words: the reason.
        waited_s: seconds that its answer was waited for.
    """

    def __init__(self, words: str, waited_s: float) -> None:
        super().__init__(words)
        self.waited_s = waited_s


class Tracker(ABC):
    """Delivers run directories to a store, from the launching process and never from a rank.

    Attributes:
        timeout_s: seconds that the end of a run waits for the store.
    """

    timeout_s: float = 30.0

    def check_here(self) -> list[Problem]:
        """What any delivery needs and this machine lacks; called before a run is launched."""
        return []

    def prepare(self, tell: Callable[[str], None], folders: Sequence[Path] = (), *, make: bool = True) -> bool:
        """Make the store that deliveries need, or upgrade or repair it. No time limit ends this.

        It is called after all checks, before a run is launched. A tracker without a store of its own does nothing.

        Args:
            tell: is called with each line for the user.
            folders: folders of run directories and reports. Those that a lost store had count as not delivered.
            make: whether a store is made where there is none.

        Returns:
            Whether the store is ready. Otherwise another process holds it, and a delivery may wait for that.

        Raises:
            TrackingError: there is no usable store.
        """
        return True

    @abstractmethod
    def deliver(self, run_dir: Path, *, end: bool = True) -> bool:
        """Deliver everything in `run_dir` that has not been delivered; may be called repeatedly.

        Args:
            run_dir: the run directory.
            end: whether to deliver the run's end as well, if it is there; False while files may still be added.

        Returns:
            Whether the run is over and everything is delivered.

        Raises:
            AwayError: the store did not answer.
            TrackingError: the store did not accept it.
        """

    def deliver_report(self, folder: Path) -> bool:
        """Deliver a sweep's report (`gnnexp.trackers.delivery`) unless the store has it in this form.

        A tracker without a place for reports does nothing: reports stay in their folder.

        Returns:
            Whether nothing is left to deliver.

        Raises:
            TrackingError: the store did not accept it.
        """
        return True

    def where(self) -> str:
        """Where the records go, as text for the user; empty if nowhere."""
        return ""
