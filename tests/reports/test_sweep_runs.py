"""What the papers' folders keep is read where a sweep was not run: nothing has to be imported."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import pytest

from gnnexp.cli.main import run_command
from gnnexp.config.folders import papers_with, product_sweeps
from gnnexp.record.runs import find_runs
from gnnexp.reports.expression import evaluate
from gnnexp.reports.sweep_runs import RECORDS_FILE, sweeps_run

MOST_BYTES = 5_000_000


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_paper_keeps_its_records_and_they_are_small() -> None:
    files = papers_with(RECORDS_FILE)
    assert files.keys() == papers_with("published.csv").keys()
    assert sum(file.stat().st_size for file in files.values()) <= MOST_BYTES


@pytest.mark.parametrize("paper", papers_with(RECORDS_FILE))
def test_every_sweep_of_a_paper_has_runs(paper: str) -> None:
    names = [name for name in product_sweeps() if name.startswith(f"{paper}_")]
    found = sweeps_run(names)
    assert [name for name in names if not found[name].runs] == []
    assert all(
        run.status == "finished" and run.epochs and run.summary and not found[name].here
        for name in names
        for run in found[name].runs
    )


def test_what_was_made_here_comes_first(tmp_path: Path) -> None:
    (tmp_path / "runs" / "sweeps").mkdir(parents=True)
    state = {"name": "gsplit_table1", "cases": [{"label": "one", "run_dir": ""}]}
    (tmp_path / "runs" / "sweeps" / "gsplit_table1.json").write_text(json.dumps(state))
    found = sweeps_run(["gsplit_table1", "gsplit_table3", "no_such"])
    assert found["gsplit_table1"].here and found["gsplit_table1"].runs == []
    assert found["gsplit_table3"].runs and "no_such" not in found


def test_losses_that_a_claim_compares_are_kept() -> None:
    for run in sweeps_run(["fastsample_equivalence"])["fastsample_equivalence"].runs:
        losses = [loss for line in run.lines() for loss in line["losses"]]
        assert len(losses) > 10 and evaluate("[losses]", run) == zlib.crc32(struct.pack(f"<{len(losses)}d", *losses))


def test_a_report_of_kept_records(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_command(["report", "hongtu_table1", "--csv"]) == 0
    assert "saved: " in capsys.readouterr().out
    kept = Path(__file__).parents[2] / "docs" / "results" / "hongtu_table1" / "table.csv"
    assert (tmp_path / "reports" / "hongtu_table1" / "table.csv").read_text() == kept.read_text()
    assert not (tmp_path / "runs").exists(), "nothing was imported"


def test_a_papers_records_can_be_imported(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["import", "gsplit"]) == 0
    kept = sweeps_run(["gsplit_figure5"])["gsplit_figure5"]
    assert kept.here and kept.state["report"] and len(find_runs()) > 90
    assert {one["file"] for run in kept.runs if (one := run.provenance["imported"])} == {"gsplit/records.parquet"}
    assert any(line["batches"] for line in kept.runs[0].lines())
