"""Seeds are added until verdicts are decided: which looks there are, what they leave open, and a whole sweep."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from figure_runs import figure_run

from gnnexp.cli.main import run_command
from gnnexp.cli.sweeping.definition import Sweep
from gnnexp.cli.sweeping.until import check_until, look_in_words, looks, undecided_results
from gnnexp.errors import ConfigError
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.layout import ReportLayout


def test_looks_double_and_end_at_the_budget() -> None:
    assert list(looks(40)) == [5, 10, 20, 40]
    assert list(looks(30)) == [5, 10, 20, 30]
    assert list(looks(5)) == [5]


@pytest.mark.parametrize(
    ("changes", "report", "said"),
    [
        ({"until": "done"}, {"against": "dgl"}, "allowed: decided"),
        ({"most_seeds": 4}, {"against": "dgl"}, "at least 5"),
        ({}, {}, "needs a system to compare with"),
        ({"dry_run": True}, {"against": "dgl"}, "depends on results"),
        ({"print_script": True}, {"against": "dgl"}, "depends on results"),
    ],
)
def test_options_are_checked_before_a_case_runs(
    changes: Mapping[str, Any], report: Mapping[str, Any], said: str
) -> None:
    options = {"until": "decided", "most_seeds": 40, "dry_run": False, "print_script": False, **changes}
    with pytest.raises(ConfigError, match=said):
        check_until(argparse.Namespace(**options), Sweep("mine", "", (), report))


def run_of(system: str, seed: int, acc: float) -> RecordedRun:
    date = f"2026-01-01T00:{2 * seed + (system != 'dgl'):02d}"
    run = figure_run(system, 1.0 + seed / 100, seed=seed)
    return replace(run, summary={"acc/test": acc}, provenance={"date": date, "dataset_key": "k"})


def test_a_later_look_asks_for_more() -> None:
    spread = (0.0, 0.04, -0.01, 0.06, 0.02)
    ours = [run_of("dgl", seed, 0.8) for seed in range(5)]
    theirs = [run_of("p3", seed, 0.85 + change) for seed, change in enumerate(spread)]
    layout = ReportLayout(("system",), against="dgl")
    assert undecided_results([*ours, *theirs], layout, 1) == []
    (left,) = undecided_results([*ours, *theirs], layout, 5)
    assert left.column.header == "acc/test %" and left.level == pytest.approx(0.05 / 32)
    assert look_in_words([left], 5, 80) == "undecided (look 5, 80 seeds, level 0.0016): p3 acc/test %"
    assert look_in_words([], 1, 5) == "decided (look 1, 5 seeds, level 0.025)"


def test_a_rival_whose_runs_all_fail_asks_for_no_more_seeds() -> None:
    ours = [run_of("dgl", seed, 0.8) for seed in range(5)]
    theirs = [replace(run_of("p3", seed, 0.8), status="failed", kind="diverged") for seed in range(5)]
    assert undecided_results([*ours, *theirs], ReportLayout(("system",), against="dgl"), 1) == []


@pytest.mark.slow
def test_a_sweep_that_is_decided_at_the_first_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(
        """
fixed: [dataset=digits, train=default, train.epochs=1, model.hidden=16, tracker=none]
axes: {system: [dgl, gsplit]}
report: {against: dgl, columns: {vertices: work/vertices_layer1}, equal: {percent: 50}}
"""
    )
    assert run_command(["sweep", "mine.yaml", "--until", "decided", "--most-seeds", "20"]) == 0
    state = json.loads(Path("runs/sweeps/mine.json").read_text())
    assert state["looks"] == 1 and len(state["cases"]) == 10
    text = Path("reports/mine/verdicts.md").read_text()
    assert "equal within 50 %" in text and "verdicts of look 1 have the level 0.025" in text
    assert run_command(["report", "mine.yaml", "--markdown"]) == 0
    assert Path("reports/mine/verdicts.md").read_text() == text, "a later report has the same level"
