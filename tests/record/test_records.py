"""Where runs are found: below a folder, and where its links lead."""

from __future__ import annotations

from pathlib import Path

from gnnexp.record.records import JOB_FILE, run_dirs


def runs(*places: Path) -> None:
    for place in places:
        place.mkdir(parents=True)
        (place / JOB_FILE).write_text("{}")


def found(folder: Path) -> list[str]:
    return [str(run.relative_to(folder)) for run in run_dirs(folder, JOB_FILE)]


def test_links_to_folders_are_followed(tmp_path: Path) -> None:
    """A sweep's runs, or one run, on another disk."""
    runs(tmp_path / "runs" / "here" / "b", tmp_path / "runs" / "here" / "a", tmp_path / "disk" / "sweep" / "c",
         tmp_path / "disk" / "d", tmp_path / "disk" / "sweep" / ".hidden" / "e")
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
