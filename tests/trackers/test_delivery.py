"""Who delivers a run, when its directory gets another name and a new run its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gnnexp.cli.running import set_aside as set_aside_module
from gnnexp.cli.running.set_aside import set_aside
from gnnexp.errors import ConfigError
from gnnexp.files import disk
from gnnexp.trackers.delivery import delivering


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def test_a_run_that_is_being_delivered_is_not_set_aside(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child of a launcher that was killed: it would note the earlier run's place in the new run's directory."""
    monkeypatch.setattr(set_aside_module, "REOPEN_S", 0.0)
    with delivering(run_dir, 0.0), pytest.raises(ConfigError, match="end that process"):
        set_aside(run_dir)
    assert run_dir.is_dir()
    assert set_aside(run_dir).name == "run.before-1" and not run_dir.exists()


def test_who_waited_for_a_run_that_was_set_aside_has_the_lock_of_the_new_one(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, asked = disk.flock, list[int]()

    def late(handle: int, operation: int, path: Path) -> None:
        if not asked:
            run_dir.rename(run_dir.with_name("run.before-1"))
            run_dir.mkdir()
        asked.append(handle)
        flock(handle, operation, path)

    monkeypatch.setattr(disk, "flock", late)
    with delivering(run_dir, 0.0):
        assert (run_dir / "delivery.lock").read_text() == str(os.getpid())
        with pytest.raises(TimeoutError), delivering(run_dir, 0.0):
            pass
