"""`gnnexp prepare`, a real torchrun, `gnnexp finalize`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import curve, place

from gnnexp.cli.main import run_command

__all__ = ["place"]

SMALL = [
    "dataset=digits",
    "model.hidden=8",
    "train.epochs=2",
    "train.batch_size=512",
    "tracker=none",
    "hardware.workers=2",
    "hardware.threads=1",
]
TORCHRUN = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node",
    "2",
    "-m",
    "gnnexp.worker",
]


def files_of(run_dir: str) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in Path(run_dir).rglob("*") if file.is_file() and file.name != "lock"}


def worker(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A rank that a careless user starts."""
    return subprocess.run(
        [sys.executable, "-m", "gnnexp.worker", *words],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.interpreter
def test_a_run_of_torchrun_has_the_losses_of_gnnexp_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["prepare", *SMALL, "hydra.run.dir=theirs", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["command"] == (
        f"torchrun --standalone --nproc-per-node 2 -m gnnexp.worker {Path('theirs').resolve()}"
    )
    assert run_command(["finalize", "theirs"]) == 2 and "no rank of it has started" in capsys.readouterr().err
    subprocess.run([*TORCHRUN, "theirs"], check=True)
    assert run_command(["run", *SMALL, "hydra.run.dir=ours"]) == 0
    assert curve("theirs") == curve("ours") and len(curve("ours")) == 2
    assert run_command(["finalize", "theirs"]) == 0 and "theirs/result.json" in capsys.readouterr().out
    assert Path("theirs/figures/breakdown.csv").exists()
    before = files_of("theirs")
    assert run_command(["finalize", "theirs"]) == 0 and files_of("theirs") == before
    subprocess.run([*TORCHRUN, "theirs"], check=True)
    assert curve("theirs") == curve("ours"), "a finished run is not trained again"


@pytest.fixture
def going(place: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A torchrun that trains for long, with at least one recorded epoch."""
    assert run_command(["prepare", *SMALL, "hydra.run.dir=run", "train.epochs=100000"]) == 0
    started = subprocess.Popen([*TORCHRUN, "run"])
    end = time.monotonic() + 300
    while not curve("run"):
        assert started.poll() is None and time.monotonic() < end
        time.sleep(0.1)
    yield started
    started.kill()
    started.wait()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.interpreter
def test_a_killed_torchrun_is_a_failed_run_that_can_be_resumed(
    going: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["status", "run"]) == 0 and "run: running" in capsys.readouterr().out
    assert run_command(["finalize", "run"]) == 2 and "runs" in capsys.readouterr().err
    assert run_command(["resume", "run"]) == 2 and "runs" in capsys.readouterr().err
    assert run_command(["cancel", "run"]) == 2 and "another program" in capsys.readouterr().err
    going.send_signal(signal.SIGKILL)
    going.wait()
    end = time.monotonic() + 60
    while (code := run_command(["finalize", "run"])) == 2 and time.monotonic() < end:
        time.sleep(0.1)  # the ranks die with torchrun, in their own time
    said = capsys.readouterr().err
    assert code == 1 and "vanished" in said and "gnnexp resume run" in said
    result = json.loads(Path("run/result.json").read_text())
    assert (result["status"], result["kind"]) == ("failed", "killed") and result["epochs"]
    before = files_of("run")
    assert run_command(["finalize", "run"]) == 1 and files_of("run") == before


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_rank_that_was_started_wrongly_says_so(place: Path) -> None:
    assert run_command(["prepare", *SMALL, "hydra.run.dir=run"]) == 0
    alone = worker("run", RANK="0", WORLD_SIZE="2", LOCAL_RANK="0")
    assert alone.returncode == 2 and "LOCAL_WORLD_SIZE" in alone.stderr and "Traceback" not in alone.stderr
    assert worker("nowhere").returncode == worker().returncode == 2
    assert worker("run").returncode == 2, "one rank of two"
    status = json.loads(Path("run/status/rank_0.json").read_text())
    assert status["kind"] == "mistake" and "2 ranks each" in status["reason"]
    assert run_command(["finalize", "run"]) == 2
    words = json.dumps({**status, "state": "running", "pid": os.getpid(), "time": time.time()})
    Path("run/status/rank_0.json").write_text(words)
    twice = worker("run")
    assert twice.returncode == 2 and f"process {os.getpid()} is rank 0" in twice.stderr
    assert Path("run/status/rank_0.json").read_text() == words
