"""Records in one file: what goes in comes out, and nothing else does."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

import pytest
from run_folder import write_epochs, write_job, write_result

from gnnexp.cli.main import run_command
from gnnexp.errors import DataError
from gnnexp.record.archive import pack
from gnnexp.record.importing import unpack
from gnnexp.record.runs import find_runs, read_run


def make_sweep(folder: Path, name: str = "some", ended: int = 2) -> list[Path]:
    """A sweep of `ended` runs that have ended and of one that has not."""
    runs = [Path("runs") / name / f"run-{number}" for number in range(ended + 1)]
    for number, run in enumerate(runs):
        write_job(folder / run, uid=f"uid-{number}", run_key=f"key-{number}")
        write_epochs(folder / run, 3)
        if number < ended:
            write_result(folder / run)
    states = folder / "runs" / "sweeps" / f"{name}.json"
    states.parent.mkdir(exist_ok=True)
    cases = [{"label": run.name, "run_dir": str(run), "status": "finished"} for run in runs]
    states.write_text(json.dumps({"rows": [], "cases": [*cases, {"label": "waits", "run_dir": ""}]}))
    return runs


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    runs = make_sweep(here)
    file = tmp_path / "some.tar.xz"
    assert pack(["some"], file, here) == 2
    assert unpack(file, there) == (2, 0)
    for run in runs[:2]:
        ours, theirs = read_run(here / run), read_run(there / run)
        assert (ours.epochs, ours.config, ours.summary) == (theirs.epochs, theirs.config, theirs.summary)
        assert (there / run / "epochs.jsonl").read_bytes() == (here / run / "epochs.jsonl").read_bytes()
    assert len(find_runs(there / "runs")) == 2 and not (there / runs[2]).exists()
    assert not list(there.rglob("*.log")) and not list(there.rglob("*.tmp"))


def test_the_same_records_make_the_same_bytes(tmp_path: Path) -> None:
    make_sweep(tmp_path)
    pack(["some"], tmp_path / "a.tar.xz", tmp_path)
    os.utime(tmp_path / "runs" / "sweeps" / "some.json", (1, 1))
    pack(["some"], tmp_path / "b.tar.xz", tmp_path)
    assert (tmp_path / "a.tar.xz").read_bytes() == (tmp_path / "b.tar.xz").read_bytes()


def test_runs_that_are_there_stay_and_a_half_copy_is_made_whole(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    runs = make_sweep(here)
    pack(["some"], tmp_path / "some.tar.xz", here)
    unpack(tmp_path / "some.tar.xz", there)
    (there / runs[0] / "job.json").write_text("mine")
    (there / runs[1] / "result.json").unlink()
    assert unpack(tmp_path / "some.tar.xz", there) == (1, 1)
    assert (there / runs[0] / "job.json").read_text() == "mine" and read_run(there / runs[1]).status == "finished"


@pytest.mark.parametrize("name", ["/etc/result.json", "runs/../../result.json", "runs/a/logs.txt", "result.json",
                                  "runs/sweeps/deeper/x.json", "runs/a/evil.py"])
def test_a_foreign_member_is_refused_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    file = tmp_path / "x.tar.xz"
    with tarfile.open(file, "w:xz") as archive:
        for member in ("runs/a/result.json", name):
            entry = tarfile.TarInfo(member)
            entry.size = 2
            archive.addfile(entry, io.BytesIO(b"{}"))
    with pytest.raises(DataError, match="no file of a record"):
        unpack(file, tmp_path / "there")
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_only_regular_files(tmp_path: Path, kind: bytes) -> None:
    file = tmp_path / "x.tar.xz"
    with tarfile.open(file, "w:xz") as archive:
        entry = tarfile.TarInfo("runs/a/result.json")
        entry.type, entry.linkname = kind, "/etc/passwd"
        archive.addfile(entry)
    with pytest.raises(DataError):
        unpack(file, tmp_path / "there")


def test_damaged_and_empty(tmp_path: Path) -> None:
    make_sweep(tmp_path)
    file = tmp_path / "some.tar.xz"
    pack(["some"], file, tmp_path)
    whole = file.read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"no archive"):
        file.write_bytes(content)
        with pytest.raises(DataError, match="must be a whole file"):
            unpack(file, tmp_path / "there")


def test_by_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                             capsys: pytest.CaptureFixture[str]) -> None:
    make_sweep(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run_command(["export", "some", "--out", "kept/some.tar.xz"]) == 0
    assert "2 runs" in capsys.readouterr().out
    assert run_command(["import", "kept/some.tar.xz"]) == 0
    assert "0 new runs, 2 were here" in capsys.readouterr().out
    assert run_command(["export", "nothing"]) == 2
    assert "gnnexp sweep nothing" in capsys.readouterr().err
    assert run_command(["import", "absent.tar.xz"]) == 2
    assert run_command(["export", "some", "--out", "some.zip"]) == 2
