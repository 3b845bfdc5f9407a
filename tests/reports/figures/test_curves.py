"""A metric by epoch and by time: mean and interval over seeds, a curve per series, only epochs that were evaluated."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest

from gnnexp.record.runs import RecordedRun
from gnnexp.reports.figures.curves import curve_points, metric_of
from gnnexp.reports.figures.draw import draw_figure, usual_figures
from gnnexp.reports.figures.panels import Figure
from gnnexp.reports.tables.data import csv_of
from gnnexp.reports.tables.groups import group_runs

KEYS = ("dataset", "system")


def make_run(dataset: str, system: str, values: list[float | None], seconds: float = 2.0) -> RecordedRun:
    epochs = [
        {"time/epoch_s": seconds} if value is None else {"acc/test": value, "time/epoch_s": seconds} for value in values
    ]
    best = max(value for value in values if value is not None)
    return RecordedRun(
        Path("run"),
        {"dataset": {"name": dataset}, "system": system, "task": {"metric": "acc"}},
        {},
        epochs,
        {"acc/test": best, "acc/val": best},
        "finished",
    )


def both() -> list[RecordedRun]:
    return [
        make_run("cora", "a", [0.1, None, 0.5]),
        make_run("cora", "a", [0.3, None, 0.6], seconds=4.0),
        make_run("cora", "b", [0.2, 0.3, 0.4]),
        make_run("citeseer", "a", [0.7, 0.8, None]),
    ]


def test_curves_are_over_seeds_and_only_evaluated_epochs() -> None:
    group = group_runs(both(), KEYS)[0]
    first, last = curve_points(group, metric_of(group))
    assert (first.epoch, first.seconds, first.values) == (1, 3.0, (0.1, 0.3))
    assert (last.epoch, last.seconds, last.values) == (3, 9.0, (0.5, 0.6)), "6 s and 12 s of training"
    assert curve_points(group, "") == []


@pytest.mark.parametrize(
    ("by", "label", "ends"), [("epoch", "epoch", [3.0, 3.0]), ("time", "training time, seconds", [9.0, 6.0])]
)
def test_a_panel_per_dataset_and_a_line_per_system(by: str, label: str, ends: list[float]) -> None:
    drawn = draw_figure(Figure("accuracy", "curves", series=("system",), panels=("dataset",), by=by), both(), KEYS)
    cora, citeseer = drawn.canvas.axes
    assert (cora.get_title(), citeseer.get_title(), cora.get_xlabel()) == ("cora", "citeseer", label)
    assert [line.get_label() for line in cora.get_lines()] == ["a", "b"] and len(citeseer.get_lines()) == 1
    assert [line.get_xdata()[-1] for line in cora.get_lines()] == ends
    assert cora.get_lines()[0].get_ydata() == pytest.approx([20.0, 55.0]) and cora.get_ylabel() == "acc/test, %"
    assert cora.get_lines()[0].get_color() == citeseer.get_lines()[0].get_color(), "one system, one colour"
    assert drawn.table.texts[0] == ("cora", "a", "acc/test", "1", "3", "0.2 (0.1 to 0.3)")
    half = 12.706 * 0.1 * math.sqrt(2) / math.sqrt(2)  # of 0.1 and 0.3
    assert drawn.table.rows[0][-1].half_width == pytest.approx(half, rel=1e-4)
    header, first = csv.reader(csv_of(drawn.table).splitlines()[:2])
    assert header[4:] == ["seconds", "value mean", "value half_width", "value min", "value max", "value n"]
    assert list(map(float, first[3:])) == pytest.approx([1, 3.0, 0.2, half, 0.1, 0.3, 2], rel=1e-4)
    assert len(drawn.table.rows) == 2 + 3 + 2


def test_the_range_of_few_seeds_is_shaded_and_the_interval_of_many() -> None:
    for seeds in (2, 5):
        runs = [make_run("cora", "a", [0.5, 0.5 + 0.1 * (seed % 2), 0.5]) for seed in range(seeds)]
        (axes,) = draw_figure(Figure("accuracy", "curves", series=("system",)), runs, KEYS).canvas.axes
        corners = axes.collections[0].get_paths()[0].vertices
        low, high = (edge(y for x, y in corners if x == 2) for edge in (min, max))
        # Of 0, 1, 0, 1, 0 the deviation is sqrt(0.3), and the quantile is 2.776.
        middle, half = (54, 10 * 2.776445 * math.sqrt(0.3 / 5)) if seeds == 5 else (55, 5)
        assert (low, high) == pytest.approx((middle - half, middle + half), rel=1e-6)


def test_what_was_never_evaluated_or_timed_is_named() -> None:
    bare = RecordedRun(Path("run"), {"dataset": {"name": "cora"}, "system": "c"}, {}, [{}, {}], {}, "finished")
    untimed = replace(bare, config={**bare.config, "system": "d"}, epochs=[{"acc/test": 0.1}] * 2)
    figure = Figure("accuracy", "curves", ("acc/test",), series=("system",), panels=("dataset",), by="time")
    drawn = draw_figure(figure, [*both(), bare, untimed], KEYS)
    assert "Not recorded, not drawn: c on cora, d on cora." in drawn.table.caption
    assert len(drawn.canvas.axes[0].get_lines()) == 2


def test_the_usual_figures() -> None:
    runs = both()
    assert [(figure.name, figure.by) for figure in usual_figures(runs, KEYS)] == [
        ("breakdown", "epoch"),
        ("pareto", "epoch"),
        ("accuracy", "epoch"),
        ("accuracy_time", "time"),
    ]
    assert usual_figures(runs, KEYS)[1].y == ("time/epoch_s", "acc/test")
    for figure in usual_figures(runs, KEYS)[1:]:
        assert figure.panels == ("dataset",) and figure.series == ("system",)
    alone = [figure.name for figure in usual_figures(runs[:2], KEYS)]
    assert alone == ["breakdown", "accuracy", "accuracy_time"], "one system is no front"
    once = make_run("cora", "a", [None, None, 0.5])
    assert [figure.name for figure in usual_figures([once], KEYS)] == ["breakdown"], "one point is no curve"
    assert usual_figures([], KEYS) == []
