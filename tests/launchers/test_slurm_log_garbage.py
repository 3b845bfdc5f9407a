"""`srun`'s log is text that anything may have written to: reading it ends nothing and takes no memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnexp.launchers.queue.slurm_jobs import ended_with_step, exited

LOG = "srun: error: n1: tasks {}: Terminated\nsrun: error: n1: tasks {}: Exited with exit code 3\n"


def said(tmp_path: Path, ranks: str) -> tuple[set[int], dict[int, int]]:
    (tmp_path / "slurm").mkdir(exist_ok=True)
    (tmp_path / "slurm" / "12_0_log.err").write_text(LOG.format(ranks, ranks))
    return ended_with_step(tmp_path, "12"), exited(tmp_path, "12")


def test_lists_of_ranks(tmp_path: Path) -> None:
    assert said(tmp_path, "0,2-3") == ({0, 2, 3}, {0: 3, 2: 3, 3: 3})


@pytest.mark.parametrize("ranks", ["1-2-3", "", ",", "5-1", "0-999999999999", "-", "9" * 30, "0-999999," * 50])
def test_garbage_is_bounded(tmp_path: Path, ranks: str) -> None:
    ended, codes = said(tmp_path, ranks)
    assert len(ended) <= 1 << 16 and len(codes) <= 1 << 16


def test_no_log_or_one_that_is_none(tmp_path: Path) -> None:
    assert ended_with_step(tmp_path, "12") == set()
    (tmp_path / "slurm" / "12_0_log.err").mkdir(parents=True)
    assert exited(tmp_path, "12") == {}
