"""A line of an external command is recorded as it stands, or named with all that is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnexp.errors import DataError
from gnnexp.measure.record import TIME_NAMES, TRAFFIC_NAMES
from gnnexp.paradigms.external.lines import NAMES, Lines

FILE = Path("epochs_1.jsonl")


def read(*lines: object, first: int = 0, elapsed_s: float = 100.0):
    found = Lines(FILE, first)
    return [found.read(line if isinstance(line, bytes) else json.dumps(line).encode(), elapsed_s) for line in lines]


def wrong(*lines: object, **options: float) -> str:
    with pytest.raises(DataError) as caught:
        read(*lines, **options)
    return str(caught.value)


def test_what_is_reported_has_the_names_of_the_record() -> None:
    line = {
        "epoch": 0,
        "epoch_s": 2,
        "forward_s": 0.5,
        "loss": 1.5,
        "acc/val": 0.5,
        "hits@10/test": 1,
        "bytes_gradients": 7,
        "device_peak_bytes": 9,
    }
    (found,) = read(line)
    assert found.epoch == 0 and found.metrics == {
        "time/epoch_s": 2,
        "time/forward_s": 0.5,
        "loss/train": 1.5,
        "acc/val": 0.5,
        "hits@10/test": 1,
        "comm/bytes_gradients": 7,
        "memory/device_peak_bytes": 9,
    }


def test_every_name_is_one_of_the_record() -> None:
    named = {name for name in NAMES.values() if name.startswith(("time/", "comm/"))}
    assert named <= TIME_NAMES | TRAFFIC_NAMES and len(set(NAMES.values())) == len(NAMES)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"epoch 0 done", "must be a JSON object"),
        (b"[1]", "must be a JSON object"),
        (b"\xff\xfe", "must be a JSON object"),
        (b"[" * 5000, "must be a JSON object"),
        (b'{"epoch": 0, "loss": "\\ud800"}', "must be a"),
        ({}, "number of its epoch"),
        ({"epoch": "0"}, "number of its epoch"),
        ({"epoch": True}, "number of its epoch"),
        ({"epoch": 1}, "must be 0"),
        ({"epoch": -1}, "must be 0"),
        ({"epoch": 0, "acc_val": 0.5}, "acc/val"),
        ({"epoch": 0, "losss": 0.5}, "did you mean loss"),
        ({"epoch": 0, "time/epoch_s": 0.5}, "did you mean"),
        ({"epoch": 0, "acc/val": 93.4}, "not a percentage"),
        ({"epoch": 0, "acc/val": float("nan")}, "must be finite"),
        ({"epoch": 0, "loss": None}, "must be a number"),
        ({"epoch": 0, "loss": True}, "must be a number"),
        ({"epoch": 0, "loss": 10**400}, "must be finite"),
        ({"epoch": 0, "load_s": -1}, "0 or more"),
        ({"epoch": 0, "bytes_features": 1.5}, "whole number"),
        ({"epoch": 0, "bytes_features": 1 << 70}, "whole number"),
        ({"epoch": 0, "epoch_s": 400}, "must be in seconds"),
    ],
)
def test_wrong_lines_are_named(line: object, said: str) -> None:
    assert said in wrong(line) and "line 1" in wrong(line)


def test_all_problems_of_a_line_at_once() -> None:
    said = wrong({"epoch": 0}, {"epoch": 5, "acc/val": 93, "los": 1})
    assert all(word in said for word in ("must be 1", "percentage", "los", "line 2")) and "line 1" not in said


def test_epochs_come_once_and_in_order() -> None:
    assert [found.epoch for found in read({"epoch": 0}, {"epoch": 1}, {"epoch": 2})] == [0, 1, 2]
    assert "must be 1" in wrong({"epoch": 0}, {"epoch": 0})
    assert "must be 2" in wrong({"epoch": 0}, {"epoch": 1}, {"epoch": 0})


def test_a_resumed_command_begins_at_most_after_the_recorded_epochs() -> None:
    assert read({"epoch": 2}, {"epoch": 3}, first=3)[0].epoch == 2 and read({"epoch": 3}, first=3)
    assert "from 0 to 3" in wrong({"epoch": 4}, first=3)


def test_epochs_together_take_no_more_time_than_has_passed() -> None:
    """Milliseconds as seconds: a single epoch is below the time since the start, all of them are not."""
    lines = [{"epoch": epoch, "epoch_s": 3} for epoch in range(6)]
    assert "line 6" in wrong(*lines, elapsed_s=15.0)
    assert len(read(*lines, elapsed_s=17.9)) == 6


def test_a_loss_that_is_not_finite_is_left_to_the_run() -> None:
    (found,) = read(b'{"epoch": 0, "loss": NaN}')
    assert found.metrics["loss/train"] != found.metrics["loss/train"]
