"""Records in columns: what was written comes back, bit for bit; what follows from the rest takes no room."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnexp.errors import DataError
from gnnexp.record.columnar import Records, read_records, write_records
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
    waits = {"label": "waits", "run_dir": "", "status": "", "reason": ""}
    return Records(
        {
            "s": {**state("runs/s/b", "runs/s/a"), "report": {"rows": ["seed"]}},
            "other": state("runs/s/a") | {"cases": [*state("runs/s/a")["cases"], waits]},
        },
        {
            "runs/s/a": result([line(0), uneven]),
            "runs/s/b": result(told, summary={"acc/test": 0.25}),
        },
    )


def same(ours: Records, theirs: Records) -> bool:
    """The same JSON, to the byte: order, integers and real numbers, signs of zeros."""
    return json.dumps([ours.states, ours.results]) == json.dumps([theirs.states, theirs.results])


def test_everything_comes_back(records: Records, tmp_path: Path) -> None:
    write_records(records, tmp_path / "r.parquet")
    assert same(read_records(tmp_path / "r.parquet"), records)


@pytest.mark.parametrize(
    "metrics",
    [
        {"loss/train": 1},  # in a column of real numbers
        {"loss/train": -0.0, "time/x_s": 0.0, "time/x_s_min": -0.0, "time/x_s_mean": 0},
        {"comm/bytes_features": 7.0},
        {"comm/bytes_features": 1 << 63, "work/large": -(1 << 63)},
        {"name": 1.0, "record": 2.0, "epoch": 3.0},
        {"time/x_s_min": 1.0},
        {},
    ],
)
def test_numbers_of_any_kind_come_back(tmp_path: Path, metrics: dict[str, float]) -> None:
    lines = [line(0), {**line(1), "metrics": metrics}, {"epoch": 7, "metrics": dict(reversed(metrics.items()))}]
    one = Records({"s": state("runs/s/a")}, {"runs/s/a": result(lines, summary={"best_epoch": 0})})
    write_records(one, tmp_path / "r.parquet")
    assert same(read_records(tmp_path / "r.parquet"), one)


def test_one_sweep_has_its_own_runs_only(records: Records, tmp_path: Path) -> None:
    write_records(records, tmp_path / "r.parquet")
    other = read_records(tmp_path / "r.parquet", ["other"])
    assert same(other, Records({"other": records.states["other"]}, {"runs/s/a": records.results["runs/s/a"]}))
    assert read_records(tmp_path / "r.parquet", ["none"]) == Records({}, {})


def test_a_failed_run_is_kept(tmp_path: Path) -> None:
    failed = Records({"s": state("runs/s/f")}, {"runs/s/f": result([], status="failed", summary={})})
    write_records(failed, tmp_path / "r.parquet")
    assert same(read_records(tmp_path / "r.parquet"), failed)


def test_what_follows_takes_no_room(tmp_path: Path) -> None:
    """The summary, and the mean and the least over one rank."""
    for name, least in (("twins", TENTHS), ("others", 0.5)):
        lines = [line(number) for number in range(50)]
        for number, one in enumerate(lines):
            one["metrics"]["time/epoch_s_min"] = least * number
        write_records(Records({}, {f"runs/{run}": result(lines) for run in range(9)}), tmp_path / name)
    assert (tmp_path / "twins").stat().st_size < 0.9 * (tmp_path / "others").stat().st_size


def test_the_same_records_make_the_same_bytes(records: Records, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_records(records, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("table", [{"other": [1]}, {"name": ["runs/sweeps/s.json"], "record": ["[]"]}])
def test_another_table_is_named(tmp_path: Path, table: dict[str, list[Any]]) -> None:
    pq.write_table(pa.table(table), tmp_path / "r.parquet")
    with pytest.raises(DataError, match=r"r\.parquet"):
        read_records(tmp_path / "r.parquet")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "r.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(DataError, match=r"r\.parquet"):
        read_records(tmp_path / "r.parquet")
