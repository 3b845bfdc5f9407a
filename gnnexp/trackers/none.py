"""No tracking: the run directory is all."""

from __future__ import annotations

from pathlib import Path

from gnnexp.trackers.base import Tracker


class NoTracker(Tracker):
    """Delivers nothing."""

    def deliver(self, run_dir: Path, *, end: bool = True) -> bool:
        """Nothing to do."""
        return True
