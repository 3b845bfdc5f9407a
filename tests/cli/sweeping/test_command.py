"""What a sweep says before it starts, and at its end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from recording_tracker import RecordingTracker
from run_folder import write_epochs, write_job, write_result

from gnnexp.cli.sweeping.case import CaseState
from gnnexp.cli.sweeping.command import sizes_in_words, waiting_for_store
from gnnexp.cli.sweeping.queue import Queue
from gnnexp.trackers.base import Tracker
from gnnexp.trackers.delivery import DELIVERY_FILE, Delivery
from gnnexp.trackers.none import NoTracker


@pytest.mark.parametrize(
    ("total", "unknown", "words"),
    [
        (0, 0, "about 0 B on disk"),
        (2048, 0, "about 2.0 KB on disk"),
        (0, 12, "12 runs whose data is not prepared"),
        (2048, 1, "about 2.0 KB on disk and 1 run whose data is not prepared"),
    ],
)
def test_sizes_that_are_not_known_are_not_zero(total: int, unknown: int, words: str) -> None:
    assert sizes_in_words(total, unknown) == words


def queue_of(run_dirs: list[str], tracker: Tracker) -> Queue:
    case: Any = SimpleNamespace(experiment=SimpleNamespace(tracker=tracker))
    states = [CaseState(label, status="finished", run_dir=label) for label in run_dirs]
    return cast("Queue", SimpleNamespace(cases=dict(enumerate(run_dirs)), states=states, case=lambda _: case))


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    """A delivered run, one that another store has, one that nobody has, a damaged note, one without an end."""
    names = ["delivered", "elsewhere", "nowhere", "damaged", "begun"]
    for name in names:
        write_job(tmp_path / name)
        write_epochs(tmp_path / name, 1)
        if name != "begun":
            write_result(tmp_path / name)
    Delivery(RecordingTracker().where(), "1", done=True).save(tmp_path / "delivered")
    Delivery("another", "1", done=True).save(tmp_path / "elsewhere")
    (tmp_path / "damaged" / DELIVERY_FILE).write_text("{")
    return [str(tmp_path / name) for name in names] + [""]


def test_a_sweep_says_how_many_runs_its_store_lacks(runs: list[str]) -> None:
    assert waiting_for_store(queue_of(runs, RecordingTracker())) == {RecordingTracker().where(): 3}
    assert waiting_for_store(queue_of(runs[:1], RecordingTracker())) == {}


def test_without_a_tracker_nothing_waits(runs: list[str]) -> None:
    assert waiting_for_store(queue_of(runs, NoTracker())) == {}
