"""Runs as reports read them: medians after the first epoch, and which directories are runs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from run_folder import metrics_of
from run_on_disk import run_on_disk

from gnnexp.errors import DataError
from gnnexp.record.runs import find_runs, read_run


def test_times_are_medians_of_the_epochs_after_the_first(tmp_path: Path) -> None:
    run = run_on_disk(tmp_path / "a")
    assert run.median("time/epoch_s") == metrics_of(1)["time/epoch_s"], "the first epoch, ten times slower, is left out"
    assert run_on_disk(tmp_path / "b", epochs=1).median("time/epoch_s") == metrics_of(0)["time/epoch_s"]
    assert math.isnan(run.median("time/no_such_s"))


def test_finding_runs(tmp_path: Path) -> None:
    run_on_disk(tmp_path / "x" / "late", seed=1)
    run_on_disk(tmp_path / "early")
    run_on_disk(tmp_path / "bad", seed=3, status="failed")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "result.json").write_text("{")
    runs = find_runs(tmp_path)
    assert [run.path.name for run in runs] == ["early", "late", "bad"]
    with pytest.raises(DataError, match="torn"):
        read_run(tmp_path / "torn")
    with pytest.raises(DataError, match="has ended"):
        read_run(tmp_path / "nowhere")
