"""Every process of a run frozen or killed, alone and in pairs: nobody waits for ever, and `resume` ends every run."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from command_line import curve, place, start
from rank_processes import ranks_of

from gnnexp.cli.main import run_command

__all__ = ["place"]

TIMEOUT_S, EPOCHS = 10, 120
SMALL = [
    "model.hidden=16",
    "model.layers=2",
    "sampler.fanouts=[4,4]",
    "hardware.threads=1",
    "train.batch_size=256",
    "train.batch_of=run",
    "hardware.workers=2",
    "train.eval_every=0",
    "train.checkpoint_every=5",
    f"train.epochs={EPOCHS}",
    f"hardware.timeout_s={TIMEOUT_S}",
    "hydra.run.dir=run",
]
WHO = ["launcher", "starter", "rank 0", "rank 1", "tracker"]
HOW = [signal.SIGSTOP, signal.SIGKILL]
ALONE = [[(who, how)] for who in WHO for how in HOW]
PAIRS = [[(one, a), (other, b)] for one, other in itertools.combinations(WHO, 2) for a in HOW for b in HOW]


def processes(launcher: subprocess.Popen[str]) -> dict[str, psutil.Process]:
    """Of a run that trains, by what they are."""
    children = psutil.Process(launcher.pid).children()
    named = {
        word: next(child for child in children if module in " ".join(child.cmdline()))
        for word, module in (("starter", "launchers.starter"), ("tracker", "trackers.follow"))
    }
    ranks = {f"rank {rank}": process for rank, process in ranks_of(Path("run")).items()}
    return {"launcher": psutil.Process(launcher.pid), **named, **ranks}


def until_trained(launcher: subprocess.Popen[str], epochs: int) -> None:
    while len(curve("run")) < epochs:
        assert launcher.poll() is None, launcher.communicate()[0]
        time.sleep(0.05)


def ends(process: psutil.Process, seconds: float = 30.0) -> bool:
    try:
        process.wait(seconds)
    except psutil.TimeoutExpired:
        return process.status() == psutil.STATUS_ZOMBIE
    return True


def name(faults: list[tuple[str, signal.Signals]]) -> str:
    return "+".join(f"{who} {how.name[3:]}" for who, how in faults)


# Every process alone, and every fifth pair; all pairs every night.
CASES = [
    pytest.param(faults, marks=pytest.mark.nightly if number % 5 else pytest.mark.slow)
    for number, faults in enumerate(PAIRS)
] + [pytest.param(faults, marks=pytest.mark.slow) for faults in ALONE]


@pytest.mark.timeout(500)
@pytest.mark.parametrize("faults", CASES, ids=name)
def test_a_launcher_waits_for_nobody_for_ever(place, mlflow_store, faults):
    uri = mlflow_store(place)
    launcher = start("run", *SMALL)
    until_trained(launcher, 3)
    there, how = processes(launcher), dict(faults)
    for who, number in faults:
        there[who].send_signal(number)
    if how.get("launcher") == signal.SIGSTOP:  # it can do nothing until somebody lets it go on
        time.sleep(3)
        launcher.send_signal(signal.SIGCONT)
    output, _ = launcher.communicate(timeout=200)  # far more than any limit, far less than for ever
    assert "Traceback" not in output, output
    for who in ("launcher", "starter", "rank 0", "rank 1"):
        assert ends(there[who]), f"{who} lives on: {output}"
    if there["tracker"].is_running() and how.get("tracker") == signal.SIGSTOP:
        there["tracker"].kill()  # of a launcher that was killed: nobody else can end it
    assert run_command(["resume", "run"]) == 0
    assert len(curve("run")) == EPOCHS and json.loads(Path("run/result.json").read_text())["status"] == "finished"
    check_tracked(uri)


def check_tracked(uri: str) -> None:
    """One run, whole, after the resumed one has been delivered."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name("gnnexp").experiment_id])
    assert run.info.status == "FINISHED"
    assert sorted(one.step for one in client.get_metric_history(run.info.run_id, "loss/train")) == list(range(EPOCHS))
