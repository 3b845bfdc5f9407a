"""Systems ranked on described machines: places, what ran out of memory, and what was measured beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gnnexp.planner.machine import Machine
from gnnexp.reports.estimates import make_table
from gnnexp.runs import Run

# A second per float operation, everything else is free.
SLOW = Machine("slow", 1, 2, 1.0, 1e30, 1e30, 1e30, 1e30, 1e30, 0.0, 1000, "a sheet")
GRAPH = {"num_nodes": 50, "num_edges": 700, "num_features": 2, "num_classes": 3}


def run_of(system: str, rows: int, held: int, hardware: str = "local", workers: int = 2) -> Run:
    config = {"system": system, "dataset": {"name": "rmat"}, "hardware": {"workers": workers}, "feature_store": {},
              "model": {"hidden": 4, "layers": 1}, "task": {}, "train": {}}
    provenance = {"choices": {"model": "mlp", "hardware": hardware, "task": "node_classification"}, "graph": GRAPH}
    counted = {"work/vertices_layer1": rows} if rows >= 0 else {}
    epoch = {**counted, "memory/device_peak_bytes": held, "time/epoch_s": 30.0 * rows}
    return Run(Path(system), config, provenance, [epoch] * 3, {}, "finished")


def test_places_and_memory_and_what_was_measured() -> None:
    runs = [run_of("a", 20, 10), run_of("b", 10, 900, "slow"), run_of("c", 2, 1001), run_of("d", 1, 1, workers=4),
            run_of("e", -1, 1)]
    table = make_table(runs, [SLOW, replace(SLOW, name="vast", workers=64)])
    cells = [(row[0], row[4], row[9], row[11], row[12], row[13]) for row in table.rows]
    # A layer of 2 x 3 over half of the rows, forwards and for its weights' gradient: 2 * 2 * 6 operations a row.
    assert cells == [("b", "slow", "120", "1", "300", "2.5"), ("a", "slow", "240", "2", "–", "–"),
                     ("c", "slow", "24", "OOM", "–", "–")]
    assert "differ by a factor of 2.50 (median of 1)" in table.caption and "slow: a sheet." in table.caption
    assert "Left out: 1 runs that failed or do not say what" in table.caption
    assert "Left out: 1 runs with another number of ranks" in table.caption
    assert "No run has the 64 ranks of vast." in table.caption and "ranks of slow" not in table.caption


def test_a_larger_graph_takes_longer_and_needs_more() -> None:
    table = make_table([run_of("a", 20, 10), run_of("b", 10, 900)], [SLOW], factor=10)
    assert [(row[0], row[9], row[11]) for row in table.rows] == [("a", "2400", "1"), ("b", "1200", "OOM")]
    assert "Counts times 10" in table.caption


def test_no_run() -> None:
    table = make_table([], [SLOW])
    assert table.rows == () and "Left out" not in table.caption


@pytest.mark.parametrize("words", [["--scale", "0"], ["--hardware", "nothing"]])
def test_mistakes_end_with_2(tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch,
                             capsys: pytest.CaptureFixture[str]) -> None:
    from gnnexp.cli.main import run_command

    monkeypatch.chdir(tmp_path)
    hardware = [] if "--hardware" in words else ["--hardware", "p3_8xlarge"]
    assert run_command(["plan", "some", *hardware, *words]) == 2
    assert "mend" in capsys.readouterr().err
