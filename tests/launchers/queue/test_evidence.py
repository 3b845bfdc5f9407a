"""What proves that a job has ended, and what does not."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path

import pytest
from fake_slurm import DOWN, NO_SUCH_JOB, FakeSlurm, at, lists, make_run

from gnnexp.errors import DataError
from gnnexp.launchers.queue.answers import ALIVE, ENDED, PASSING, Alive, Answer, EndedJob, UnknownJob
from gnnexp.launchers.queue.commands import Reply
from gnnexp.launchers.queue.controller import Controller
from gnnexp.launchers.queue.evidence import SILENT_S, job_state_of, last_sign
from gnnexp.record.attempts import JOB_OVER, RANKS, note


@pytest.fixture
def slurm() -> FakeSlurm:
    return FakeSlurm()


def asked(slurm: FakeSlurm, run_dir: Path) -> Answer:
    found = job_state_of(run_dir, Controller(slurm.clock, slurm.ask))
    assert found is not None
    return found


@pytest.mark.parametrize("name", sorted(ALIVE))
def test_a_job_in_these_states_is_alive(tmp_path: Path, slurm: FakeSlurm, name: str) -> None:
    slurm.squeue = lists(f"4711|{name}|N/A|None")
    assert asked(slurm, make_run(tmp_path, silent_s=1e6)) == Alive("4711", name, "None")


@pytest.mark.parametrize("name", sorted(ENDED - PASSING))
def test_a_job_in_these_states_has_ended(tmp_path: Path, slurm: FakeSlurm, name: str) -> None:
    slurm.squeue = lists(f"4711|{name}|{at(1)}|None")
    assert asked(slurm, make_run(tmp_path)) == EndedJob("4711", name, "None")


@pytest.mark.parametrize("name", ["REVOKED", "LAUNCH_FAILED", "RECONFIG_FAIL", "HIBERNATED", "COMPLETE"])
def test_a_state_that_nobody_knows_is_unknown(tmp_path: Path, slurm: FakeSlurm, name: str) -> None:
    slurm.squeue = lists(f"4711|{name}|N/A|None")
    found = asked(slurm, make_run(tmp_path, silent_s=1e6))
    assert isinstance(found, UnknownJob) and name in found.why


@pytest.mark.parametrize("name", sorted(PASSING))
def test_a_job_that_slurm_may_put_back_is_alive_until_that_is_settled(
    tmp_path: Path, slurm: FakeSlurm, name: str
) -> None:
    make_run(tmp_path, silent_s=1e6)
    for ended in (at(5), at(-30), "N/A", "Unknown"):
        slurm.squeue = lists(f"4711|{name}|{ended}|None")
        assert isinstance(asked(slurm, tmp_path), Alive)
    slurm.squeue = lists(f"4711|{name}|{at(61)}|None")
    assert asked(slurm, tmp_path) == EndedJob("4711", name, "None")


def test_a_job_that_its_script_put_back_is_alive(tmp_path: Path, slurm: FakeSlurm) -> None:
    make_run(tmp_path)
    note(tmp_path, "requeue", cause="time", reason="", job="4711")
    slurm.squeue = lists(f"4711|COMPLETED|{at(5)}|None")
    assert isinstance(asked(slurm, tmp_path), Alive)
    slurm.squeue = lists(f"4711|TIMEOUT|{at(90)}|None")
    assert asked(slurm, tmp_path) == EndedJob("4711", "TIMEOUT", "None"), "it did not come back"


@pytest.mark.parametrize(
    "reply",
    [
        Reply("", "", DOWN),
        Reply("", "", "squeue did not answer in time"),
        Reply("", "", "squeue exited with code -9"),
        Reply("", "squeue: error: Zero Bytes", ""),
        Reply("garbage\n", "", ""),
        Reply("", "", "squeue cannot be started"),
    ],
)
def test_an_answer_that_is_missing_is_no_answer_however_long_the_ranks_are_silent(
    tmp_path: Path, slurm: FakeSlurm, reply: Reply
) -> None:
    slurm.squeue = reply
    assert isinstance(asked(slurm, make_run(tmp_path, silent_s=1e6)), UnknownJob)


@pytest.mark.parametrize("reply", [lists(), lists("12|RUNNING|N/A|None"), Reply("", "", NO_SUCH_JOB)])
def test_a_job_that_nobody_lists_has_ended_when_it_is_silent(tmp_path: Path, slurm: FakeSlurm, reply: Reply) -> None:
    slurm.squeue = reply
    assert isinstance(asked(slurm, make_run(tmp_path / "heard", silent_s=SILENT_S - 20)), UnknownJob)
    found = asked(slurm, make_run(tmp_path / "silent", silent_s=SILENT_S + 20))
    assert isinstance(found, EndedJob) and found.name == "GONE"


def test_a_job_just_submitted_that_nobody_lists_yet_is_not_lost(tmp_path: Path, slurm: FakeSlurm) -> None:
    make_run(tmp_path, ranks=0)
    slurm.squeue = Reply("", "", NO_SUCH_JOB)
    assert isinstance(asked(slurm, tmp_path), UnknownJob)


def test_a_job_that_waited_for_days_is_not_lost_by_one_answer_without_it(tmp_path: Path, slurm: FakeSlurm) -> None:
    make_run(tmp_path, ranks=0, silent_s=1e6)
    controller = Controller(slurm.clock, slurm.ask)
    answers = []
    for second in range(0, 165, 15):
        slurm.now = 1000.0 + second
        slurm.squeue = lists("4711|PENDING|N/A|Priority") if second == 0 else lists()
        answers.append(job_state_of(tmp_path, controller))
    assert isinstance(answers[0], Alive) and isinstance(answers[-1], EndedJob)
    assert [type(answer) for answer in answers[1:]] == [UnknownJob] * 7 + [EndedJob] * 3


def test_a_stale_answer_that_it_runs_keeps_it_alive(tmp_path: Path, slurm: FakeSlurm) -> None:
    """A restarted controller knows the queue of its last checkpoint: later, it says that the job has ended."""
    make_run(tmp_path, silent_s=1e6)
    note(tmp_path, JOB_OVER, job="4711", state="COMPLETED")
    slurm.squeue = lists("4711|RUNNING|N/A|None")
    assert isinstance(asked(slurm, tmp_path), Alive)


def test_the_accounting_proves_ends_but_not_those_that_slurm_may_take_back(tmp_path: Path, slurm: FakeSlurm) -> None:
    make_run(tmp_path)
    slurm.sacct = Reply(f"4711|TIMEOUT|{at(5)}|None\n", "", "")
    assert asked(slurm, tmp_path) == EndedJob("4711", "TIMEOUT", "None")
    slurm.sacct = Reply(f"4711|NODE_FAIL|{at(1000)}|None\n", "", "")
    assert isinstance(asked(slurm, tmp_path), UnknownJob), "the controller, which is down, may have put it back"
    slurm.squeue = lists()
    assert asked(slurm, tmp_path) == EndedJob("4711", "NODE_FAIL", "None"), (
        "the controller answers, and has no such job"
    )


def test_the_last_act_of_the_job_proves_its_end_whoever_answers(tmp_path: Path, slurm: FakeSlurm) -> None:
    make_run(tmp_path, silent_s=5, state="failed")
    note(tmp_path, JOB_OVER, job="4711", state="FAILED")
    assert asked(slurm, tmp_path) == EndedJob("4711", "FAILED", "as its own script says")
    note(tmp_path, "end", status="failed")
    assert isinstance(asked(slurm, tmp_path), EndedJob)


@pytest.mark.parametrize("what", ["another job", "heard since", "started since", "put back since"])
def test_the_last_act_proves_nothing_where_more_came_after_it(tmp_path: Path, slurm: FakeSlurm, what: str) -> None:
    make_run(tmp_path, silent_s=5)
    note(tmp_path, JOB_OVER, job="4710" if what == "another job" else "4711", state="FAILED")
    if what == "heard since":
        later = json.dumps({"rank": 0, "state": "running", "time": time.time() + 2})
        (tmp_path / "status" / "rank_0.json").write_text(later)
    elif what == "started since":
        note(tmp_path, RANKS, nodes=[])
    elif what == "put back since":
        note(tmp_path, "requeue", cause="failure", reason="", job="4711")
    assert isinstance(asked(slurm, tmp_path), UnknownJob)


def test_a_clock_that_is_ahead_is_heard_but_not_for_ever(tmp_path: Path, slurm: FakeSlurm) -> None:
    slurm.squeue = lists()
    found = asked(slurm, make_run(tmp_path, silent_s=-600.0))
    assert isinstance(found, UnknownJob) and "clock" in found.why
    assert last_sign(make_run(tmp_path, ranks=2, silent_s=-1e9)) == -math.inf


def test_signs_of_life_are_files_as_well_as_what_they_say(tmp_path: Path, slurm: FakeSlurm) -> None:
    slurm.squeue = lists()
    make_run(tmp_path, silent_s=1e6)
    file = tmp_path / "status" / "rank_0.json"
    os.utime(file)
    assert isinstance(asked(slurm, tmp_path), UnknownJob), "the clock of its node is behind"
    file.write_text("{")
    os.utime(file, (0, 0))
    assert isinstance(asked(slurm, tmp_path), EndedJob)
    note(tmp_path, RANKS, nodes=[])
    assert isinstance(asked(slurm, tmp_path), UnknownJob)


def test_a_submission_whose_answer_is_missing_is_unknown_while_it_may_start(tmp_path: Path, slurm: FakeSlurm) -> None:
    assert isinstance(job_state_of(make_run(tmp_path, None, ranks=0), Controller(slurm.clock, slurm.ask)), UnknownJob)
    assert job_state_of(make_run(tmp_path, None, silent_s=SILENT_S + 5), Controller(slurm.clock, slurm.ask)) is None
    assert not slurm.asked, "without a number there is nothing to ask for"


def test_a_run_without_a_job_has_no_answer(tmp_path: Path) -> None:
    assert job_state_of(tmp_path) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "5",
        '{"job_id": "--help"}',
        '{"job_id": [1]}',
        '{"job_id": ""}',
        '{"token": 1}',
        "\0",
        "[" * 100_000,
    ],
)
def test_a_damaged_note_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "slurm.json").write_text(text)
    with pytest.raises(DataError, match=r"slurm\.json"):
        job_state_of(tmp_path)
