"""`gnnexp resume` of a run that this version does not take as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_folder import write_job

from gnnexp.cli.main import run_command
from gnnexp.config.compose import compose

SAID = "a run keeps the options that it began with"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that was begun, with an option of its paradigm that is gone."""
    monkeypatch.chdir(tmp_path)
    folder = Path("run")
    write_job(folder)
    job = json.loads((folder / "job.json").read_text())
    job["config"] = compose(["dataset=digits", "tracker=none"]).config
    job["config"]["paradigm"]["budget"] = 100
    (folder / "job.json").write_text(json.dumps(job))
    return folder


def test_an_option_that_is_gone_cannot_be_left_out_of_a_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["resume", str(run)]) == 2
    said = capsys.readouterr().err
    assert "paradigm.budget" in said and SAID in said and "fix: start a new run" in said


def test_a_mistake_in_what_may_change_is_only_that(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = json.loads((run / "job.json").read_text())
    del job["config"]["paradigm"]["budget"]
    (run / "job.json").write_text(json.dumps(job))
    assert run_command(["resume", str(run), "hardware.workers=0"]) == 2
    said = capsys.readouterr().err
    assert "hardware.workers" in said and SAID not in said
