"""Runs of tests of `gnnexp.load` and of commands that use it."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from stopping import attempt

from gnnexp.cli.running.execute import create_run
from gnnexp.cli.running.prepare import checked_config, prepare
from gnnexp.training.assemble import Artifacts


@pytest.fixture(scope="session")
def trained_before(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[object, ...], Path]]:
    """A folder for copies of runs, and the copy of each run that a test has trained."""
    return tmp_path_factory.mktemp("trained"), {}


@pytest.fixture
def trains(
    ranks,
    trained_before: tuple[Path, dict[tuple[object, ...], Path]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Path]:
    """Trains overrides on some ranks of a pool, in a new run directory without a result, as a killed run leaves it.

    A test gets a copy of the run that another test has trained with the same overrides.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path.parent / "cache"))

    def train(*overrides: str, size: int = 2, stop_at: int | None = None, name: str = "run") -> Path:
        run_dir, (folder, copies) = tmp_path / name, trained_before
        key = (*overrides, size, stop_at)  # a dataset of the test's own is in a folder of its own
        if key in copies:
            return Path(shutil.copytree(copies[key], run_dir, symlinks=True))
        checked = checked_config([*overrides, f"hardware.workers={size}", f"hydra.run.dir={run_dir}"], None)
        prepared = prepare(checked.experiment, run_dir)
        create_run(checked, prepared, None)
        artifacts = Artifacts(prepared.folder, prepared.partition, prepared.presample, prepared.parts)
        for at in dict.fromkeys((stop_at, None)):  # stopped, then resumed
            ranks(size).run(attempt, checked.composed.config, str(run_dir), at, signal.SIGTERM, artifacts)
        copies[key] = Path(shutil.copytree(run_dir, folder / str(len(copies)), symlinks=True))
        return run_dir

    return train
