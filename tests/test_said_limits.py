"""What SECURITY.md says that gnnexp does not do: it is so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_folder import write_epochs, write_job, write_result

from gnnexp.cli.main import run_command

ESCAPE = "\x1b]0;title of somebody else\x07"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "gift" / "one"
    write_job(run)
    write_epochs(run, 3)
    write_result(run)
    return run


def test_numbers_of_a_forged_record_are_shown(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.loads(line) for line in (run / "epochs.jsonl").read_text().splitlines()]
    for line in lines:
        line["metrics"] |= {"acc/val": 0.9876, "acc/test": 0.9876}
    (run / "epochs.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**result, "epochs": lines, "summary": {"acc/test": 0.9876}}))
    assert run_command(["report", str(run)]) == 0
    assert "98.76" in capsys.readouterr().out


def test_logs_are_printed_as_they_are(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "logs" / "rank_0.log").write_text(f"{ESCAPE}\n")
    assert run_command(["logs", str(run)]) == 0
    assert ESCAPE in capsys.readouterr().out


def test_records_are_printed_as_they_are(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**result, "status": "failed", "reason": ESCAPE}))
    assert run_command(["status", str(run)]) == 1
    assert "\x1b]0;title of somebody else" in capsys.readouterr().out
