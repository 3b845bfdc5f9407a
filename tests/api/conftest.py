"""Runs of tests of `gnnexp.load` and of commands that use it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from stopping import attempt

from gnnexp.cli.running.execute import create_run
from gnnexp.cli.running.prepare import checked, prepare
from gnnexp.experiment.build import experiment_of
from gnnexp.training.assemble import Artifacts


@pytest.fixture
def trains(ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Trains overrides on some ranks of a pool, in a new run directory without a result, as a killed run leaves it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path.parent / "cache"))

    def train(*overrides: str, size: int = 2, stop_at: int | None = None, name: str = "run") -> Path:
        run_dir = tmp_path / name
        composed = checked([*overrides, f"hardware.workers={size}", f"hydra.run.dir={run_dir}"], None)
        experiment = experiment_of(composed.config)
        prepared = prepare(experiment, run_dir)
        create_run(composed, experiment, prepared, None)
        artifacts = Artifacts(prepared.folder, prepared.partition, prepared.presample, prepared.parts)
        for at in dict.fromkeys((stop_at, None)):  # stopped, then resumed
            ranks(size).run(attempt, composed.config, str(run_dir), at, signal.SIGTERM, artifacts)
        return run_dir

    return train
