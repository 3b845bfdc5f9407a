"""Ranks that meet late or not at all: the record names who is at fault, and the logs say where each one was."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from gnnexp.components.schema import HardwareConfig
from gnnexp.launchers.base import Outcome
from gnnexp.launchers.local import LocalLauncher
from gnnexp.launchers.status import Status, hanging

pytestmark = pytest.mark.timeout(120)
_SUPPORT = Path(__file__).parents[1] / "support"


def launch(run_dir: Path, behaviours: list[str], monkeypatch: pytest.MonkeyPatch, timeout_s: float = 3.0) -> Outcome:
    monkeypatch.setenv("PYTHONPATH", str(_SUPPORT))
    monkeypatch.setattr("gnnexp.launchers.watch.GRACE_S", 4.0)
    (run_dir / "behaviour.json").write_text(json.dumps({"behaviours": behaviours, "timeout_s": timeout_s}))
    (run_dir / "job.json").write_text("{}")
    with closing(LocalLauncher("meeting_worker")) as launcher:
        return launcher.launch(run_dir, HardwareConfig(workers=len(behaviours), timeout_s=timeout_s))


def test_all_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = launch(tmp_path, ["meet", "meet"], monkeypatch, timeout_s=60.0)
    assert outcome.status == "finished", outcome
    assert not (tmp_path / "private").exists()


def test_a_rank_that_does_something_else_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one's reason is said too, and the log of the one that hangs has its stacks."""
    outcome = launch(tmp_path, ["meet", "sleep"], monkeypatch)
    assert outcome.kind == "hang", outcome
    assert "rank 1" in outcome.reason.partition(";")[0] and "hangs in phase start" in outcome.reason
    assert "rank 0" in outcome.reason.partition(";")[2] and "no answer of another rank within 3 s" in outcome.reason
    log = (tmp_path / "logs" / "rank_1.log").read_text()
    assert "in _meet" in log and 'meeting_worker.py"' in log


@pytest.mark.slow
def test_a_rank_that_waits_for_an_answer_does_not_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both wait for each other in different exchanges: the one that gave up says why."""
    outcome = launch(tmp_path, ["meet", "wait"], monkeypatch)
    assert outcome.kind == "error", outcome
    assert "rank 0" in outcome.reason and "no answer of another rank within 3 s" in outcome.reason
    assert "hangs" not in outcome.reason


def test_a_rank_between_two_signs_of_life_is_not_silent() -> None:
    """Signs come every 2 s, also where half of `hardware.timeout_s` is less."""
    gave_up = Status(0, "failed", 99.0, reason="NoAnswerError: no answer of another rank within 3 s: Wait timeout")
    waits = Status(1, "running", 98.0, exchanging=True, since=96.0)
    assert hanging([gave_up, waits], 100.0, timeout_s=3.0) is None
    frozen = hanging([gave_up, waits], 101.5, timeout_s=3.0)
    assert frozen is not None and frozen.status.rank == 1
