"""The tracker's store is made complete before a command needs it, and the user hears what is done to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from gnnexp.errors import Refusal
from gnnexp.record.runs import REPORTS, RUNS
from gnnexp.trackers.base import Tracker, TrackingError


def prepare_store(
    tracker: Tracker, console: Console, folders: Sequence[Path] = (RUNS, REPORTS), *, make: bool = True
) -> Refusal | None:
    """Make the store of `tracker` complete.

    Args:
        tracker: delivers to the store.
        console: where is said what is done.
        folders: folders of run directories and reports that may have been delivered to it.
        make: whether a store is made where there is none.

    Returns:
        Why the store is away; None if it is ready.
    """

    def tell(line: str) -> None:
        console.print(line, soft_wrap=True, markup=False, highlight=False)

    try:
        tracker.prepare(tell, folders, make=make)
    except TrackingError as error:
        return Refusal(str(error))
    return None
