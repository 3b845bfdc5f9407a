"""Rows of a report: what names them, and what stands in place of numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from run_on_disk import run_on_disk

from gnnexp.reports.tables.groups import group_runs, row_keys


def test_rows_are_what_differs(tmp_path: Path) -> None:
    runs = [run_on_disk(tmp_path / "a"), run_on_disk(tmp_path / "b", "dgl_reference")]
    assert row_keys(runs) == ("system",)
    assert row_keys(runs, ["seed", "model.hidden"]) == ("seed", "model.hidden")
    assert runs[0].value("dataset") == "digits" and runs[0].value("model.hidden") == "64"
    assert runs[0].value("train.batch_size") == "null"


def test_what_did_not_finish_says_how_it_ended(tmp_path: Path) -> None:
    run = run_on_disk(tmp_path / "a", status="failed")
    for kind, word in (("interrupted", "interrupted"), ("out of memory", "OOM"), ("hang", "failed")):
        (group,) = group_runs([replace(run, kind=kind)], ("system",))
        assert group.verdict == word


def test_a_partitioner_that_partitioned_nothing_is_none(tmp_path: Path) -> None:
    run = run_on_disk(tmp_path / "a")
    run.config["partitioner"] = {"name": "metis"}
    cut = replace(run, quality={"edge_cut": 0.1})
    assert [group.labels for group in group_runs([run, cut], ("partitioner",))] == [("none",), ("metis",)]
    assert row_keys([run, cut]) == ("partitioner",) and run.value("partitioner") == "metis"
    refused = replace(run, status="failed", provenance={**run.provenance, "partitioned": True})
    assert refused.label("partitioner") == "metis", "it would have been partitioned"
