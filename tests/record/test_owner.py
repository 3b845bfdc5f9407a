"""What acts on a run acts on one's own only: its files say what is executed, and who gets a signal."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from without_rights import show

from gnnexp.cli.main import run_command
from gnnexp.config.compose import compose
from gnnexp.errors import ConfigError
from gnnexp.record.owner import check_own


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that waits to be gone on with, whose launcher is a class that no installed package has."""
    monkeypatch.chdir(tmp_path)
    config = compose(["dataset=digits", "tracker=none"]).config
    config["hardware"]["launcher"] = {"_target_": "no_such_package.Launcher"}
    (tmp_path / "run").mkdir()
    job = {"schema": 1, "config": config, "provenance": {"dataset_key": "k"}}
    (tmp_path / "run" / "job.json").write_text(json.dumps(job))
    return tmp_path / "run"


Disown = Callable[[Path], None]


@pytest.fixture
def disown(monkeypatch: pytest.MonkeyPatch) -> Disown:
    """Gives a file to another user; where nobody may do that, this process becomes another user's to all who ask."""

    def give(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, 12345, -1)
        else:
            monkeypatch.setattr("os.geteuid", lambda: 0)

    return give


@pytest.mark.parametrize("file", [".", "job.json", "attempts.jsonl", "slurm.json"])
def test_one_file_of_another_user_is_enough(run: Path, disown: Disown, file: str) -> None:
    check_own(run, "does this", "do that")
    (run / file).touch()
    check_own(run, "does this", "do that")
    disown(run / file)
    with pytest.raises(ConfigError, match=r"belongs to .*: gnnexp does this"):
        check_own(run, "does this", "do that")


def test_a_copy_is_ones_own(run: Path, disown: Disown) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    disown(run / "job.json")
    copy = run.with_name("mine")
    subprocess.run(["cp", "-r", run, copy], check=True)
    check_own(copy, "does this", "do that")
    with pytest.raises(ConfigError):
        check_own(run, "does this", "do that")


def test_where_all_files_have_one_owner_nothing_is_seen(
    run: Path, disown: Disown, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on FAT. Nor is a change in one's own name."""
    disown(run / "job.json")
    show(monkeypatch, run, owner=os.geteuid())
    check_own(run, "does this", "do that")


def test_only_records_are_looked_at(run: Path, disown: Disown) -> None:
    (run / "logs").mkdir()
    (run / "logs" / "rank_0.log").write_text("")
    if os.geteuid() == 0:
        disown(run / "logs" / "rank_0.log")
    check_own(run, "does this", "do that")


def test_resume_of_another_users_run(run: Path, disown: Disown, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of its configuration is looked at, unless that is asked for; the fix is a command."""
    disown(run / "job.json")
    assert run_command(["resume", "run"]) == 2
    said = capsys.readouterr().err
    assert "belongs to" in said and "gnnexp resume --trust" in said and "no_such_package" not in said
    assert run_command(["resume", "--trust", "run"]) == 2
    assert "no_such_package" in capsys.readouterr().err


def test_cancel_of_another_users_run(run: Path, disown: Disown, capsys: pytest.CaptureFixture[str]) -> None:
    disown(run)
    assert run_command(["cancel", "run"]) == 2
    assert "belongs to" in capsys.readouterr().err
    assert run_command(["cancel", "--trust", "run"]) == 2
    assert "no process of this machine works on it" in capsys.readouterr().err


def test_a_run_of_ones_own_and_none_at_all(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["resume", "run"]) == 2 and "no_such_package" in capsys.readouterr().err
    assert run_command(["resume", "absent"]) == 2 and "there is none" in capsys.readouterr().err


def test_another_users_run_can_be_read(run: Path, disown: Disown, capsys: pytest.CaptureFixture[str]) -> None:
    """And its launcher, which no installed package has, is looked for by nobody."""
    disown(run)
    assert run_command(["status", "run"]) == 0
    assert "stopped" in capsys.readouterr().out
