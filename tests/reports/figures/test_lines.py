"""Lines against a number of the configuration: points, intervals, the ideal, and what has no point."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from figure_runs import figure_run

from gnnexp.reports.figures.draw import draw_figure
from gnnexp.reports.figures.lines import points_of_line
from gnnexp.reports.figures.panels import Figure
from gnnexp.reports.tables.groups import group_runs

SCALING = Figure(
    "scaling", "lines", ("time/epoch_s",), "hardware.workers", ("system",), ("dataset",), log=("x", "y"), ideal=True
)


def test_points_are_means_over_seeds_from_left_to_right() -> None:
    runs = [figure_run("dgl", 2.0, 4), figure_run("dgl", 4.0, 1), figure_run("dgl", 6.0, 1, seed=1)]
    (group,) = group_runs(runs, ("system",))
    (first, last), others = points_of_line(group, "hardware.workers", "time/epoch_s")
    assert (first.x, first.cell.mean, len(first.cell.values)) == (1.0, 5.0, 2) and others == []
    assert first.cell.half_width == pytest.approx(12.706, rel=1e-3) and first.cell.text == "5 (4 to 6)"
    assert (last.x, last.cell.mean, len(last.cell.values)) == (4.0, 2.0, 1) and math.isnan(last.cell.half_width)


def test_the_figure() -> None:
    runs = [
        figure_run("dgl", 4.0, 1),
        figure_run("dgl", 3.0, 2),
        figure_run("dgl", 1.5, 4),
        figure_run("p3", 8.0, 2),
        figure_run("p3", 5.0, 4),
        figure_run("p3", kind="out of memory", workers=1),
    ]
    drawn = draw_figure(SCALING, runs, ("system",))
    (axes,) = drawn.canvas.axes
    assert axes.get_xlabel() == "hardware.workers" and axes.get_ylabel() == "epoch, seconds"
    assert (axes.get_xscale(), axes.get_yscale(), axes.get_title()) == ("log", "log", "cora")
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "2", "4"]
    dotted = [line for line in axes.get_lines() if line.get_linestyle() == ":"]
    assert [list(line.get_ydata()) for line in dotted] == [[4.0, 2.0, 1.0], [8.0, 4.0]], "from a line's first point"
    low, high = axes.get_ylim()
    assert low <= 1.0 and high >= 8.0
    assert [row[1:5] for row in drawn.table.texts] == [
        ("dgl", "1", "time/epoch_s", "4"),
        ("dgl", "2", "time/epoch_s", "3"),
        ("dgl", "4", "time/epoch_s", "1.5"),
        ("p3", "2", "time/epoch_s", "8"),
        ("p3", "4", "time/epoch_s", "5"),
    ]
    assert drawn.table.header == ("panel", "series", "hardware.workers", "metric", "value")
    assert "Failed: p3 on cora (OOM)." in drawn.table.caption
    assert "No point: p3 with hardware.workers=1." in drawn.table.caption
    assert "seeds" not in drawn.table.caption, "several runs of a line are no seeds of one point"


def test_a_wide_interval_does_not_flatten_the_lines() -> None:
    seconds = [1.0, 1.0, 1.0, 1.0, 101.0]
    runs = [*(figure_run("dgl", value, seed=seed) for seed, value in enumerate(seconds)), figure_run("dgl", 1.0, 2)]
    (axes,) = draw_figure(replace(SCALING, log=(), ideal=False), runs, ()).canvas.axes
    assert axes.get_ylim() == (0.0, 63.0), "three times the largest mean, not 21 + 55.5"


def test_two_seeds_have_their_range_around_the_mean() -> None:
    """Their interval, 1.5 ± 6.4, would say nothing."""
    runs = [figure_run("dgl", 1.0), figure_run("dgl", 2.0, seed=1), figure_run("dgl", 1.0, 2)]
    (axes,) = draw_figure(replace(SCALING, log=(), ideal=False), runs, ()).canvas.axes
    (whiskers,) = (lines for _, _, (lines,) in axes.containers)
    assert [line.tolist() for line in whiskers.get_segments()] == [[[1, 1], [1, 2]], [[2, 1], [2, 1]]]
    assert axes.get_ylim() == pytest.approx((0.0, 2.05)), "2, and a margin of 5 % of the range"


def test_what_is_no_number_or_not_recorded_is_named() -> None:
    runs = [figure_run("dgl", 1.0), figure_run("bare", metrics={"work/a": 1.0})]
    drawn = draw_figure(replace(SCALING, x="system", series=()), runs, ())
    assert not drawn.table.rows and "No point:" in drawn.table.caption and "system=dgl" in drawn.table.caption
    drawn = draw_figure(replace(SCALING, panels=()), runs, ())
    assert "Not recorded, not drawn: time/epoch_s of bare." in drawn.table.caption and len(drawn.table.rows) == 1


def test_runs_that_differ_in_more_than_the_figure_tells_are_not_passed_off_as_seeds() -> None:
    runs = [figure_run("dgl", 1.0), figure_run("dgl", 3.0, dataset="pubmed")]
    drawn = draw_figure(replace(SCALING, panels=()), runs, ())
    assert "Runs that differ in dataset.name are averaged together." in drawn.table.caption
    assert "averaged together" not in draw_figure(SCALING, runs, ()).table.caption
