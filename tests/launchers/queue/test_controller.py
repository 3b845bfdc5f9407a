"""When SLURM is asked, for what, and what counts as its answer."""

from __future__ import annotations

import math

import pytest
from fake_slurm import DOWN, NO_SUCH_JOB, FakeSlurm, lists

from gnnexp.launchers.queue.commands import Reply
from gnnexp.launchers.queue.controller import Controller, ListedJob, NoAnswer, UnlistedJob


@pytest.fixture
def slurm() -> FakeSlurm:
    return FakeSlurm()


@pytest.fixture
def controller(slurm: FakeSlurm) -> Controller:
    return Controller(slurm.clock, slurm.ask)


def test_one_squeue_for_all_jobs_at_most_every_15_s(slurm: FakeSlurm, controller: Controller) -> None:
    jobs = ["1", *(f"2_{task}" for task in range(60)), "3"]
    slurm.squeue = lists("1|RUNNING|N/A|None", "2_[0-59]|PENDING|N/A|Priority", "3|RUNNING|N/A|None")
    controller.watch(jobs)
    for second in range(60):
        slurm.now = 1000.0 + second
        assert all(isinstance(controller.find(job), ListedJob) for job in jobs)
    assert slurm.times() == [1000.0, 1015.0, 1030.0, 1045.0]
    assert [command[0] for _, command in slurm.asked] == ["squeue"] * 4, "nothing is left for sacct"
    (asked,) = {command[command.index("-j") + 1] for _, command in slurm.asked}
    assert asked == "1,2,3", "an array is asked for once"


def test_while_nobody_answers_the_waits_grow_to_a_minute(slurm: FakeSlurm, controller: Controller) -> None:
    for second in range(300):
        slurm.now = 1000.0 + second
        assert isinstance(controller.find("1"), NoAnswer)
    assert slurm.times() == [1000.0, 1015.0, 1045.0, 1105.0, 1165.0, 1225.0, 1285.0]
    slurm.squeue = lists("1|RUNNING|N/A|None")
    for second in range(300, 380):
        slurm.now = 1000.0 + second
        controller.find("1")
    assert slurm.times()[7:] == [1345.0, 1360.0, 1375.0], "and shrink at once"


def test_a_late_answer_counts_from_its_end(slurm: FakeSlurm, controller: Controller) -> None:
    def late() -> Reply:
        slurm.now += 60.0
        return Reply("", "", "squeue did not answer in time")

    slurm.squeue = late
    controller.find("1")
    controller.find("1")
    assert slurm.times() == [1000.0]
    slurm.now += 15.0
    controller.find("1")
    assert slurm.times() == [1000.0, 1075.0]


@pytest.mark.parametrize(
    "reply",
    [
        Reply("", "", DOWN),
        Reply("", "", "squeue exited with code 1"),
        Reply("", "", "squeue did not answer in time"),
        Reply("1|COMPLETED|N/A|None\n", "", "squeue exited with code 1"),  # half an answer
        Reply("", "slurm_load_jobs error: Zero Bytes were transmitted or received", ""),  # exit 0 all the same
        Reply("<html>Bad Gateway</html>\n", "", ""),
        Reply("\0\0\0\n", "", ""),
        Reply("2|RUNNING|N/A|None\nx\n", "", ""),
        Reply("1|COMPL", "", ""),
        Reply("x|RUNNING|N/A|None", "", NO_SUCH_JOB),
        Reply("", "", "squeue: error: Invalid job id: 1"),
    ],
)
def test_what_is_no_answer(slurm: FakeSlurm, controller: Controller, reply: Reply) -> None:
    slurm.squeue = reply
    found = controller.find("1")
    assert isinstance(found, NoAnswer) and found.why


def test_no_such_job_is_an_answer_about_one_job_alone(slurm: FakeSlurm, controller: Controller) -> None:
    slurm.squeue = Reply("", "", NO_SUCH_JOB)
    assert controller.find("1") == UnlistedJob(math.inf)
    slurm.now += 15.0
    assert isinstance(controller.find("2"), NoAnswer), "of two, nobody knows which"


def test_what_is_said_beside_an_answer_does_not_spoil_it(slurm: FakeSlurm, controller: Controller) -> None:
    slurm.squeue = Reply("1|RUNNING|N/A|None\n", "squeue: warning: old configuration", "")
    assert isinstance(controller.find("1"), ListedJob) and not controller.news()


def test_a_job_that_is_new_is_asked_for_when_the_time_has_come(slurm: FakeSlurm, controller: Controller) -> None:
    slurm.squeue = lists("1|RUNNING|N/A|None", "2|PENDING|N/A|None")
    controller.find("1")
    assert isinstance(controller.find("2"), NoAnswer) and not controller.news(), "it was not asked for"
    slurm.now += 15.0
    assert isinstance(controller.find("2"), ListedJob)


def test_after_a_submission_nobody_asks_for_15_s(slurm: FakeSlurm, controller: Controller) -> None:
    slurm.squeue = lists()
    controller.submitted(["1"])
    slurm.now += 14.0
    assert isinstance(controller.find("1"), NoAnswer) and not slurm.asked
    slurm.now += 1.0
    assert controller.find("1") == UnlistedJob(15.0), "SLURM took it 15 s ago"


def test_a_job_that_was_forgotten_is_not_asked_for(slurm: FakeSlurm, controller: Controller) -> None:
    slurm.squeue = lists("1|RUNNING|N/A|None", "2|RUNNING|N/A|None")
    controller.watch(["1", "2"])
    controller.forget("1")
    controller.find("2")
    assert slurm.asked[0][1][slurm.asked[0][1].index("-j") + 1] == "2"


def test_the_accounting_knows_what_the_controller_has_forgotten(slurm: FakeSlurm, controller: Controller) -> None:
    slurm.squeue = lists("1|RUNNING|N/A|None")
    slurm.sacct = Reply("2|FAILED|2026-11-24T19:05:45|None\n3|RUNNING|Unknown|None\n", "", "")
    controller.watch(["1", "2", "3", "4"])
    found = {job: controller.find(job) for job in ("1", "2", "3", "4")}
    assert isinstance(found["2"], ListedJob) and found["2"].confirmed and found["2"].line.name == "FAILED"
    assert isinstance(found["3"], UnlistedJob), "a lost job runs for ever in the accounting"
    assert isinstance(found["4"], UnlistedJob)
    assert [command[5] for _, command in slurm.asked if command[0] == "sacct"] == ["2,3,4"]


def test_the_accounting_alone_knows_ends_only(slurm: FakeSlurm, controller: Controller) -> None:
    slurm.sacct = Reply("1|COMPLETED|2026-11-24T19:05:45|None\n2|RUNNING|Unknown|None\n", "", "")
    controller.watch(["1", "2"])
    first, second = controller.find("1"), controller.find("2")
    assert isinstance(first, ListedJob) and not first.confirmed and isinstance(second, NoAnswer)


def test_an_outage_is_said_once_and_so_is_its_end(slurm: FakeSlurm, controller: Controller) -> None:
    said = []
    jobs = [str(job) for job in range(1, 9)]
    running = lists(*(f"{job}|RUNNING|N/A|None" for job in jobs))
    for second in range(400):
        slurm.now = 1000.0 + second
        slurm.squeue = Reply("", "", DOWN) if 100 < second < 200 else running
        for job in jobs:
            controller.find(job)
        said += [news] if (news := controller.news()) else []
    assert len(said) == 2 and DOWN in said[0] and "unknown" in said[0] and said[1] == "SLURM answers again"
