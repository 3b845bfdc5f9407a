"""What `gnnexp status` shows of ranks that ended without a last word: never that they run."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from gnnexp.files.pulse import process_table
from gnnexp.launchers.living import GONE, ranks_of
from gnnexp.record.attempts import note


def _write_rank(run_dir: Path, rank: int, table: str, silent_s: float = 0.0, **more: object) -> None:
    (run_dir / "status").mkdir(exist_ok=True)
    words = {
        "rank": rank,
        "host": "pod",
        "pid": os.getpid(),
        "table": table,
        "state": "running",
        "time": time.time() - silent_s,
        **more,
    }
    (run_dir / "status" / f"rank_{rank}.json").write_text(json.dumps(words))


def _shown(run_dir: Path) -> list[tuple[str, str]]:
    return [(rank.state, rank.reason) for rank in ranks_of(run_dir)]


def test_after_a_recorded_end_no_rank_runs_and_the_cause_is_named(tmp_path: Path) -> None:
    _write_rank(tmp_path, 0, "pod/another")
    _write_rank(tmp_path, 1, process_table())
    _write_rank(tmp_path, 2, "pod/another", state="failed", reason="MemoryError: no room")
    note(tmp_path, "start", ranks=3)
    assert _shown(tmp_path)[:2] == [("running", ""), ("running", "")]
    note(tmp_path, "end", status="failed", reason="rank 1 on pod was ended by SIGKILL in phase backward")
    assert _shown(tmp_path) == [
        (GONE, "it ended without a last word"),
        (GONE, "was ended by SIGKILL in phase backward"),
        ("failed", "MemoryError: no room"),
    ]


def test_a_rank_that_gives_no_sign_of_life_is_gone_before_its_end_is_recorded(tmp_path: Path) -> None:
    _write_rank(tmp_path, 0, "pod/another", silent_s=200.0)
    _write_rank(tmp_path, 1, "pod/another", silent_s=10.0)
    _write_rank(tmp_path, 2, process_table(), silent_s=1e6)  # this process is younger: it only has the rank's number
    assert [state for state, _ in _shown(tmp_path)] == [GONE, "running", GONE]
    note(tmp_path, "end", status="failed", reason="rank 1 on pod vanished")
    note(tmp_path, "start", ranks=3)
    assert [state for state, _ in _shown(tmp_path)] == [GONE, "running", GONE], "an earlier end says nothing"


def test_a_submission_ends_no_rank(tmp_path: Path) -> None:
    _write_rank(tmp_path, 0, "pod/another")
    note(tmp_path, "end", status="submitted")
    assert _shown(tmp_path) == [("running", "")]
