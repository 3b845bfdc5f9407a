"""No tracking: there is only the run directory."""

from __future__ import annotations

from pathlib import Path

from gnnexp.trackers.base import Tracker


class NoTracker(Tracker):
    """Delivers nothing."""

    def deliver(self, run_dir: Path, *, end: bool = True) -> bool:
        """Return True, since there is nothing to deliver."""
        return True
