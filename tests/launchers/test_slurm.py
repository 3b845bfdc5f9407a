"""A launcher that follows a job while SLURM answers nothing, errors, garbage, late, or what is no longer true."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_slurm import DOWN, FakeSlurm, at, install, lists, make_run

from gnnexp.config.compose import compose
from gnnexp.errors import RunError
from gnnexp.experiment.build import hardware_of
from gnnexp.launchers.base import Outcome
from gnnexp.launchers.queue.commands import Reply
from gnnexp.launchers.queue.controller import Controller
from gnnexp.launchers.queue.following import following
from gnnexp.launchers.queue.slurm_jobs import (
    Submission,
    cancel_preparation,
    is_of_run,
    read_submission,
    requeue,
    write_submission,
)
from gnnexp.launchers.queue.slurm_task import SlurmTask
from gnnexp.launchers.slurm import SlurmLauncher
from gnnexp.record.attempts import JOB_OVER, note

RUNS, GONE = lists("4711|RUNNING|N/A|None"), lists()
DURING = {
    "an error": Reply("", "", DOWN),
    "nothing": Reply("", "", ""),
    "garbage": Reply("\0<html>\n4711|RUNN", "", ""),
    "too late": Reply("", "", "squeue did not answer in time"),
    "a state of the future": lists("4711|WARPING|N/A|None"),
    "too much": Reply("", "", "squeue printed more than 16777216 bytes"),
}


@pytest.fixture
def slurm() -> FakeSlurm:
    return FakeSlurm()


def follow(run_dir: Path, slurm: FakeSlurm, seconds: int, each: Callable[[int], None]) -> Outcome | None:
    """What following says within so many seconds of the fake's clock."""
    asking = following(run_dir, "4711", 1, Controller(slurm.clock, slurm.ask))
    for second in range(seconds):
        slurm.now = 1000.0 + second
        each(second)
        if (outcome := next(asking)) is not None:
            return outcome
    return None


@pytest.mark.parametrize("during", DURING)
def test_an_outage_ends_no_run(tmp_path: Path, slurm: FakeSlurm, during: str) -> None:
    def each(second: int) -> None:
        slurm.squeue = DURING[during] if 20 < second < 900 else RUNS
        if second % 60 == 0:
            make_run(tmp_path)  # its ranks are heard

    assert follow(tmp_path, slurm, 1000, each) is None


@pytest.mark.parametrize("during", DURING)
def test_a_result_is_found_whoever_answers(tmp_path: Path, slurm: FakeSlurm, during: str) -> None:
    def each(second: int) -> None:
        slurm.squeue = DURING[during]
        make_run(tmp_path, state="finished" if second > 40 else "running")
        if second > 42:
            (tmp_path / "result.json").write_text("{}")
        if second == 44:
            note(tmp_path, JOB_OVER, job="4711", state="COMPLETED")

    assert follow(tmp_path, slurm, 60, each) == Outcome(0, "finished")
    assert slurm.now == 1044.0


def test_a_result_is_found_although_the_script_of_the_job_was_killed(
    tmp_path: Path, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path, state="finished")
    (tmp_path / "result.json").write_text("{}")
    assert follow(tmp_path, slurm, 60, lambda second: None) is None
    monkeypatch.setattr("gnnexp.launchers.queue.following._LAST_ACT_S", -1.0)
    assert follow(tmp_path, slurm, 60, lambda second: None) == Outcome(0, "finished")


def test_a_failure_that_the_job_noted_is_found_while_nobody_answers(tmp_path: Path, slurm: FakeSlurm) -> None:
    def each(second: int) -> None:
        if second == 30:
            make_run(tmp_path, state="failed", silent_s=1)
            note(tmp_path, JOB_OVER, job="4711", state="FAILED")

    make_run(tmp_path)
    outcome = follow(tmp_path, slurm, 60, each)
    assert outcome is not None and outcome.status == "failed" and slurm.now == 1030.0


def test_an_end_is_an_end(tmp_path: Path, slurm: FakeSlurm) -> None:
    def each(second: int) -> None:
        slurm.squeue = RUNS if second < 20 else lists(f"4711|OUT_OF_MEMORY|{at(1)}|OutOfMemory")

    outcome = follow(make_run(tmp_path), slurm, 60, each)
    assert outcome is not None and outcome.kind == "out of memory" and slurm.now == 1030.0


def test_a_job_that_vanished_is_lost_when_it_was_silent_for_long(tmp_path: Path, slurm: FakeSlurm) -> None:
    make_run(tmp_path, silent_s=1e6)
    outcome = follow(tmp_path, slurm, 300, lambda second: setattr(slurm, "squeue", RUNS if second < 20 else GONE))
    assert outcome is not None and outcome.status == "failed" and "vanished" in outcome.reason
    assert 1120.0 <= slurm.now <= 1150.0, "not by its first absence, at 1030 s"


def test_a_preempted_job_that_comes_back_goes_on(tmp_path: Path, slurm: FakeSlurm) -> None:
    def each(second: int) -> None:
        slurm.squeue = (
            RUNS
            if second < 20
            else lists(f"4711|PREEMPTED|{at(1)}|None")
            if second < 40
            else lists("4711|PENDING|N/A|BeginTime")
            if second < 60
            else RUNS
        )

    assert follow(make_run(tmp_path), slurm, 100, each) is None


def test_what_is_unknown_of_one_job_is_said_once(
    tmp_path: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    def each(second: int) -> None:
        slurm.squeue = GONE if 20 < second < 70 else RUNS

    assert follow(make_run(tmp_path), slurm, 100, each) is None
    first, second = capsys.readouterr().out.splitlines()
    assert "job 4711 unknown (SLURM does not list it" in first and second == "SLURM job 4711 RUNNING"


def test_a_job_that_its_user_delayed_is_not_released(
    tmp_path: Path, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[str] = []
    monkeypatch.setattr("gnnexp.launchers.queue.following.release", released.append)
    monkeypatch.setattr("gnnexp.launchers.queue.following._SETTLED_S", -1.0)
    slurm.squeue = lists("4711|PENDING|N/A|BeginTime")
    follow(make_run(tmp_path / "delayed", ranks=0), slurm, 40, lambda second: None)
    assert not released
    put_back = make_run(tmp_path / "put back", ranks=0)
    note(put_back, "requeue", cause="time", reason="", job="4711")
    follow(put_back, slurm, 40, lambda second: None)
    assert released == ["4711"], "once per answer of SLURM, not once per look"


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH on which SLURM takes jobs and then says nothing."""
    folder = tmp_path / "bin"
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    install(folder, "sbatch", "echo 'Submitted batch job 4711'")
    install(folder, "srun", "exit 1")  # submitit looks for it
    for name in ("squeue", "sacct", "scancel", "scontrol"):
        install(folder, name, f"echo {name} $* >> {folder}/asked; echo '{DOWN.partition(': ')[2]}' >&2; exit 1")
    return folder


def launched(run_dir: Path, interrupt_when: Callable[[], object]) -> Outcome:
    """Launch, and press Ctrl-C when it holds."""

    def press() -> None:
        end = time.monotonic() + 60
        while not interrupt_when() and time.monotonic() < end:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    try:
        return SlurmLauncher().launch(run_dir, hardware_of(compose(["hardware=slurm_cpu"]).config))
    finally:
        thread.join()


def test_ctrl_c_works_in_an_outage_and_leaves_the_job_its_run(commands: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    outcome = launched(run_dir, lambda: (submission := read_submission(run_dir)) and submission.job_id)
    assert (outcome.exit_code, outcome.status) == (130, "submitted"), "it may go on: it is no failed run"
    assert "gnnexp cancel" in outcome.message and "Unable to contact" in outcome.message
    assert "scancel 4711" in (commands / "asked").read_text()


def test_ctrl_c_cancels_the_job(commands: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    install(commands, "scancel", f"touch {commands}/cancelled")
    install(commands, "squeue", f"echo '4711|CANCELLED|{at(1)}|None'")
    monkeypatch.setattr("gnnexp.launchers.slurm.Controller", lambda: Controller(clock=lambda: 100 * time.monotonic()))
    for place in ("slurm", "queue.following"):
        monkeypatch.setattr(f"gnnexp.launchers.{place}.POLL_S", 0.05)
    monkeypatch.setattr("gnnexp.launchers.slurm.following", _never_ends)
    outcome = launched(run_dir, lambda: (submission := read_submission(run_dir)) and submission.job_id)
    assert (outcome.exit_code, outcome.status) == (130, "interrupted") and (commands / "cancelled").exists()


def _never_ends(*args: object) -> Iterator[None]:
    while True:
        yield None


def test_the_job_that_prepares_data_is_cancelled_with_the_run(commands: Path, tmp_path: Path) -> None:
    for name, preparation in (("one", "4711"), ("two", "4711"), ("three", None)):
        (tmp_path / name).mkdir()
        write_submission(tmp_path / name, Submission("4712", "t", preparation))
    cancel_preparation(tmp_path / "three")
    assert not (commands / "asked").exists()
    cancel_preparation(*(tmp_path / name for name in ("one", "two", "three")))
    assert (commands / "asked").read_text() == "scancel 4711\n", "a refusal does not matter: it may have ended"


@pytest.mark.parametrize(
    ("script", "kept"),
    [
        ("echo 'sbatch: error: Batch job submission failed: Invalid account' >&2; exit 1", False),
        (
            "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1",
            True,
        ),
        ("echo hello", True),
        (r"printf 'job \377'", True),
    ],
)
def test_a_submission_without_an_answer_may_have_been_taken(
    commands: Path, tmp_path: Path, script: str, kept: bool
) -> None:
    install(commands, "sbatch", script)
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    with pytest.raises(RunError, match="sbatch"):
        SlurmLauncher().submit([run_dir], hardware_of(compose(["hardware=slurm_cpu"]).config))
    submission = read_submission(run_dir)
    assert (submission is not None and submission.job_id is None) == kept


def test_a_job_leaves_a_run_that_is_no_longer_its_own(commands: Path, tmp_path: Path) -> None:
    config = compose(["hardware=slurm_cpu"]).config
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (job_id,) = SlurmLauncher().submit([run_dir], hardware_of(config))
    submission = read_submission(run_dir)
    assert submission is not None and (submission.job_id, job_id) == ("4711", "4711")
    assert is_of_run(run_dir, submission.token) and is_of_run(run_dir, ""), "jobs of earlier versions have no token"
    write_submission(run_dir, Submission("4712", "another"))
    with pytest.raises(SystemExit, match="this job no longer works on"):
        SlurmTask(str(run_dir), {}, 1, submission.token)()
    (run_dir / "slurm.json").unlink()
    with pytest.raises(SystemExit, match="this job no longer works on"):
        SlurmTask(str(run_dir), {}, 1, submission.token)()


def test_a_job_is_put_back_when_slurm_answers_again(
    commands: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gnnexp.launchers.queue.slurm_jobs._FIRST_WAIT_S", 0.01)
    tries = commands / "tries"
    install(
        commands,
        "scontrol",
        f"echo x >> {tries}; [ $(wc -l < {tries}) -ge 4 ] && exit 0; "
        "echo 'Unexpected message received for job 4711' >&2; exit 1",
    )
    requeue("4711")
    assert len(tries.read_text()) == 8 and capsys.readouterr().out.count("asking again") == 3
    install(commands, "scontrol", f"echo x >> {tries}; echo 'Requested operation is presently disabled' >&2; exit 1")
    with pytest.raises(RunError, match="disabled"):
        requeue("4711")
    assert len(tries.read_text()) == 10, "a refusal is not asked again"
    monkeypatch.setattr("gnnexp.launchers.queue.slurm_jobs._REQUEUE_S", 0.0)
    install(commands, "scontrol", "echo 'Unexpected message received for job 4711' >&2; exit 1")
    with pytest.raises(RunError, match="Unexpected message"):
        requeue("4711")


def test_a_run_that_cannot_be_put_back_says_why(
    commands: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gnnexp.cli.running.after_job import main

    config = compose(["hardware=slurm_cpu", "hardware.workers=1", "hardware.detach=true", "tracker=none"]).config
    run_dir = make_run(tmp_path / "run", state="stopped")
    file = run_dir / "status" / "rank_0.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "reason": "SIGUSR2"}))
    (run_dir / "job.json").write_text(json.dumps({"config": config, "provenance": {}, "partition": None}))
    (run_dir / "epochs.jsonl").write_text("")
    install(commands, "scontrol", "echo 'Requested operation is presently disabled' >&2; exit 1")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    assert main([str(run_dir), "1", "10", "other"]) == 1 and not (run_dir / "result.json").exists(), "not its own"
    assert main([str(run_dir), "1", "10", "t"]) == 1
    result = json.loads((run_dir / "result.json").read_text())
    assert result["status"] == "failed" and "could not be put back into the queue" in result["reason"]
    assert file.exists(), "the ranks' words are there again"
    events = [line["event"] for line in map(json.loads, (run_dir / "attempts.jsonl").read_text().splitlines())]
    assert events == ["requeue", "end", JOB_OVER]
