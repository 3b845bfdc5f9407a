"""Runs whose ranks another program started: which ranks are alive, and how they ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gnnexp.errors import ConfigError
from gnnexp.files.pulse import process_table
from gnnexp.launchers.elsewhere import end_of_ranks, standing
from gnnexp.launchers.living import check_silent
from gnnexp.record.attempts import note

ELSEWHERE = "pod/another"


def write_rank(
    run_dir: Path, rank: int, state: str, silent_s: float = 0.0, table: str = ELSEWHERE, **more: object
) -> None:
    (run_dir / "status").mkdir(exist_ok=True)
    words = {
        "rank": rank,
        "host": "pod",
        "pid": os.getpid(),
        "table": table,
        "state": state,
        "phase": "fb",
        "time": time.time() - silent_s,
        **more,
    }
    (run_dir / "status" / f"rank_{rank}.json").write_text(json.dumps(words))


def test_a_rank_that_gave_a_sign_of_life_lately_is_alive(tmp_path: Path) -> None:
    write_rank(tmp_path, 0, "running", silent_s=60)
    with pytest.raises(ConfigError, match="rank 0 on pod gave a sign of life 60 s ago"):
        check_silent(tmp_path)
    write_rank(tmp_path, 0, "running", silent_s=200)
    check_silent(tmp_path)


def test_a_sign_of_life_from_after_a_clock_was_set_back_says_so(tmp_path: Path) -> None:
    """It may be of a living rank whose machine has a wrong clock, so the user decides, and reads how."""
    write_rank(tmp_path, 0, "running", silent_s=-3600)
    with pytest.raises(ConfigError, match=r"rank 0 on pod .* 3600 s ahead of the clock(.|\n)*remove .*rank_0.json"):
        check_silent(tmp_path)
    write_rank(tmp_path, 0, "running", silent_s=-60)
    with pytest.raises(ConfigError, match="a sign of life 0 s ago"):
        check_silent(tmp_path)


@pytest.mark.interpreter
def test_a_rank_of_this_machine_is_alive_while_its_process_is(tmp_path: Path) -> None:
    write_rank(tmp_path, 0, "running", silent_s=0, table=process_table())
    with pytest.raises(ConfigError, match="rank 0 on pod runs"):
        check_silent(tmp_path)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    write_rank(tmp_path, 0, "running", table=process_table(), pid=ended.pid)
    check_silent(tmp_path)
    write_rank(tmp_path, 0, "running", silent_s=1e6, table=process_table())
    check_silent(tmp_path)  # this process is younger than the sign of life: it only has the rank's number


def test_a_rank_that_vanished_is_named(tmp_path: Path) -> None:
    write_rank(tmp_path, 0, "running", silent_s=200)
    write_rank(tmp_path, 1, "failed", silent_s=150, reason="DistBackendError: connection closed by peer")
    outcome = end_of_ranks(tmp_path, 2)
    assert (outcome.status, outcome.kind) == ("failed", "killed") and "rank 0 on pod vanished" in outcome.reason


def test_ranks_that_were_ended_for_a_failure_are_not_its_cause(tmp_path: Path) -> None:
    """torchrun ends the others at the first failure: their last signs of life are older than its words."""
    write_rank(tmp_path, 1, "failed", silent_s=150, reason="ConfigError: WORLD_SIZE=3", kind="mistake", exit_code=2)
    write_rank(tmp_path, 0, "running", silent_s=150.1)
    write_rank(tmp_path, 2, "running", silent_s=150.9)
    outcome = end_of_ranks(tmp_path, 3)
    assert (outcome.exit_code, outcome.reason, outcome.kind) == (2, "ConfigError: WORLD_SIZE=3", "mistake")
    write_rank(tmp_path, 2, "running", silent_s=160)
    assert "rank 2 on pod vanished" in end_of_ranks(tmp_path, 3).reason, "it had gone long before"


def test_a_rank_that_never_started_is_named_only_if_nothing_else_failed(tmp_path: Path) -> None:
    write_rank(tmp_path, 0, "failed", reason="DistStoreError: timed out, 1 of 2 clients joined")
    assert "rank 1 gave no sign of life" in end_of_ranks(tmp_path, 2).reason
    write_rank(tmp_path, 0, "failed", reason="MemoryError: no room")
    assert "rank 0 on pod failed in phase fb: MemoryError" in end_of_ranks(tmp_path, 2).reason


def test_ranks_that_were_asked_to_stop_are_interrupted(tmp_path: Path) -> None:
    write_rank(tmp_path, 0, "stopped", reason="SIGTERM")
    write_rank(tmp_path, 1, "running", silent_s=200)
    assert end_of_ranks(tmp_path, 2).kind == "interrupted"


def test_the_state_of_a_prepared_run_is_told(tmp_path: Path) -> None:
    note(tmp_path, "prepared", ranks=1)
    assert standing(tmp_path).startswith("prepared")
    write_rank(tmp_path, 0, "running")
    assert standing(tmp_path) == "running"
    write_rank(tmp_path, 0, "finished")
    assert "gnnexp finalize" in standing(tmp_path)
    note(tmp_path, "end", status="finished")
    assert standing(tmp_path) == ""
