"""Lines of squeue and sacct, and everything that is none."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.launchers.queue.answers import ALIVE, ENDED
from gnnexp.launchers.queue.controller import JobLine, Listing, is_job_id, read_lines

# What squeue 22.05 printed of an array of eight, two at a time.
ARRAY = """1|COMPLETED|2026-11-24T19:05:45|None
2_[5-7%2]|PENDING|N/A|JobArrayTaskLimit
2_3|RUNNING|N/A|None
2_0|FAILED|2026-11-24T19:06:01|NonZeroExitCode
"""


def test_tasks_of_an_array_have_states_of_their_own() -> None:
    lines, garbage = read_lines(ARRAY)
    listing = Listing(reversed(lines))
    assert not garbage
    states = {job: line.name for job in ("1", "2_0", "2_3", "2_5", "2_6", "2_7") if (line := listing.of(job))}
    assert states == {
        "1": "COMPLETED",
        "2_0": "FAILED",
        "2_3": "RUNNING",
        "2_5": "PENDING",
        "2_6": "PENDING",
        "2_7": "PENDING",
    }
    assert [listing.of(job) for job in ("2", "2_1", "2_4", "2_8", "1_0", "12", "3")] == [None] * 7
    ended = listing.of("1")
    assert ended is not None and time.localtime(ended.ended_at or 0)[:6] == (2026, 11, 24, 19, 5, 45)


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("7_[0]", [0]),
        ("7_[1-3]", [1, 2, 3]),
        ("7_[0-6:3]", [0, 3, 6]),
        ("7_[1,4-5,9%1]", [1, 4, 5, 9]),
        ("7_4", [4]),
    ],
)
def test_expressions_of_tasks(text: str, tasks: list[int]) -> None:
    listing = Listing(read_lines(f"{text}|PENDING|N/A|None")[0])
    assert [task for task in range(12) if listing.of(f"7_{task}")] == tasks
    assert listing.of("7") is None


def test_a_range_of_huge_numbers_costs_nothing() -> None:
    listing = Listing(read_lines("7_[0-999999999999999999]|PENDING|N/A|None")[0])
    assert listing.of("7_123456789012") and not listing.of("8_1")


@pytest.mark.parametrize(
    "text",
    [
        "4711",
        "4711|RUNNING",
        "4711|RUNNING|N/A",
        "|RUNNING|N/A|None",
        "x|RUNNING|N/A|None",
        "4711||N/A|None",
        "4711|running|N/A|None",
        "4711|R U N|N/A|None",
        "-1|RUNNING|N/A|None",
        "4711_[1-3,...]|PENDING|N/A|None",
        "4711_[1-]|PENDING|N/A|None",
        "4711_[]|PENDING|N/A|None",
        f"{'9' * 5000}|RUNNING|N/A|None",
        "٤٧١١|RUNNING|N/A|None",
        "<html>502 Bad Gateway</html>",
        "\x00\x01\x02",
    ],
)
def test_what_is_no_line_is_garbage(text: str) -> None:
    lines, garbage = read_lines(text)
    assert not lines and len(garbage) == 1 and garbage[0].isprintable()


@given(st.text())
def test_no_text_is_too_strange(text: str) -> None:
    lines, garbage = read_lines(text)
    assert len(lines) + len(garbage) <= len(text.splitlines())
    Listing(lines).of("1")


@given(st.binary())
def test_nor_are_bytes(raw: bytes) -> None:
    read_lines(raw.decode(errors="replace"))


@given(st.lists(st.sampled_from([*"1_[]-,:%+|0", "RUNNING", "N/A"]), max_size=20))
def test_nor_is_something_like_a_line(parts: list[str]) -> None:
    lines, _ = read_lines("".join(parts))
    Listing(lines).of("1_1")


def test_lines_of_clusters_and_words_of_sacct() -> None:
    lines, garbage = read_lines(
        "CLUSTER: one\n\n4711|CANCELLED by 1000|Unknown|None\n4712|OUT_OF_ME+|Unknown|\n12+0|RUNNING|N/A|x|y"
    )
    assert not garbage
    assert [(line.job, line.name, line.reason, line.ended_at) for line in lines] == [
        (4711, "CANCELLED", "None", None),
        (4712, "OUT_OF_ME", "", None),
        (12, "RUNNING", "x|y", None),
    ]


def test_of_two_lines_about_a_job_the_living_one_counts() -> None:
    ended, alive = JobLine(1, None, "NODE_FAIL", "", None), JobLine(1, None, "PENDING", "", None)
    assert Listing([ended, alive]).of("1") is Listing([alive, ended]).of("1") is alive
    assert Listing([ended]).of("1") is ended


def test_numbers_of_jobs() -> None:
    assert all(is_job_id(text) for text in ("1", "4711", "4711_0", "4711_12"))
    assert not any(is_job_id(text) for text in ("", "-1", "--help", "4711_", "_1", "1_2_3", "1 2", "1\n", "9" * 30))


def test_the_words_of_the_manual_are_all_decided() -> None:
    """Of squeue's manual (22.05); a federation's REVOKED is unknown, because another cluster has the job."""
    manual = {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "CONFIGURING",
        "COMPLETING",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PENDING",
        "PREEMPTED",
        "RUNNING",
        "RESV_DEL_HOLD",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "REQUEUED",
        "RESIZING",
        "REVOKED",
        "SIGNALING",
        "SPECIAL_EXIT",
        "STAGE_OUT",
        "STOPPED",
        "SUSPENDED",
        "TIMEOUT",
    }
    assert manual - ALIVE - ENDED == {"REVOKED"} and not ALIVE & ENDED
