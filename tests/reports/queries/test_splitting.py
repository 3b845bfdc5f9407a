"""Splitting: loads and cross edges of split mini-batches, by partitioner and layer, by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from asking import both_of, data
from run_folder import write_job, write_result

from gnnexp.cli.commands.report import choose
from gnnexp.cli.main import run_command
from gnnexp.cli.sweeping.definition import load_sweep
from gnnexp.config.folders import product_sweeps
from gnnexp.errors import ConfigError
from gnnexp.record.runs import RecordedRun, read_run
from gnnexp.reports.query import query_names

make_table, draw = both_of("splitting")
Batches = list[list[list[int]]]  # [steps][layers][ranks]
HEADER = (
    "dataset",
    "ranks",
    "partitioner",
    "layer",
    "cross edges %",
    "load mean",
    "load max",
    "load below Edge %",
    "runs",
)
# Two batches, two layers, two ranks; then one batch: loads 1.5, 1, 1.2 (layer 1) and 1, 1.6, none (layer 2).
EDGE: list[Batches] = [[[[75, 25], [5, 5]], [[50, 50], [8, 2]]], [[[60, 40], [0, 0]]]]
# Loads 1.25, 1.1, 1 (layer 1: two of three below Edge's) and 1, 1.2, none (layer 2: one of two).
GSPLIT: list[Batches] = [[[[5, 3], [6, 6]], [[11, 9], [6, 4]]], [[[50, 50], [0, 0]]]]


def make_run(
    folder: Path,
    partitioner: str,
    epochs: list[Batches],
    crossing: list[list[int]],
    seed: int = 0,
    status: str = "finished",
    paradigm: str = "split_parallel",
    **options: Any,
) -> RecordedRun:
    """A run that has ended, with the counts of its batches, and `crossing` edges per epoch and layer."""
    write_job(folder, uid=str(folder), choices={"dataset": "rmat", "paradigm": paradigm, "partitioner": partitioner})
    job = json.loads((folder / "job.json").read_text())
    job["config"] |= {
        "dataset": {"name": "computers"},
        "paradigm": {"_target_": "P", **options},
        "seed": seed,
        "hardware": {"nodes": 1, "workers": 2},
        "model": {"layers": 2},
        "partitioner": {"_target_": "Q"},
    }
    (folder / "job.json").write_text(json.dumps(job))
    lines = []
    for number, (steps, crossed) in enumerate(zip(epochs, crossing, strict=True)):
        metrics = {"acc/test": 0.5}
        for layer, count in enumerate(crossed):
            metrics[f"work/edges_layer{layer + 1}"] = sum(sum(step[layer]) for step in steps)
            metrics[f"work/cross_edges_layer{layer + 1}"] = count
        lines.append({"epoch": number, "metrics": metrics, "batches": {"edges": steps}})
    (folder / "epochs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_result(folder, status, "" if status == "finished" else "rank 0 failed")
    return read_run(folder)


def both(folder: Path) -> list[RecordedRun]:
    return [
        make_run(folder / "gsplit", "presampled", GSPLIT, [[3, 1], [4, 0]]),
        make_run(folder / "edge", "metis_edge", EDGE, [[40, 4], [20, 0]]),
    ]


def test_cells_by_hand(tmp_path: Path) -> None:
    table = make_table(both(tmp_path))
    assert table.header == HEADER
    assert table.rows == (
        # 60 of 300 edges; (1.5 + 1 + 1.2) / 3; 4 of 20; (1 + 1.6) / 2; 64 of 320.
        ("computers", "2", "Edge", "1", "20.00", "1.233", "1.500", "–", "1"),
        ("computers", "2", "Edge", "2", "20.00", "1.300", "1.600", "–", "1"),
        # Both layers of a batch: 80 and 30, 58 and 52, 60 and 40: (1.4545 + 1.0545 + 1.2) / 3.
        ("computers", "2", "Edge", "all", "20.00", "1.236", "1.455", "–", "1"),
        # 7 of 128; (1.25 + 1.1 + 1) / 3; 1 of 22; (1 + 1.2) / 2; 8 of 150.
        ("computers", "2", "GSplit", "1", "5.47", "1.117", "1.250", "66.7", "1"),
        ("computers", "2", "GSplit", "2", "4.55", "1.100", "1.200", "50.0", "1"),
        # 11 and 9, 17 and 13, 50 and 50: (1.1 + 1.1333 + 1) / 3, two of three below Edge's.
        ("computers", "2", "GSplit", "all", "5.33", "1.078", "1.133", "66.7", "1"),
    )
    assert "Left out" not in table.caption and "No counts" not in table.caption


def test_only_the_same_batches_are_compared(tmp_path: Path) -> None:
    alike = [make_run(tmp_path / name, name, GSPLIT, [[3, 1], [4, 0]]) for name in ("presampled", "metis_edge")]
    assert [row[7] for row in make_table(alike).rows] == ["–"] * 3 + ["0.0"] * 3, "equal loads are not below"
    runs = [make_run(tmp_path / "a", "presampled", GSPLIT, [[3, 1], [4, 0]], seed=1), both(tmp_path)[1]]
    assert [row[7] for row in make_table(runs).rows] == ["–"] * 6, "another seed has other batches"


def test_seeds_are_pooled_and_what_is_left_out_is_named(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / "a", "random", EDGE, [[0, 0], [0, 0]]),
        make_run(tmp_path / "b", "random", EDGE, [[150, 10], [50, 0]]),
        make_run(tmp_path / "c", "random", EDGE[:1], [[100, 10]], seed=1),
        make_run(tmp_path / "d", "random", EDGE, [[0, 0], [0, 0]], status="failed"),
        make_run(tmp_path / "e", "random", EDGE, [[0, 0], [0, 0]], group_size=1),
        make_run(tmp_path / "f", "random", EDGE, [[0, 0], [0, 0]], paradigm="data_parallel"),
        make_run(tmp_path / "g", "presampled_node", [[]], [[]]),
        make_run(tmp_path / "h", "mine", EDGE[:1], [[1, 1]]),
    ]
    table = make_table(runs)
    assert [row[2:5] for row in table.rows] == [
        # Seeds 0 (repeated: the later one) and 1: 300 of 500, 20 of 40, 320 of 540.
        ("Rand", "1", "60.00"),
        ("Rand", "2", "50.00"),
        ("Rand", "all", "59.26"),
        ("mine", "1", "0.50"),
        ("mine", "2", "5.00"),
        ("mine", "all", "0.91"),
    ]
    assert table.rows[0][5:] == ("1.240", "1.500", "–", "2"), "(1.5 + 1 + 1.2 + 1.5 + 1) / 5"
    for words in ("1 runs failed", "2 runs of other kinds", "1 runs repeated later", "layer: Node, computers on 2"):
        assert words in table.caption
    assert list(dict.fromkeys(row["partitioner"] for row in data("splitting", "splitting", runs))) == ["Rand", "mine"]


def test_the_figure_has_two_panels_and_a_bar_per_layer_and_partitioner(tmp_path: Path) -> None:
    assert draw(both(tmp_path), tmp_path / "f", "title") == [tmp_path / "f" / f"splitting.{s}" for s in ("png", "svg")]
    assert (tmp_path / "f" / "splitting.png").read_bytes()[:4] == b"\x89PNG"
    svg = (tmp_path / "f" / "splitting.svg").read_text()
    assert svg.count('id="axes_') == 2
    assert svg.count("fill: #56b4e9") == svg.count("fill: #d55e00") == 2 * 2 + 1, "and one in the legend"
    assert draw([], tmp_path / "none") == [] and not (tmp_path / "none").exists(), "nothing to show is no crash"


def test_the_command_saves_table_and_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    both(tmp_path / "runs" / "mine")
    assert run_command(["report", "splitting", "runs/mine", "--csv", "--markdown"]) == 0
    assert {file.name for file in (tmp_path / "reports" / "mine").iterdir()} == {
        "splitting.csv",
        "splitting.html",
        "splitting.md",
        "splitting.png",
        "splitting.svg",
    }
    assert choose(["splitting"]).name == "splitting" and len(choose(["splitting"]).runs) == 2


def test_a_sweep_names_the_query_of_its_report(tmp_path: Path) -> None:
    reports = [
        yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader).get("report", {})
        for file in product_sweeps().values()
    ]
    assert {report["query"] for report in reports if "query" in report} == set(query_names())
    for text in ("report: {query: splittin}", "report: {query: 3}", "report: {query: [splitting]}"):
        (tmp_path / "mine.yaml").write_text(text)
        with pytest.raises(ConfigError, match=r"redundancy.*splitting") as caught:
            load_sweep(str(tmp_path / "mine.yaml"))
        assert [problem.key.endswith("report.query") for problem in caught.value.problems] == [True]
