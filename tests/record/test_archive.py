"""Records in one file: what goes in comes out, and nothing else does."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from run_folder import write_epochs, write_job, write_result

from gnnexp.cli.main import run_command
from gnnexp.errors import DataError
from gnnexp.record.archive import pack_records
from gnnexp.record.columnar import read_records
from gnnexp.record.importing import unpack_records
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
    file = tmp_path / "some.parquet"
    assert pack_records(["some"], file, here) == 2
    assert unpack_records(file, there) == (2, 0)
    for run in runs[:2]:
        ours, theirs = read_run(here / run), read_run(there / run)
        assert (ours.epochs, ours.summary) == (theirs.epochs, theirs.summary)
        assert {**ours.config} == {**theirs.config, "tracker": ours.config["tracker"]}
        assert (there / run / "epochs.jsonl").read_bytes() == (here / run / "epochs.jsonl").read_bytes()
    assert len(find_runs(there / "runs")) == 2 and not (there / runs[2]).exists()
    assert not list(there.rglob("*.log")) and not list(there.rglob("*.tmp"))


def test_what_was_imported_is_exported_as_it_came(tmp_path: Path) -> None:
    make_sweep(tmp_path / "here")
    pack_records(["some"], tmp_path / "a.parquet", tmp_path / "here")
    unpack_records(tmp_path / "a.parquet", tmp_path / "there")
    pack_records(["some"], tmp_path / "b.parquet", tmp_path / "there")
    ours, theirs = read_records(tmp_path / "a.parquet"), read_records(tmp_path / "b.parquet")
    assert json.dumps(ours.results) == json.dumps(theirs.results) and len(ours.results) == 2
    assert not any(word in json.dumps(theirs.results) for word in ("tracker", "imported"))
    runs = [case["run_dir"] for case in theirs.states["some"]["cases"]]
    assert runs == [*ours.results, "", ""], "no directory that the archive does not have"


def test_no_checkpoint_is_named_that_an_archive_does_not_have(tmp_path: Path) -> None:
    for run in make_sweep(tmp_path / "here")[:2]:
        write_result(tmp_path / "here" / run, best={"epoch": 1, "checkpoint": "checkpoints/best"})
    pack_records(["some"], tmp_path / "a.parquet", tmp_path / "here")
    records = read_records(tmp_path / "a.parquet").results
    assert [record["best"] for record in records.values()] == [{"epoch": 1, "checkpoint": None}] * 2


def test_the_same_records_make_the_same_bytes(tmp_path: Path) -> None:
    make_sweep(tmp_path)
    pack_records(["some"], tmp_path / "a.parquet", tmp_path)
    os.utime(tmp_path / "runs" / "sweeps" / "some.json", (1, 1))
    pack_records(["some"], tmp_path / "b.parquet", tmp_path)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_damaged_records_are_not_exported(tmp_path: Path) -> None:
    run, *_ = make_sweep(tmp_path)
    (tmp_path / run / "result.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"run-0/result\.json"):
        pack_records(["some"], tmp_path / "some.parquet", tmp_path)
    (tmp_path / "runs" / "sweeps" / "some.json").write_text("{")
    with pytest.raises(DataError, match=r"sweeps/some\.json"):
        pack_records(["some"], tmp_path / "some.parquet", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_by_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_sweep(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run_command(["export", "some", "--out", "kept/some.parquet"]) == 0
    assert "2 runs" in capsys.readouterr().out
    assert run_command(["import", "kept/some.parquet"]) == 0
    assert "0 new runs, 2 were already here" in capsys.readouterr().out
    assert run_command(["export", "nothing"]) == 2
    assert "gnnexp sweep nothing" in capsys.readouterr().err
    Path("mine").mkdir()
    Path("mine/my idle.yaml").touch()
    assert run_command(["export", "mine/my idle.yaml"]) == 2
    said = capsys.readouterr().err
    assert "export='mine/my idle.yaml'" in said and "gnnexp sweep 'mine/my idle.yaml'" in said
    assert run_command(["import", "absent.parquet"]) == 2
    assert run_command(["export", "some", "--out", "some.zip"]) == 2
