"""Records in columns: what was written comes back, bit for bit; what follows from the rest takes no room."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.columns import write_records
from gnnexp.errors import DataError
from gnnexp.record.columnar import Records, read_records
from gnnexp.record.records import summarize

TENTHS = 0.1 + 0.2  # no decimal of few digits


def line(number: int, **more: Any) -> dict[str, Any]:
    metrics = {
        "loss/train": 1 / (number + 3),
        "acc/val": 0.5,
        "acc/test": TENTHS,
        "time/epoch_s": TENTHS * number,
        "time/epoch_s_min": TENTHS * number,
        "time/epoch_s_mean": TENTHS * number,
        "comm/bytes_features": 7,
    }
    return {"epoch": number, "time": 1e9 + TENTHS, "metrics": metrics, "ranks": [], "losses": [], "batches": {}} | more


def result(lines: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "config": {"seed": 0},
        "provenance": {"uid": "a"},
        "quality": {"seconds": TENTHS},
        "paradigm": {"exact": True},
        "status": "finished",
        "reason": "",
        "attempts": [{"event": "start"}],
        "epochs": lines,
        "summary": summarize(lines, "acc"),
    } | more


def state(*runs: str) -> dict[str, Any]:
    cases = [{"label": f"case {run}", "status": "finished", "reason": "", "run_dir": run} for run in runs]
    return {"name": "s", "description": "what", "command": "gnnexp sweep s", "cases": cases}


@pytest.fixture
def records() -> Records:
    uneven = line(1)
    uneven["metrics"] |= {"time/epoch_s_min": 0.0, "work/edges_computed": 1 << 53, "time/epoch_s_mean": 1e-300}
    told = [
        line(0, ranks=[{"rank": 0, "times": {"phases": {"load": TENTHS}}}], losses=[TENTHS, 1e-17]),
        line(1, batches={"edges": [[[1, 2]]]}, resumed=[{"step": 3}]),
    ]
    return Records(
        {"s": state("runs/s/b", "runs/s/a"), "other": state("runs/s/a")},
        {
            "runs/s/a": result([line(0), uneven]),
            "runs/s/b": result(told, summary={"acc/test": 0.25}),
            "runs/s/failed": result([], status="failed", summary={}, kind="out of memory"),
        },
    )


def test_everything_comes_back(records: Records, tmp_path: Path) -> None:
    write_records(records, tmp_path / "r.parquet")
    found = read_records(tmp_path / "r.parquet")
    told = {run: one for run, one in records.results.items() if run != "runs/s/failed"}
    assert json.dumps(found.results, sort_keys=True) == json.dumps(told, sort_keys=True), "no other run"
    assert {name: one["cases"] for name, one in found.states.items()} == {
        name: one["cases"] for name, one in records.states.items()
    }, "in the sweep's order"
    assert found.states["s"]["command"] == "gnnexp sweep s" and found.states["s"]["description"] == "what"


def test_one_sweep_has_its_own_runs_only(records: Records, tmp_path: Path) -> None:
    write_records(records, tmp_path / "r.parquet")
    found = read_records(tmp_path / "r.parquet", ["other"])
    assert set(found.states) == {"other"} and set(found.results) == {"runs/s/a"}
    assert read_records(tmp_path / "r.parquet", ["none"]) == Records({}, {})


def test_a_failed_run_is_kept(tmp_path: Path) -> None:
    write_records(
        Records({"s": state("runs/s/f")}, {"runs/s/f": result([], status="failed", summary={})}), tmp_path / "r.parquet"
    )
    (found,) = read_records(tmp_path / "r.parquet").results.values()
    assert (found["status"], found["epochs"], found["summary"]) == ("failed", [], {})


def test_the_same_records_make_the_same_bytes(records: Records, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_records(records, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "r.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(DataError, match=r"r\.parquet"):
        read_records(tmp_path / "r.parquet")
