"""Stacked phases: saved in every format, parts that are there, and bars on top of each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from run_on_disk import run_on_disk

from gnnexp.reports.figures.drawing import BarPart, draw_stack, empty_figure, save_figure
from gnnexp.reports.figures.panels import Figure, Panel
from gnnexp.reports.figures.stacked import draw_stacked
from gnnexp.reports.tables.groups import RunGroup, group_runs


def save_breakdown(groups: list[RunGroup], *files: Path) -> None:
    canvas = draw_stacked(Figure("breakdown", "stacked"), [Panel("", {group.name: group for group in groups})]).canvas
    for file in files:
        save_figure(canvas, file)


def test_the_figure_is_written_in_every_format(tmp_path: Path) -> None:
    runs = [run_on_disk(tmp_path / "a"), run_on_disk(tmp_path / "b", "dgl_reference")]
    groups = group_runs(runs, ("system",))
    save_breakdown(groups, tmp_path / "b.png", tmp_path / "b.svg")
    assert (tmp_path / "b.png").read_bytes()[:4] == b"\x89PNG"
    svg = (tmp_path / "b.svg").read_text()
    assert svg.count("<path") > 10
    save_breakdown(group_runs([run_on_disk(tmp_path / "c", status="failed")], ("system",)), tmp_path / "none.png")
    assert (tmp_path / "none.png").exists(), "nothing to show is an empty figure, not a crash"


def test_negatives_and_decoder_are_drawn_where_there_are_any(tmp_path: Path) -> None:
    run = run_on_disk(tmp_path / "a")
    times = {
        "time/negatives_s": 0.15,
        "time/negatives_s_mean": 0.125,
        "time/decode_s_mean": 0.25,
        "time/fb_s_mean": 0.375,
        "time/epoch_s_mean": 1.0,
    }
    of_links = replace(run, config={**run.config, "system": "gsplit"}, epochs=[{**run.epochs[1], **times}])
    groups = group_runs([run, of_links], ("system",))
    drawn = []
    for chosen in (groups[:1], groups[1:]):
        save_breakdown(chosen, tmp_path / "b.svg")
        svg = (tmp_path / "b.svg").read_text()
        drawn.append([svg.count(f"fill: {colour}") for colour in ("#009e73", "#cc79a7")])
    assert drawn == [[0, 0], [2, 2]], "a bar and a line of the legend, or none"


def test_bars_are_stacked() -> None:
    axes = empty_figure(3, 2).add_subplot()
    parts = [BarPart("a", "C0", [1.0, 2.0]), BarPart("too thin", "C1", [2**-10, 0.0]), BarPart("b", "C2", [3.0, 0.5])]
    assert draw_stack(axes, [0, 1], parts) == [4 + 2**-10, 2.5]
    assert axes.get_legend_handles_labels()[1] == ["a", "b"]
    assert [bar.get_y() for bar in axes.containers[1]] == [1 + 2**-10, 2.0]
    assert draw_stack(axes, [], [BarPart("none", "C0", [])]) == []
