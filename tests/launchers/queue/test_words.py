"""Times, memory and GPUs as sbatch's manual writes them."""

from __future__ import annotations

import pytest

from gnnexp.launchers.queue.words import gpus_by_type, gpus_in, megabytes_of, minutes_of


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        (90, 90.0),
        ("90", 90.0),
        ("90:30", 90.5),
        ("2:30:00", 150.0),
        ("1-12", 2160.0),
        ("1-12:30", 2190.0),
        ("1-00:00:00", 1440.0),
        ("", None),
        ("soon", None),
        ("1-", None),
        ("1:2:3:4", None),
        ("-5", None),
        ("٣", None),
    ],
)
def test_a_time_is_read_as_sbatch_reads_it(text: int | str, minutes: float | None) -> None:
    assert minutes_of(text) == minutes


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [
        (2, 2048.0),
        (0.5, 512.0),
        ("100G", 102400.0),
        ("1T", 1048576.0),
        ("64000", 64000.0),
        ("100GB", 102400.0),
        ("512k", 0.5),
        ("much", None),
        ("-1G", None),
        ("", None),
    ],
)
def test_memory_is_read_as_sbatch_reads_it(text: float | str, megabytes: float | None) -> None:
    assert megabytes_of(text) == megabytes


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:4", 4),
        ("gpu:a100:4", 4),
        ("gpu:a100:2,gpu:v100:1", 3),
        ("gpu", 1),
        ("gpu:a100", 1),
        ("lustre:1", 0),
        ("gpu:a100:4(S:0-3),lustre:1", 4),
        ("(null)", 0),
        ("gres/gpu:2", 2),
        ("", 0),
        ("mygpu:3", 0),
    ],
)
def test_gpus_are_counted_among_generic_resources(text: str, gpus: int) -> None:
    assert gpus_in(text) == gpus


@pytest.mark.parametrize(("text", "gpus"), [("4", 4), ("a100:4", 4), ("a100:2,v100:1", 3), ("many", None), ("", None)])
def test_gpus_are_counted_by_type(text: str, gpus: int | None) -> None:
    assert gpus_by_type(text) == gpus
