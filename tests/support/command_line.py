"""The console script in processes of its own, and what its run directories hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gnnexp.records import read_epochs


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


def curve(run_dir: str) -> list[list[float]]:
    """The loss of every step of every recorded epoch."""
    return [line["losses"] for line in read_epochs(Path(run_dir))]
