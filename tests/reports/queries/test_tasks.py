"""Tasks: parts of an epoch and their shares from recorded phases, by hand, compared with the paper's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from asking import both_of
from run_folder import write_job, write_result

from gnnexp.cli.main import run_command
from gnnexp.record.runs import RecordedRun, read_run

make_table, draw = both_of("tasks")
HEADER = (
    "task",
    "system",
    "dataset",
    "ranks",
    "negatives s",
    "GNN s",
    "decoder s",
    "loss s",
    "sum s",
    "negatives %",
    "GNN %",
    "decoder %",
    "loss %",
    "paper %",
    "wait s",
    "rest s",
    "epoch s",
)
# What no part has: 0.01 + 0.02 + 0.03 + 0.04 = 0.1.
OTHERS = {"sample": 0.01, "load": 0.02, "sync": 0.03, "update": 0.04}
# GNN 1 + 2 + 0.5 of 3.6 + 0.4: 87.5 %, the loss 12.5 %.
VERTICES = {"negatives": 0.0, "forward": 1.0, "decode": 0.0, "loss": 0.5, "backward": 2.0, "wait": 0.5}
# 0.4, 0.3 + 0.4 + 0.1 = 0.8, 0.6, 0.2: 20, 40, 30 and 10 % of 2.
LINKS = {"negatives": 0.4, "forward": 0.3, "decode": 0.6, "loss": 0.2, "backward": 0.4, "wait": 0.1}


def make_run(
    folder: Path,
    system: str,
    phases: dict[str, float],
    task: str = "link_prediction",
    status: str = "finished",
    shape: str = "reddit_like",
) -> RecordedRun:
    """A run that has ended, whose second and third epoch took these seconds (the mean over ranks); the first, ten."""
    write_job(folder, uid=str(folder), choices={"dataset": "rmat", "model": "gcn", "paradigm": "P", "task": task})
    job = json.loads((folder / "job.json").read_text())
    job["config"] |= {
        "dataset": {"name": "rmat", "shape": shape},
        "system": system,
        "model": {"layers": 2},
        "task": {"_target_": task, "dim": 41 if task == "link_prediction" else None},
    }
    (folder / "job.json").write_text(json.dumps(job))
    lines = []
    for number in range(3):
        factor = 1.0 if number else 10.0
        times = {name: factor * seconds for name, seconds in {**phases, "epoch": 9.0}.items()}
        # The slowest rank's seconds, which are not the mean's, are nothing that the table shows.
        metrics = {
            f"time/{name}_s{end}": value + (0.0 if end else 7.0)
            for name, value in times.items()
            for end in ("", "_mean")
        }
        lines.append({"epoch": number, "metrics": {"acc/test": 0.5, **metrics}})
    (folder / "epochs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_result(folder, status, "" if status == "finished" else "rank 0 failed")
    return read_run(folder)


def both(folder: Path) -> list[RecordedRun]:
    return [
        make_run(folder / "v", "neutronstar", {**OTHERS, **VERTICES}, "node_classification"),
        make_run(folder / "l", "neutronstar", {**OTHERS, **LINKS}),
    ]


def test_cells_by_hand(tmp_path: Path) -> None:
    table = make_table(both(tmp_path))
    assert table.header == HEADER, "options of the tasks, which differ, are no columns"
    assert table.rows == (
        (
            "node_classification",
            "neutronstar",
            "rmat reddit_like",
            "2",
            "–",
            "3.5000",
            "–",
            "0.5000",
            "4.0000",
            "–",
            "87.5",
            "–",
            "12.5",
            "– 97 2 1",
            "0.5000",
            "0.1000",
            "9.0000",
        ),
        (
            "link_prediction",
            "neutronstar",
            "rmat reddit_like",
            "2",
            "0.4000",
            "0.8000",
            "0.6000",
            "0.2000",
            "2.0000",
            "20.0",
            "40.0",
            "30.0",
            "10.0",
            "3 90 5 2",
            "0.1000",
            "0.1000",
            "9.0000",
        ),
    )
    assert "Left out" not in table.caption


def test_the_papers_shares_stand_beside_its_systems(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / f"{system} {task}", system, {**OTHERS, **LINKS}, task)
        for task in ("node_classification", "link_prediction")
        for system in ("neutrontp", "neutrontp_naive")
    ]
    assert [row[13] for row in make_table(runs).rows] == ["– 90 7 3", "–", "9 67 19 5", "–"]


def test_what_is_left_out_is_named(tmp_path: Path) -> None:
    early = {**OTHERS, "forward": 1.0, "backward": 2.0, "wait": 0.5}  # before tasks were timed apart
    of_dgl = {**OTHERS, **VERTICES, "loss": 0.0}
    runs = [
        make_run(tmp_path / "early", "neutronstar", early),
        make_run(tmp_path / "dgl", "dgl_full_graph", of_dgl),
        make_run(tmp_path / "first", "neutrontp", {**OTHERS, **VERTICES}),
        make_run(tmp_path / "again", "neutrontp", {**OTHERS, **LINKS}),
        make_run(tmp_path / "failed", "sancus", {**OTHERS, **LINKS}, status="failed"),
    ]
    table = make_table(runs)
    assert [row[1:9] for row in table.rows] == [
        ("neutrontp", "rmat reddit_like", "2", "0.4000", "0.8000", "0.6000", "0.2000", "2.0000")
    ], "the later one"
    for words in ("1 runs failed", "2 runs that do not time the task separately", "1 runs repeated later"):
        assert words in table.caption
    assert make_table(runs[:2]).rows == () == make_table([]).rows


def test_other_graphs_have_rows_of_their_own(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / shape, "neutrontp", {**OTHERS, **LINKS}, shape=shape) for shape in ("small", "other")]
    assert [row[2] for row in make_table(runs).rows] == ["rmat small", "rmat other"]


def test_the_figure_has_a_bar_per_row_and_the_papers(tmp_path: Path) -> None:
    runs = [both(tmp_path)[1], make_run(tmp_path / "n", "neutrontp_naive", {**OTHERS, **LINKS})]
    assert draw(runs, tmp_path / "f", "title") == [tmp_path / "f" / f"tasks.{s}" for s in ("png", "svg")]
    assert (tmp_path / "f" / "tasks.png").read_bytes()[:4] == b"\x89PNG"
    svg = (tmp_path / "f" / "tasks.svg").read_text()
    # Two bars in both panels and one in the legend; hatched are the paper's of one row.
    assert [svg.count(f"fill: {colour}") for colour in ("#009e73", "#e69f00", "#cc79a7", "#0072b2")] == [5, 5, 5, 5]
    assert svg.count("fill: url(") == 4
    draw(both(tmp_path)[:1], tmp_path / "v")
    vertices = (tmp_path / "v" / "tasks.svg").read_text()
    named = [part for part in ("negatives", "GNN", "decoder", "loss") if f"{part} -->" in vertices]
    assert named == ["GNN", "decoder", "loss"], "the paper's decoder is named where ours has none"
    assert draw([], tmp_path / "none") == [] and not (tmp_path / "none").exists(), "nothing to show is no crash"


def test_the_command_saves_table_and_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    both(tmp_path / "runs" / "mine")
    assert run_command(["report", "tasks", "runs/mine", "--csv"]) == 0
    assert {file.name for file in (tmp_path / "reports" / "mine").iterdir()} == {
        "tasks.csv",
        "tasks.html",
        "tasks.png",
        "tasks.svg",
    }
