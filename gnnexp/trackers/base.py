"""What a tracker is: it delivers what a run directory holds, each record once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from gnnexp.errors import Problem


class TrackingError(Exception):
    """The store of records is away or refuses; the run directory keeps everything, and delivery can be tried again."""


class Tracker(ABC):
    """Delivers run directories to a store, from the launching process and never from a rank.

    Attributes:
        timeout_s: how long the end of a run waits for the store.
    """

    timeout_s: float = 30.0

    def check_here(self) -> list[Problem]:
        """What is missing on this machine for any delivery, asked before a run is launched."""
        return []

    @abstractmethod
    def deliver(self, run_dir: Path, *, end: bool = True) -> bool:
        """Deliver everything in `run_dir` that has not been delivered; may be called again and again.

        Args:
            run_dir: the run.
            end: whether the run's end may be delivered too, if it is there; False while files may still be added.

        Returns:
            Whether the run is over and nothing is left to deliver.

        Raises:
            TrackingError: if the store did not take it.
        """

    def deliver_report(self, folder: Path) -> bool:
        """Deliver a sweep's report (`gnnexp.trackers.report_record`) unless it is there as it is.

        A tracker without a place for reports leaves it at that: they are in their folder.

        Returns:
            Whether nothing is left to deliver.

        Raises:
            TrackingError: if the store did not take it.
        """
        return True

    def where(self) -> str:
        """For the user: where the records go; empty if nowhere."""
        return ""
