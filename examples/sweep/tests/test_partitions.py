"""Every case composes without problems, and METIS saves nine tenths of the bytes on digits."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnexp.cli.main import run_command
from gnnexp.cli.sweeping.definition import load_sweep
from gnnexp.config.compose import compose
from gnnexp.experiment.build import read
from gnnexp.record.runs import find_runs

FILE = str(Path(__file__).parent.parent / "partitions.yaml")


@pytest.mark.parametrize("full", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_case_is_right(full: bool) -> None:
    sweep = load_sweep(FILE, full=full)
    assert len(sweep.cases) == 2 * 2 * (3 + 1), "models, seeds; three partitions and DGL"
    for case in sweep.cases:
        assert read(compose(case.overrides).config).problems == ()


@pytest.mark.slow
def test_metis_sends_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    more = ["model=sage", "seed=0", "partitioner=random,metis", "system=gsplit", "train.epochs=2", "tracker=none"]
    assert run_command(["sweep", FILE, *more]) == 0
    sent = {run.value("partitioner"): run.median("comm/bytes_activations") for run in find_runs(Path("runs"))}
    assert sent["metis"] < sent["random"] / 10
    assert (tmp_path / "reports" / "partitions" / "load.svg").exists()
