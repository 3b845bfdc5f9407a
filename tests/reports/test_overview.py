"""The list of all runs: best first within task and dataset, failed ones last, other orders."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from gnnexp.record.runs import RecordedRun
from gnnexp.reports.overview import make_overview
from gnnexp.reports.page.page import run_line


def make_run(name: str, dataset: str, acc: float, seconds: float, day: int = 1, kind: str = "") -> RecordedRun:
    config = {
        "dataset": {"name": dataset, "shape": "x_like", "scale": 0.5},
        "system": name,
        "model": {},
        "task": {},
        "hardware": {"workers": 2, "nodes": 3},
    }
    epoch = {"time/epoch_s": seconds, "memory/device_peak_bytes": 2e6, "memory/host_peak_bytes": 3e6}
    provenance = {
        "choices": {"model": "sage", "paradigm": "data_parallel", "task": "node_classification"},
        "date": f"2026-01-0{day}T10:00:00+00:00",
    }
    summary = {} if math.isnan(acc) else {"acc/test": acc}
    return RecordedRun(
        Path("runs") / name,
        config,
        provenance,
        [epoch] * 2,
        summary,
        "failed" if kind else "finished",
        "rank 1 died" if kind else "",
        kind,
    )


RUNS = [
    make_run("slow", "cora", 0.8, 9.0, 3),
    make_run("fast", "cora", 0.8, 1.0, 1),
    make_run("bad", "cora", 0.1, 2.0, 2),
    make_run("blind", "cora", math.nan, 0.5, 5),
    make_run("other", "arxiv", 0.2, 4.0, 4),
    make_run("died", "arxiv", 0.9, 0.1, 6, "killed"),
]


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("best", ["other", "fast", "slow", "bad", "blind", "died"]),
        ("acc", ["fast", "slow", "other", "bad", "blind", "died"]),
        ("epoch_s", ["blind", "fast", "bad", "other", "slow", "died"]),
        ("date", ["blind", "other", "slow", "bad", "fast", "died"]),
    ],
)
def test_orders(sort: str, order: list[str]) -> None:
    assert [row[0] for row in make_overview(RUNS, sort).rows] == order


def test_the_cells() -> None:
    table = make_overview(RUNS)
    rows = {row[0]: dict(zip(table.header, row, strict=True)) for row in table.texts}
    assert rows["fast"] == {
        "system": "fast",
        "dataset": "cora x_like x0.5",
        "model": "sage",
        "paradigm": "data_parallel",
        "ranks": "6",
        "test metric": "80.00 acc",
        "epoch s": "1",
        "device MB": "2",
        "host MB": "3",
        "status": "finished",
        "date": "2026-01-01 10:00",
        "directory": "runs/fast",
    }
    assert rows["died"]["status"] == "killed: rank 1 died" and rows["blind"]["test metric"] == "–"


@pytest.mark.parametrize(
    ("ended", "status", "reason"),
    [
        ("epochs", "finished", ""),
        ("", "finished", ""),
        ("stop_below", "finished early: train.stop_below", "ended early: train.stop_below"),
        ("patience", "finished early: train.patience", "ended early: train.patience"),
    ],
)
def test_a_run_that_ended_early_is_marked(ended: str, status: str, reason: str) -> None:
    run = replace(RUNS[0], ended=ended)
    table, line = make_overview([run]), run_line(run)
    assert table.rows[0][table.header.index("status")] == status
    assert (line.status, line.reason) == ("finished", reason)
