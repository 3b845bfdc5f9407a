"""The breakdown of a run's epoch: its table adds up, and is written as CSV."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from gnnexp.measure.phases import PHASES
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.breakdown import breakdown_of, write_breakdown


def run_of(path: Path, **metrics: float) -> RecordedRun:
    seconds = {"sample": 0.2, "forward": 0.3, "backward": 0.4, "wait": 0.05, "unaccounted": 0.05}
    times = {
        f"time/{name}_s{of}": seconds.get(name, 0.0) * factor
        for name in (*PHASES, "unaccounted")
        for of, factor in (("_mean", 1.0), ("_min", 0.5), ("", 2.0))
    }
    epoch = {
        **times,
        "time/epoch_s": 1.1,
        "time/epoch_s_mean": 1.0,
        "time/epoch_s_min": 0.9,
        "time/hidden_sample_s_mean": 0.7,
        "time/fb_s_mean": 0.7,
        "loss/train": 1.0,
        **metrics,
    }
    return RecordedRun(
        path,
        {"seed": 0, "system": "<dgl>", "hardware": {}},
        {"reproduce": "gnnexp run", "choices": {}},
        [epoch] * 3,
        {},
        "finished",
    )


def test_the_phases_add_up_to_the_epoch(tmp_path: Path) -> None:
    *phases, whole = breakdown_of(run_of(tmp_path)).texts
    assert [row[0] for row in phases] == ["sample", "forward", "backward", "wait", "unaccounted"]
    assert sum(float(row[1]) for row in phases) == pytest.approx(float(whole[1]))
    assert sum(float(row[4]) for row in phases) == pytest.approx(100)
    assert phases[0] == ("sample", "0.2", "0.1", "0.4", "20.0", "0.7") and whole[:4] == ("epoch", "1", "0.9", "1.1")


def test_the_file(tmp_path: Path) -> None:
    write_breakdown(run_of(tmp_path), tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"breakdown.csv"}
    header, *rows = csv.reader((tmp_path / "breakdown.csv").open())
    assert header[0] == "phase" and len(rows) == 6
