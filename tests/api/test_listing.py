"""`gnnexp.runs`: one row for each run, chosen by a condition that reaches nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lacking import environment_without
from run_folder import write_epochs, write_job, write_result

import gnnexp


def make_run(folder: Path, name: str, lr: float = 0.01, status: str = "finished", **config: object) -> None:
    run_dir = folder / name
    write_job(run_dir, uid=name)
    job = json.loads((run_dir / "job.json").read_text())
    job["config"] |= {"optimizer": {"_target_": "torch.optim.Adam", "lr": lr}, **config}
    job["provenance"]["date"] = f"2026-01-0{len(list(folder.iterdir()))}"
    (run_dir / "job.json").write_text(json.dumps(job))
    write_epochs(run_dir, 3)
    write_result(run_dir, status, "" if status == "finished" else "out of memory: 3 GB are needed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two runs of one system with different rates, one of another, and one that failed."""
    make_run(tmp_path, "a", lr=0.01)
    make_run(tmp_path, "b", lr=0.1, seed=7)
    make_run(tmp_path, "c", system="gsplit")
    make_run(tmp_path, "d", system="gsplit", status="failed", hardware={"workers": 4})
    return tmp_path


def named(frame: object) -> list[str]:
    return [Path(path).name for path in frame["run_dir"]]  # type: ignore[index]


def test_a_row_for_each_run_and_a_column_for_each_difference(folder: Path) -> None:
    frame = gnnexp.runs(folder=folder)
    assert named(frame) == ["a", "b", "c", "d"]
    assert list(frame.columns[:8]) == [
        "system",
        "dataset",
        "model",
        "paradigm",
        "partitioner",
        "ranks",
        "seed",
        "optimizer.lr",
    ]
    assert list(frame["system"]) == ["dgl", "dgl", "gsplit", "gsplit"] and list(frame["ranks"]) == [2, 2, 2, 4]
    assert list(frame["seed"]) == [0, 7, 0, 0] and list(frame["optimizer.lr"][:2]) == [0.01, 0.1]
    assert list(frame["epoch_s"]) == [0.8] * 4 and list(frame["test"]) == [0.72] * 4
    assert frame["status"][3] == "failed" and "out of memory" in frame["reason"][3]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("system = 'gsplit' and epoch_s < 0.9", "cd"),
        ("optimizer.lr > 0.05", "b"),
        ('"optimizer.lr" > 0.05', "b"),
        ("status = 'finished'", "abc"),
        ("ranks = 4 or seed = 7", "bd"),
        ("reason like '%memory%'", "d"),
        ("epochs = 3 and not status = 'failed'", "abc"),
        ("train.epochs = 3", "abcd"),
        ("run_dir like '%/a'", "a"),
        ("optimizer._target_ = 'torch.optim.Adam' -- a comment", "abcd"),
        ("test is null", ""),
        ("dataset in ('digits', 'optimizer.lr')", "abcd"),
        ("OPTIMIZER.LR > 0", ""),
        ("epoch_s = (select min(epoch_s) from runs)", "abcd"),
    ],
)
def test_conditions(folder: Path, where: str, expected: str) -> None:
    if where.startswith("OPTIMIZER"):  # names with dots are keys, which are written as they are
        with pytest.raises(gnnexp.ConfigError):
            gnnexp.runs(where, folder)
    else:
        assert named(gnnexp.runs(where, folder)) == list(expected)


@pytest.mark.parametrize(
    "where",
    [
        "1=1) or (select count(*) from read_text('/etc/passwd')) > 0 or (1=1",
        "1=1); drop table runs; select (1",
        "1=1); copy runs to 'out.csv'; select (1",
        "1=1); set enable_external_access = true; select (1",
        "1=1); attach 'other.db'; select (1",
        "exists (from '/etc/passwd')",
        "exists (from 'table.parquet')",
        "",
        "epoch_s <",
        "epoch < 3",
        "'open",
        "1=1) union all select 1 from (select 1",
    ],
)
def test_a_condition_reaches_nothing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(gnnexp.ConfigError, match=r"where="):
        gnnexp.runs(where, folder)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_wrong_name_gets_the_nearest(folder: Path) -> None:
    with pytest.raises(gnnexp.ConfigError, match="did you mean epoch_s"):
        gnnexp.runs("epochs_s < 1", folder)


def test_strange_values(tmp_path: Path) -> None:
    """Quotes in names, numbers next to texts, large numbers, keys that differ only by case, columns of null."""
    make_run(
        tmp_path, "a", strange={"it's": 1, 'a "quote"': 2, "mixed": 3, "K": 1, "k": 2, "large": 2**80, "none": None}
    )
    make_run(tmp_path, "b", strange={"mixed": "text", "list": [1, {"a": 2}], "flag": True, "none": None})
    frame = gnnexp.runs("strange.mixed = '3' or strange.flag", tmp_path)
    assert named(frame) == ["a", "b"]
    assert {"strange.mixed", "strange.list", "strange.it's"} <= set(frame.columns)
    assert named(gnnexp.runs('"strange.it\'s" = 1 and strange.large > 1e20', tmp_path)) == ["a"]
    assert named(gnnexp.runs("strange.none > 3 or strange.none = 'x' or device_MB > 1", tmp_path)) == []


def test_no_folder_and_no_run(tmp_path: Path) -> None:
    with pytest.raises(gnnexp.ConfigError, match="must be a folder of run directories"):
        gnnexp.runs(folder=tmp_path / "nothing")
    assert len(gnnexp.runs(folder=tmp_path)) == len(gnnexp.runs("epoch_s < 1", folder=tmp_path)) == 0


@pytest.mark.parametrize(
    ("package", "call"), [("pandas", "gnnexp.runs(folder='.')"), ("duckdb", "gnnexp.runs('seed = 0', '.')")]
)
@pytest.mark.interpreter
def test_a_missing_package_is_a_problem(tmp_path: Path, package: str, call: str) -> None:
    import subprocess
    import sys

    code = f"import gnnexp\ntry:\n    {call}\nexcept gnnexp.ConfigError as error:\n    print(error)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment_without([package]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"needs the package {package}" in done.stdout and f"pip install {package}" in done.stdout, done.stderr
