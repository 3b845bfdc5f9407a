"""The console script in processes of its own, and what its run directories hold."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from gnnexp.config.compose import compose
from gnnexp.record.records import read_epochs


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder; prepared data is shared between tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path.parent / "cache"))
    return tmp_path


def start(*arguments: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    """`gnnexp …`, both streams in one pipe."""
    command = [sys.executable, "-m", "gnnexp", *arguments]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def fitting(system: str, overrides: Sequence[str]) -> list[str]:
    """`overrides` but for those that make no sense where the full graph is one batch."""
    if compose([f"system={system}"]).config["train"]["batch_size"] is not None:
        return list(overrides)
    return [line for line in overrides if not line.startswith(("sampler.fanouts", "train.batch_"))]


def curve(run_dir: str) -> list[list[float]]:
    """The loss of every step of every recorded epoch."""
    return [line["losses"] for line in read_epochs(Path(run_dir))]
