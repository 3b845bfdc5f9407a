"""Which processes work on a sweep, and whom `gnnexp cancel SWEEP` asks to end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from command_line import start
from fake_slurm import install
from run_folder import write_job

from gnnexp.cli.main import run_command
from gnnexp.cli.sweeping import processes
from gnnexp.cli.sweeping.processes import STATES, at_work, processes_of
from gnnexp.launchers.queue.slurm_jobs import Submission, write_submission
from gnnexp.record.attempts import Holder

HOLD = """
import sys, time
from gnnexp.cli.sweeping.processes import at_work
with at_work(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""
SWEEP = {
    "description": "two long runs",
    "fixed": [
        "tracker=none",
        "model.hidden=8",
        "model.layers=2",
        "sampler.fanouts=[3,3]",
        "train.epochs=100000",
        "train.eval_every=null",
        "hardware.workers=1",
    ],
    "axes": {"seed": [0, 1]},
}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path / "cache"))
    return tmp_path


def write_state(name: str, *run_dirs: str) -> None:
    STATES.mkdir(parents=True, exist_ok=True)
    cases = [{"label": run, "run_dir": run, "status": "waiting"} for run in run_dirs]
    (STATES / f"{name}.json").write_text(json.dumps({"name": name, "cases": cases}))


@pytest.fixture
def working() -> Iterator[subprocess.Popen[bytes]]:
    """A process that works on the sweep `mine[1]`, whose name has special characters of a glob."""
    write_state("mine[1]")
    with subprocess.Popen([sys.executable, "-c", HOLD, "mine[1]"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_a_process_is_found_while_it_works() -> None:
    with at_work("mine"), at_work("mine.more"), at_work("mine"):
        assert [found.pid for found in processes_of("mine")] == [os.getpid()] * 2
        assert processes_of("min") == []
    assert processes_of("mine") == [] and list((STATES / ".cases").iterdir()) == []


@pytest.mark.interpreter
def test_a_killed_process_leaves_nothing_for_long(working: subprocess.Popen[bytes]) -> None:
    assert [found.pid for found in processes_of("mine[1]")] == [working.pid]
    working.kill()
    working.wait()
    assert processes_of("mine[1]") == [] and len(list((STATES / ".cases").iterdir())) == 1
    with at_work("mine[1]"):
        assert len(list((STATES / ".cases").iterdir())) == 1


@pytest.mark.interpreter
def test_the_process_of_a_sweep_is_asked_to_end(
    working: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["status", "mine[1]"]) == 0 and "running" in capsys.readouterr().out
    assert run_command(["cancel", "mine[1]"]) == 0
    assert working.wait(20) == -signal.SIGTERM
    assert f"process {working.pid} is asked to stop" in capsys.readouterr().out
    assert run_command(["cancel", "mine[1]"]) == 2


@pytest.mark.parametrize(
    "change", [{"host": "n1"}, {"started": 1.0}, {"table": "another/container"}, {"pid": 2**22 - 1}]
)
def test_only_a_process_of_this_machine_is_asked(
    change: dict[str, object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_state("mine")
    signalled: list[int] = []
    monkeypatch.setattr("gnnexp.cli.sweeping.processes.os.kill", lambda pid, number: signalled.append(pid))
    with at_work("mine"):
        (file,) = (STATES / ".cases").iterdir()
        file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
        assert run_command(["cancel", "mine"]) == 2
    monkeypatch.undo()
    assert signalled == [] and "works on it" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{}", "[1]", "\x00"])
def test_a_damaged_file_names_nobody(text: str) -> None:
    write_state("mine")
    with at_work("mine"):
        (file,) = (STATES / ".cases").iterdir()
        file.write_text(text)
        assert processes_of("mine") == [] and run_command(["cancel", "mine"]) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
@pytest.mark.parametrize("theirs", ["state", "process"])
@pytest.mark.interpreter
def test_files_of_another_user_are_refused(
    working: subprocess.Popen[bytes], theirs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (file,) = (STATES / ".cases").iterdir()
    os.chown(file if theirs == "process" else STATES / "mine[1].json", 12345, -1)
    assert run_command(["cancel", "mine[1]"]) == 2
    assert "belongs to" in capsys.readouterr().err and working.poll() is None
    assert run_command(["cancel", "--trust", "mine[1]"]) == 0
    working.wait(20)


def test_jobs_that_no_process_follows_are_cancelled_together(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        write_job(Path(f"runs/r{number}"))
        Path(f"runs/r{number}/slurm.json").write_text(json.dumps({"job_id": f"5{number}", "token": "t"}))
    Path("runs/r2/result.json").write_text("{}")
    write_state("mine", "runs/r0", "runs/r1", "runs/r2", "runs/r0")
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(processes, "cancel_jobs", lambda *ids: asked.append(ids))
    monkeypatch.setattr(processes, "job_state_of", lambda run_dir, controller: None)
    assert run_command(["cancel", "mine"]) == 0
    assert asked == [("50", "51")] and "50, 51" in capsys.readouterr().out


def test_the_job_that_prepares_the_data_of_an_array_is_cancelled_with_the_sweep(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", f"{place / 'bin'}:{os.environ['PATH']}")
    install(place / "bin", "scancel", f"echo $* >> {place}/asked")
    for name in ("squeue", "sacct", "scontrol"):
        install(place / "bin", name, "echo 'Unable to contact slurm controller' >&2; exit 1")
    for number in range(2):
        write_job(Path(f"runs/r{number}"))
        write_submission(Path(f"runs/r{number}"), Submission(f"4712_{number}", "t", "4711"))
    write_state("mine", "runs/r0", "runs/r1")
    assert run_command(["cancel", "mine"]) == 0
    assert Path("asked").read_text() == "4712_0 4712_1\n4711\n"


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_real_sweep_ends_with_checkpoints(place: Path, jobs: int) -> None:
    """Its live cases are interrupted, none starts, and the sweep can go on."""
    if jobs > len(os.sched_getaffinity(0)):
        pytest.skip("each case needs a core")
    (place / "long.yaml").write_text(json.dumps(SWEEP))
    with ExitStack() as left:
        process = start("sweep", "long.yaml", "--jobs", str(jobs), cwd=place)
        left.callback(process.kill)
        while len(list(place.glob("runs/long/*/epochs.jsonl"))) < jobs:
            assert process.poll() is None, process.communicate()[0]
        assert run_command(["cancel", "long"]) == 0
        said, _ = process.communicate(timeout=120)
    assert process.returncode in (130, 143), said
    runs = sorted(place.glob("runs/long/*"))
    assert len(runs) == jobs and all(list(run.glob("checkpoints/*")) for run in runs), said
    assert {json.loads((run / "result.json").read_text())["status"] for run in runs} == {"failed"}
    assert processes_of("long") == []


def test_a_holder_is_written_as_it_is_read() -> None:
    with at_work("mine"):
        (found,) = processes_of("mine")
    assert isinstance(found, Holder) and found.started > 0 and found.table
