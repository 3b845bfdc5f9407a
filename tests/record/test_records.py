"""Where runs are found: below a folder, and where its links lead."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnexp.errors import DataError
from gnnexp.record.records import JOB_FILE, EpochLog, read_epochs, run_dirs


def runs(*places: Path) -> None:
    for place in places:
        place.mkdir(parents=True)
        (place / JOB_FILE).write_text("{}")


def found(folder: Path) -> list[str]:
    return [str(run.relative_to(folder)) for run in run_dirs(folder, JOB_FILE)]


def test_links_to_folders_are_followed(tmp_path: Path) -> None:
    """A sweep's runs, or one run, on another disk."""
    runs(
        tmp_path / "runs" / "here" / "b",
        tmp_path / "runs" / "here" / "a",
        tmp_path / "disk" / "sweep" / "c",
        tmp_path / "disk" / "d",
        tmp_path / "disk" / "sweep" / ".hidden" / "e",
    )
    (tmp_path / "runs" / "far").symlink_to(tmp_path / "disk" / "sweep")
    (tmp_path / "runs" / "alone").symlink_to(Path("../disk/d"))
    assert found(tmp_path / "runs") == ["here/a", "here/b", "alone", "far/c"]
    (tmp_path / "link").symlink_to("runs")
    assert found(tmp_path / "link") == ["here/a", "here/b", "alone", "far/c"]


def test_each_run_is_found_once_and_under_its_own_name(tmp_path: Path) -> None:
    runs(tmp_path / "runs" / "z", tmp_path / "disk" / "y")
    for link, target in {"a": "z", "b": "../disk", "c": "../disk/y", "z/back": "..", "z/self": "."}.items():
        (tmp_path / "runs" / link).symlink_to(target)
    assert found(tmp_path / "runs") == ["z", "b/y"]


def test_links_that_lead_nowhere_or_up_are_left(tmp_path: Path) -> None:
    runs(tmp_path / "work" / "runs" / "a", tmp_path / "work" / "other")
    for link, target in {"gone": "nowhere", "loop": "loop", "up": "..", "top": "/", "self": "."}.items():
        (tmp_path / "work" / "runs" / link).symlink_to(target)
    assert found(tmp_path / "work" / "runs") == ["a"]


def test_a_record_that_is_removed_during_training_is_not_begun_again(tmp_path: Path) -> None:
    """It would lack the first epochs, and the run would end as if it had all."""
    log = EpochLog(tmp_path, 0)
    log.append(0, {"loss/train": 1.0}, [], [])
    with log.together():
        log.append(1, {"loss/train": 0.5}, [], [])
        assert len(read_epochs(tmp_path)) == 1
    assert [line["epoch"] for line in read_epochs(tmp_path)] == [0, 1]
    (tmp_path / "epochs.jsonl").unlink()
    with pytest.raises(DataError, match=r"was removed.* it had the records of 2 epochs"):
        log.append(2, {"loss/train": 0.2}, [], [])
    assert not (tmp_path / "epochs.jsonl").exists()
