"""How a run ended is written down, whatever is asked meanwhile."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from run_folder import write_epochs, write_job, write_result

from gnnexp.cli.console import EpochPrinter, make_console
from gnnexp.cli.running import execute
from gnnexp.components.schema import HardwareConfig
from gnnexp.launchers.base import Launcher, Outcome

HARDWARE = HardwareConfig(workers=1, max_restarts=3)


class Ends(Launcher):
    """Ends with the given outcome, and counts how often it is asked."""

    def __init__(self, outcome: Outcome | type[BaseException]) -> None:
        self.outcome, self.launches = outcome, 0

    def launch(self, run_dir: Path, config: Mapping[str, Any]) -> Outcome:
        self.launches += 1
        if isinstance(self.outcome, Outcome):
            return self.outcome
        raise self.outcome


def launched(run_dir: Path, launcher: Launcher) -> Outcome:
    write_job(run_dir)
    write_epochs(run_dir, 2)
    console = make_console()
    printer = EpochPrinter(console, run_dir)
    printer.start()
    return execute._launched(run_dir, HARDWARE, console, launcher, printer)


def status_of(run_dir: Path) -> str:
    return str(json.loads((run_dir / "result.json").read_text())["status"])


@pytest.fixture
def asked_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the end is noted."""
    note = execute.note

    def noting(run_dir: Path, event: str, **more: object) -> None:
        note(run_dir, event, **more)
        if event == "end":
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(execute, "note", noting)


@pytest.mark.usefixtures("asked_at_the_end")
def test_a_run_that_has_finished_stays_so(tmp_path: Path) -> None:
    write_job(tmp_path)
    write_result(tmp_path)
    outcome = launched(tmp_path, Ends(Outcome(0, "finished")))
    assert (outcome.status, outcome.asked, status_of(tmp_path)) == ("finished", signal.SIGINT, "finished")


@pytest.mark.usefixtures("asked_at_the_end")
def test_a_failure_is_not_repeated_for_somebody_who_asks_to_stop(tmp_path: Path) -> None:
    launcher = Ends(Outcome(1, "failed", "a rank was lost", "a rank was lost", "killed"))
    outcome = launched(tmp_path, launcher)
    assert launcher.launches == 1 and outcome.asked == signal.SIGINT
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["status"], result["reason"]) == ("failed", "a rank was lost")


def test_a_signal_that_the_launcher_gives_back_is_answered(tmp_path: Path) -> None:
    launcher = Ends(Outcome(1, "failed", "lost", "lost", "killed", asked=signal.SIGTERM))
    assert launched(tmp_path, launcher).asked == signal.SIGTERM and launcher.launches == 1


def test_without_a_wish_it_is_repeated(tmp_path: Path) -> None:
    launcher = Ends(Outcome(1, "failed", "lost", "lost", "killed"))
    assert launched(tmp_path, launcher).asked is None and launcher.launches == 4


def test_interrupted_while_ranks_are_started(tmp_path: Path) -> None:
    outcome = launched(tmp_path, Ends(KeyboardInterrupt))
    assert (outcome.exit_code, outcome.kind, status_of(tmp_path)) == (130, "interrupted", "failed")
