"""Children that SIGKILL does not end, as on a dead file system or in a frozen container; whoever waits has a limit."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def unkillable(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[Any]]]:
    """Children that were killed in vain; they end after the test."""
    really_kill, wait = subprocess.Popen.kill, subprocess.Popen.wait
    killed: list[subprocess.Popen[Any]] = []

    def kill_in_vain(process: subprocess.Popen[Any]) -> None:
        killed.append(process)

    def wait_with_a_limit(process: subprocess.Popen[Any], timeout: float | None = None) -> int:
        assert timeout is not None or process.poll() is not None, "this would never return"
        return wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "kill", kill_in_vain)
    monkeypatch.setattr(subprocess.Popen, "wait", wait_with_a_limit)
    monkeypatch.setattr("gnnexp.files.pulse.KILLED_S", 0.2, raising=False)
    yield killed
    monkeypatch.undo()
    for process in killed:
        really_kill(process)
        process.wait()
