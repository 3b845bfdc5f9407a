"""A metric by epoch or by time of training: mean and 95 % interval."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnexp.record.runs import RecordedRun
from gnnexp.reports.figures.drawing import DrawnFigure, colour_of, finish_figure, panel_figure
from gnnexp.reports.figures.panels import Figure, Panel, caption_of, series_names
from gnnexp.reports.metrics import axis_of, epoch_value
from gnnexp.reports.tables.cells import NumberCell, StatisticsCell, TableCell
from gnnexp.reports.tables.groups import RunGroup
from gnnexp.reports.tables.table import ReportTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class CurvePoint:
    """One point of a curve: the state after one epoch.

    Attributes:
        epoch: number of the epoch, from 1.
        seconds: training time up to the end of the epoch, mean over the runs; NaN if a run did not record it.
        values: the metric in each run that has this epoch.
    """

    epoch: int
    seconds: float
    values: tuple[float, ...]


def draw_curves(figure: Figure, panels: Sequence[Panel]) -> DrawnFigure:
    """A line per series through the evaluated epochs; the interval over its runs is shaded."""
    names, by_time = series_names(panels), figure.by == "time"
    canvas, spaces = panel_figure(panels, [3.4] * len(panels), 3.6, legend_width=1.8)
    rows, metrics, lacking = [], set(), []
    for axes, panel in zip(spaces, panels, strict=True):
        drawn = set()
        for name, group in panel.series.items():
            metric = figure.y[0] if figure.y else metric_of(group)
            curve = curve_points(group, metric)
            if not curve or (by_time and any(math.isnan(moment.seconds) for moment in curve)):
                lacking += [f"{name} on {panel.title}" if panel.title else name] if group.runs else []
                continue
            _curve(axes, curve, axis_of(metric)[1], name, names.index(name), by_time=by_time)
            drawn.add(axis_of(metric)[0])
            metrics.add(metric)
            rows += [(panel.title, name, metric, *_cells(moment)) for moment in curve]
        if any(label.endswith(", %") for label in drawn):  # the interval of two seeds may exceed 0 to 100
            low, high = axes.get_ylim()
            axes.set_ylim(max(low, 0.0), min(high, 100.0))
        axes.set_ylabel(min(drawn) if len(drawn) == 1 else "test metric")
        axes.set_xlabel("training time, seconds" if by_time else "epoch")
        if not by_time:
            axes.locator_params("x", integer=True)
    caption = caption_of(panels, first=_first(figure, sorted(metrics), lacking))
    finish_figure(canvas, caption)
    header = ("panel", "series", "metric", "epoch", "seconds", "value")
    return DrawnFigure(canvas, ReportTable(header, tuple(rows), caption))


def metric_of(group: RunGroup) -> str:
    """The task's own metric on the test vertices or links; empty if nothing was evaluated."""
    return next((name for run in group.runs if (name := run.best("test")[0])), "")


def curve_points(group: RunGroup, metric: str) -> list[CurvePoint]:
    """A moment for every epoch in which at least one run of the group has the metric."""
    curves = [_points(run, metric) for run in group.runs]
    epochs = sorted({epoch for curve in curves for epoch in curve})
    return [
        CurvePoint(
            epoch,
            statistics.fmean(curve[epoch][0] for curve in curves if epoch in curve),
            tuple(curve[epoch][1] for curve in curves if epoch in curve),
        )
        for epoch in epochs
    ]


def _points(run: RecordedRun, metric: str) -> dict[int, tuple[float, float]]:
    """Seconds so far and the metric's value, by epoch from 1."""
    seconds = itertools.accumulate(epoch.get("time/epoch_s", math.nan) for epoch in run.epochs)
    return {
        number: (so_far, value)
        for number, (so_far, epoch) in enumerate(zip(seconds, run.epochs, strict=True), 1)
        if metric and not math.isnan(value := epoch_value(epoch, metric))
    }


def _curve(axes: Axes, curve: Sequence[CurvePoint], factor: float, name: str, number: int, *, by_time: bool) -> None:
    places = [moment.seconds if by_time else float(moment.epoch) for moment in curve]
    cells = [StatisticsCell(moment.values, ".6g") for moment in curve]
    means = [factor * cell.mean for cell in cells]
    few = len(curve) <= 12
    axes.plot(
        places, means, label=name, color=colour_of(number), linewidth=1.3, marker="o" if few else "", markersize=3
    )
    axes.fill_between(
        places,
        [factor * cell.bounds[0] for cell in cells],
        [factor * cell.bounds[1] for cell in cells],
        color=colour_of(number),
        alpha=0.2,
        linewidth=0,
    )


def _cells(moment: CurvePoint) -> tuple[TableCell, ...]:
    return (NumberCell(moment.epoch, "d"), NumberCell(moment.seconds, ".6g"), StatisticsCell(moment.values, ".6g"))


def _first(figure: Figure, metrics: Sequence[str], lacking: Sequence[str]) -> str:
    what = " and ".join(metrics) or " ".join(figure.y) or "the task's metric"
    along = (
        "seconds of training so far (the sum of all epochs without evaluation, mean over the runs)"
        if figure.by == "time"
        else "epoch"
    )
    left_out = f" Not recorded, not drawn: {', '.join(lacking)}." if lacking else ""
    return f"{what} after each epoch that was evaluated, by {along}.{left_out}"
