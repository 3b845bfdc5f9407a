"""A sweep that one can leave alone: retries, launchers that share its queue, and one that dies and is replaced."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import place, start

from gnnexp.cli.main import run_command
from gnnexp.cli.sweeping.case import CaseState, run_case
from gnnexp.cli.sweeping.side_by_side import SideBySide
from gnnexp.provenance.machine import this_node

__all__ = ["place"]

SWEEP = """
fixed: [tracker=none, hardware.launcher.worker_module=failing_first_worker, hardware.workers=1]
axes: {{seed: {seeds}}}
retries: {retries}
report: {{figures: []}}
"""


@pytest.fixture
def folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = str(Path(__file__).parent / "support")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))
    return place


def write(folder: Path, count: int, retries: int = 2) -> None:
    (folder / "mine.yaml").write_text(SWEEP.format(seeds=list(range(count)), retries=retries))


def cases(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "runs" / "sweeps" / "mine.json").read_text())["cases"]
    return found


def test_a_case_that_fails_is_tried_again_after_the_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, 2)
    assert run_command(["sweep", "mine.yaml"]) == 0
    said = capsys.readouterr().out
    first, second = cases(folder)
    assert first["status"] == second["status"] == "finished"
    assert len(first["attempts"]) == 1 and "the network was away" in first["attempts"][0] and not second["attempts"]
    assert "tried again after the others: seed=0, attempt 2 of 3" in said
    assert said.index("finished: seed=1") < said.index("finished: seed=0")
    assert "attempt 1: " in said.partition("sweep mine")[2], "the table at the end has the reason of each attempt"


def test_retries_end_and_a_mistake_is_not_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, 2)
    monkeypatch.setenv("FAILS_ALWAYS", "1")
    assert run_command(["sweep", "mine.yaml", "--retries", "1"]) == 1
    first, second = cases(folder)
    assert (first["status"], second["status"]) == ("finished", "failed") and len(second["attempts"]) == 1
    assert run_command(["sweep", "mine.yaml", "--retries", "-1"]) == 2
    (folder / "mine.yaml").write_text(SWEEP.format(seeds=[0], retries=-1))
    assert run_command(["sweep", "mine.yaml"]) == 2
    assert "retries=-1" in capsys.readouterr().err


@pytest.fixture
def edits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Texts that the sweep's file has after its first case, its second one, …"""
    texts: list[str] = []

    def run_and_edit(*arguments: Any, **options: Any) -> CaseState:
        state = run_case(*arguments, **options)
        if texts:
            (folder / "mine.yaml").write_text(texts.pop(0))
        return state

    monkeypatch.setattr("gnnexp.cli.sweeping.queue.run_case", run_and_edit)
    return texts


def test_an_edited_file_is_followed(folder: Path, edits: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "mine.yaml").write_text(SWEEP.format(seeds=[1, 2, 3], retries=0))
    edits += [SWEEP.format(seeds=[2, 4], retries=0)]
    assert run_command(["sweep", "mine.yaml"]) == 0
    said = capsys.readouterr().out
    assert "mine.yaml was edited, removed: seed=3" in said and "mine.yaml was edited, new: seed=4" in said
    assert "no longer in mine.yaml, but run here already: seed=1" in said
    states = {case["label"]: case["status"] for case in cases(folder)}
    assert states == {"seed=1": "finished", "seed=2": "finished", "seed=3": "removed", "seed=4": "finished"}
    assert len(list(folder.glob("runs/mine/*/result.json"))) == 3


def test_an_edit_with_mistakes_changes_nothing(
    folder: Path, edits: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = SWEEP.format(seeds=[1, 2], retries=0)
    (folder / "mine.yaml").write_text(text)
    edits += [text.replace("hardware.workers=1", "hardware.wrokers=1"), "axes: ["]
    assert run_command(["sweep", "mine.yaml"]) == 0
    said = capsys.readouterr()
    assert said.out.count("was edited and has mistakes: the sweep goes on as planned") == 2
    assert "hardware.wrokers=1: no such key" in said.err
    assert [case["status"] for case in cases(folder)] == ["finished", "finished"]


def test_an_added_case_that_is_too_large_for_a_slot_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `--jobs 2` each slot has half of the cores, and they are made before the first case."""
    cores = this_node().cores
    if cores < 2:
        pytest.skip("needs two cores")
    text = SWEEP.format(seeds=[1, 2], retries=0)
    (folder / "mine.yaml").write_text(text)
    listen, edits = SideBySide.ended, [text.replace("hardware.workers=1", f"hardware.workers={cores}")]

    def edit_and_listen(self: SideBySide) -> dict[int, CaseState]:
        if edits:
            (folder / "mine.yaml").write_text(edits.pop())
        return listen(self)

    monkeypatch.setattr(SideBySide, "ended", edit_and_listen)
    assert run_command(["sweep", "mine.yaml", "--jobs", "2"]) == 0
    said = capsys.readouterr()
    assert "was edited and has mistakes: the sweep goes on as planned" in said.out
    assert f"2 cases with {cores} ranks each need {2 * cores} cores" in said.err
    assert [case["status"] for case in cases(folder)] == ["finished", "finished"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sixty_cases_two_launchers_and_one_that_is_killed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten cases fail at first. Every case is run once, and from the tenth on the time left is right within 1.5."""
    count = 60
    write(folder, count)
    monkeypatch.setenv("PRETENDED_S", "1")
    going = [start("sweep", "mine.yaml") for _ in range(2)]
    runs = folder / "runs" / "mine"

    def ended() -> int:
        return len(list(runs.glob("*/result.json")))

    while ended() < 8:
        assert all(process.poll() is None for process in going)
        time.sleep(0.2)
    going[1].send_signal(signal.SIGKILL)
    told: list[tuple[float, float]] = []
    text = ""
    assert going[0].stdout is not None
    for line in going[0].stdout:
        text += line
        match = re.match(r"\d+/60 .*about ([\d.]+) (s|min) left", line)
        if match and ended() >= 10:
            told.append((time.monotonic(), float(match[1]) * (60 if match[2] == "min" else 1)))
    end = time.monotonic()
    assert going[0].wait(timeout=600) == 0, text
    results = [json.loads(path.read_text()) for path in runs.glob("*/result.json")]
    assert sorted(result["config"]["seed"] for result in results) == list(range(count))
    assert {result["status"] for result in results} == {"finished"}
    states = cases(folder)
    assert [case["status"] for case in states if case["status"] not in ("finished", "finished before")] == []
    ratios = [left / (end - moment) for moment, left in told if end - moment > 10]
    assert len(ratios) > 40 and all(1 / 1.5 < ratio < 1.5 for ratio in ratios), ratios


def test_status_says_how_long_the_rest_will_take(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asked between two cases; afterwards nobody works on the sweep, so there is nothing to say."""
    write(folder, 3)
    said: list[dict[str, Any]] = []

    def run_and_ask(*arguments: Any, **options: Any) -> CaseState:
        state = run_case(*arguments, **options)
        capsys.readouterr()
        assert run_command(["status", "mine", "--json"]) == 0
        said.append(json.loads(capsys.readouterr().out))
        return state

    monkeypatch.setattr("gnnexp.cli.sweeping.queue.run_case", run_and_ask)
    assert run_command(["sweep", "mine.yaml", "seed=1,2,3"]) == 0
    assert said[0]["left_s"] is None, "no case has ended"
    assert said[1]["left_s"] > said[2]["left_s"] > 0, "a case counts until its end is noted"
    assert run_command(["status", "mine"]) == 0
    assert "left, until" not in capsys.readouterr().out
