"""Whom `gnnexp cancel` signals: the process that holds the run, and nobody else."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from run_folder import write_job

from gnnexp.cli.main import run_command
from gnnexp.record.attempts import LOCK_FILE, alone, note

HOLD = """
import sys, time
from pathlib import Path
from gnnexp.record.attempts import alone
with alone(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def innocent() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_job(tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.interpreter
def test_the_holder_is_asked_to_stop(run: Path, innocent: subprocess.Popen[bytes]) -> None:
    """While a run is resumed, its last start was noted by a process that is gone, and whose number is another's."""
    note(run, "start", pid=innocent.pid)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(run)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        assert run_command(["cancel", str(run)]) == 0
        assert process.wait(20) == -signal.SIGTERM
    assert innocent.poll() is None


@pytest.mark.parametrize(
    "case", ["nothing", "another host", "another process", "another container", "a process that is gone"]
)
def test_nobody_is_signalled_who_may_be_somebody_else(
    run: Path,
    innocent: subprocess.Popen[bytes],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    case: str,
) -> None:
    signalled: list[int] = []
    monkeypatch.setattr("gnnexp.cli.commands.jobs.os.kill", lambda pid, number: signalled.append(pid))
    here = {"host": platform.node(), "pid": innocent.pid, "started": psutil.Process(innocent.pid).create_time()}
    words = {
        "nothing": "",
        "another host": json.dumps({**here, "host": "n1"}),
        "another process": json.dumps({**here, "started": here["started"] - 60}),
        "another container": json.dumps({**here, "table": f"{platform.node()}/another"}),
        "a process that is gone": json.dumps({**here, "pid": 2**22 - 1}),
    }[case]
    with alone(run):
        (run / LOCK_FILE).write_text(words)
        assert run_command(["cancel", str(run)]) == 2
    monkeypatch.undo()
    assert "fix: " in capsys.readouterr().err and not signalled


def test_a_run_that_nobody_holds(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["cancel", str(run)]) == 2 and "no process of this machine" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["status", "cancel", "resume"])
def test_a_note_of_a_job_that_is_no_file_is_named_at_once(
    run: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    os.mkfifo(run / "slurm.json")
    assert run_command([command, str(run)]) == 2
    assert "slurm.json" in capsys.readouterr().err
