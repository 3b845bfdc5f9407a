"""Bars of several metrics: next to each other or stacked, counted zeros, what was not recorded, and failures."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from figure_runs import figure_run
from matplotlib.container import BarContainer

from gnnexp.reports.figures.draw import draw_figure
from gnnexp.reports.figures.drawing import save
from gnnexp.reports.figures.panels import Figure
from gnnexp.reports.tables.data import csv_of

BARS = Figure("bars", "bars", ("comm/bytes_features", "comm/bytes_gradients"), series=("system",))
RUNS = [
    figure_run("dgl", metrics={"comm/bytes_features": 3e6, "comm/bytes_gradients": 1e6}),
    figure_run("p3", metrics={"comm/bytes_gradients": 2e6}),
    figure_run("quiver", kind="out of memory"),
]


def heights(figure: Figure) -> list[list[float]]:
    (axes,) = draw_figure(figure, RUNS, ()).canvas.axes
    return [[bar.get_height() for bar in container] for container in axes.containers]


def test_a_purpose_without_traffic_is_a_counted_zero() -> None:
    assert heights(BARS)[0][:2] == [3.0, 0.0] and heights(BARS)[1][:2] == [1.0, 2.0], "MB"
    drawn = draw_figure(BARS, RUNS, ())
    assert [row[1:4] for row in drawn.table.texts] == [
        ("dgl", "comm/bytes_features", "3e+06"),
        ("dgl", "comm/bytes_gradients", "1e+06"),
        ("p3", "comm/bytes_features", "0"),
        ("p3", "comm/bytes_gradients", "2e+06"),
    ]
    assert csv_of(drawn.table).splitlines()[:2] == [
        "panel,series,metric,value mean,value half_width,value min,value max,value n",
        ",dgl,comm/bytes_features,3000000.0,,3000000.0,3000000.0,1",
    ]


@pytest.mark.parametrize(
    ("values", "below", "above"),
    [
        ((1.0, 2.0, 6.0), 2.0, 3.0),
        ((1.0, 2.0, 3.0, 4.0, 5.0), 2.776445 * math.sqrt(2.5 / 5), 2.776445 * math.sqrt(2.5 / 5)),
    ],
)
def test_a_bar_has_the_range_of_few_seeds_and_the_interval_of_many(
    values: tuple[float, ...], below: float, above: float
) -> None:
    runs = [
        figure_run("dgl", seed=seed, metrics={"comm/bytes_features": 1e6 * value}) for seed, value in enumerate(values)
    ]
    (axes,) = draw_figure(replace(BARS, y=("comm/bytes_features",)), runs, ()).canvas.axes
    (bars,) = (container for container in axes.containers if isinstance(container, BarContainer))
    assert [bar.get_height() for bar in bars] == [3.0]
    (low, high), *_ = (line.get_segments()[0][:, 1] for line in bars.errorbar.lines[2])
    assert (low, high) == pytest.approx((3 - below, 3 + above), rel=1e-6)


def test_stacked() -> None:
    (axes,) = draw_figure(replace(BARS, stacked=True), RUNS, ()).canvas.axes
    features, gradients = axes.containers
    assert [bar.get_y() for bar in gradients][:2] == [3.0, 0.0] and [bar.get_y() for bar in features][:2] == [0.0, 0.0]
    assert axes.get_ylabel() == "MB"


def test_what_failed_or_was_not_recorded_is_said() -> None:
    drawn = draw_figure(replace(BARS, y=("work/a", "comm/bytes_gradients")), RUNS, ())
    (axes,) = drawn.canvas.axes
    assert [text.get_text() for text in axes.texts] == ["OOM"]
    assert "Not recorded, not drawn: work/a of all." in drawn.table.caption
    assert "Failed: quiver (OOM)." in drawn.table.caption
    assert len(axes.containers) == 1, "no bar and no name in the legend"
    assert axes.get_ylabel() == "see legend", "counts and MB"


def test_the_same_figure_is_the_same_file(tmp_path: Path) -> None:
    files = [
        file for name in "ab" for file in save({"bars": draw_figure(BARS, RUNS, ()).canvas}, tmp_path / name, "title")
    ]
    png, svg, other_png, other_svg = (file.read_bytes() for file in files)
    assert png == other_png and svg == other_svg and svg.startswith(b"<?xml")
