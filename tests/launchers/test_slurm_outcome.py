"""Who is named when a job of SLURM breaks: not a rank that SLURM ended because another one had gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnexp.launchers.queue.answers import EndedJob
from gnnexp.launchers.queue.following import outcome_of
from gnnexp.launchers.queue.slurm_jobs import ended_with_step, exited
from gnnexp.launchers.status import Death, judge

SRUN = """srun: error: n1: task 1: Killed
srun: launch/slurm: _step_signal: Terminating StepId=23.0
slurmstepd-n1: error: *** STEP 23.0 ON n1 CANCELLED AT 2026-11-21T18:40:42 ***
srun: error: n1: task 0: Exited with exit code 1
srun: error: n2: tasks 2-3,5: Terminated
"""


def write(run_dir: Path, rank: int, time: float, state: str = "running", reason: str = "") -> None:
    (run_dir / "status").mkdir(parents=True, exist_ok=True)
    status = {
        "rank": rank,
        "host": "n1" if rank < 2 else "n2",
        "state": state,
        "time": time,
        "phase": "wait",
        "reason": reason,
    }
    (run_dir / "status" / f"rank_{rank}.json").write_text(json.dumps(status))


def test_srun_says_whom_it_ended(tmp_path: Path) -> None:
    assert ended_with_step(tmp_path, "23") == set()
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "23_0_log.err").write_text(SRUN)
    assert ended_with_step(tmp_path, "23") == {2, 3, 5} and ended_with_step(tmp_path, "24") == set()


def test_the_killed_rank_is_named_although_another_was_last_heard_before(tmp_path: Path) -> None:
    write(tmp_path, 0, 12.0, "failed", "Connection closed by peer [127.0.0.1]:1")
    write(tmp_path, 1, 10.2)
    write(tmp_path, 2, 12.1, "failed", "Connection closed by peer [127.0.0.1]:1")
    write(tmp_path, 3, 10.1)
    state = EndedJob("23", "FAILED")
    assert "rank 3 on n2 vanished" in outcome_of(tmp_path, state, 4).reason, "nobody knows better"
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "23_0_log.err").write_text(SRUN)
    assert "rank 1 on n1 vanished" in outcome_of(tmp_path, state, 4).reason
    write(tmp_path, 1, 12.0, "failed", "Connection closed by peer [127.0.0.1]:1")
    assert "rank 3 on n2 vanished" in outcome_of(tmp_path, state, 4).reason, "scancel and its like end all"


@pytest.mark.parametrize(
    "reason",
    [
        "DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown?",
        "DistStoreError: wait timeout after 60000ms, keys: /default_pg/0",
        "RuntimeError: [tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1",
    ],
)
def test_a_rank_that_lost_its_peer_is_not_the_cause(tmp_path: Path, reason: str) -> None:
    """Rank 0 serves torch's store: whoever forms a group when rank 0 is killed hears of it from the store."""
    write(tmp_path, 0, 12.0)
    write(tmp_path, 1, 12.0, "failed", reason)
    killed = judge(tmp_path, [Death(0, -9, 12.3), Death(1, 1, 12.2)])
    assert killed.kind == "killed" and killed.reason == "rank 0 on n1 was ended by SIGKILL in phase wait"
    assert judge(tmp_path, [Death(1, 1, 12.2)]).reason.endswith(reason), "nobody else has failed"


def test_what_a_rank_says_of_itself_comes_before_those_that_were_ended_for_it(tmp_path: Path) -> None:
    """Their last heartbeat is older than its last word."""
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "23_0_log.err").write_text(
        "srun: error: n1: task 0: Exited with exit code 1\nsrun: error: n1: task 1: Terminated\n"
    )
    write(tmp_path, 0, 12.0, "failed", "RuntimeError: address already in use")
    write(tmp_path, 1, 10.2)
    assert "address already in use" in outcome_of(tmp_path, EndedJob("23", "FAILED"), 2).reason


def test_a_rank_that_left_without_a_word_is_named_with_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "23_0_log.err").write_text(
        "srun: error: n1: tasks 0,2: Exited with exit code 1\nsrun: error: n1: task 1: Terminated\n"
    )
    assert exited(tmp_path, "23") == {0: 1, 2: 1}
    write(tmp_path, 1, 10.2)
    assert "rank 0 exited with code 1" in outcome_of(tmp_path, EndedJob("23", "FAILED"), 3).reason
