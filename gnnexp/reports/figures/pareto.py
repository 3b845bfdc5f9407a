"""Two metrics against each other: a point per series, and the front of those that no other beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from gnnexp.measure.merit import lower_is_better
from gnnexp.reports.figures.drawing import DrawnFigure, colour_of, finish_figure, mark_of, panel_figure, whiskers
from gnnexp.reports.figures.panels import Figure, Panel, caption_of, series_names
from gnnexp.reports.metrics import axis_of, values_of
from gnnexp.reports.tables.cells import StatisticsCell, TableCell
from gnnexp.reports.tables.table import ReportTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class ParetoPoint(NamedTuple):
    """A series: its two metrics over the runs."""

    name: str
    x: StatisticsCell
    y: StatisticsCell


def draw_pareto(figure: Figure, panels: Sequence[Panel]) -> DrawnFigure:
    """A point per series. Filled: no other series is at least as good in both metrics, and better in one."""
    names = series_names(panels)
    canvas, spaces = panel_figure(panels, [3.4] * len(panels), 3.6, legend_width=1.8)
    rows: list[tuple[TableCell, ...]] = []
    for axes, panel in zip(spaces, panels, strict=True):
        points = points_of_panel(panel, figure.y)
        front = front_of(points, figure.y)
        _draw(axes, figure, points, front, names)
        rows += [(panel.title, point.name, point.x, point.y, "yes" if point in front else "no") for point in points]
    caption = (
        f"{' and '.join(figure.y)}: filled points are on the front, which no other series beats in both. "
        f"{caption_of(panels, figure.y)}"
    )
    finish_figure(canvas, caption)
    header = ("panel", "series", *figure.y, "on the front")
    return DrawnFigure(canvas, ReportTable(header, tuple(rows), caption))


def points_of_panel(panel: Panel, metrics: Sequence[str]) -> list[ParetoPoint]:
    """The series that have both metrics."""
    points = []
    for name, group in panel.series.items():
        x, y = (StatisticsCell(tuple(values_of(group.runs, metric)), ".6g") for metric in metrics)
        if x.values and y.values:
            points.append(ParetoPoint(name, x, y))
    return points


def front_of(points: Sequence[ParetoPoint], metrics: Sequence[str]) -> list[ParetoPoint]:
    """The points that no other is at least as good as in both metrics and better than in one, from left to right."""
    costs = {point.name: [_cost(*pair) for pair in zip(point[1:], metrics, strict=True)] for point in points}

    def is_beaten(point: ParetoPoint) -> bool:
        own = costs[point.name]
        as_good = [other for other in costs.values() if all(a <= b for a, b in zip(other, own, strict=True))]
        return any(other != own for other in as_good)

    return sorted((point for point in points if not is_beaten(point)), key=lambda point: point.x.mean)


def _cost(cell: StatisticsCell, metric: str) -> float:
    """The mean, or its negative if more is better: a task's metric that is no error."""
    room, _, split = metric.partition("/")
    more_is_better = split in ("val", "test") and room != "loss" and not lower_is_better(metric)
    return -cell.mean if more_is_better else cell.mean


def _draw(
    axes: Axes, figure: Figure, points: Sequence[ParetoPoint], front: Sequence[ParetoPoint], names: Sequence[str]
) -> None:
    (x_label, x_factor), (y_label, y_factor) = map(axis_of, figure.y)
    axes.plot(
        [x_factor * point.x.mean for point in front],
        [y_factor * point.y.mean for point in front],
        color="#999999",
        linewidth=0.8,
        zorder=1,
    )
    for point in points:
        number = names.index(point.name)
        axes.errorbar(
            x_factor * point.x.mean,
            y_factor * point.y.mean,
            yerr=_lengths(point.y, y_factor),
            xerr=_lengths(point.x, x_factor),
            label=point.name,
            color=colour_of(number),
            marker=mark_of(number),
            markersize=6,
            markerfacecolor=colour_of(number) if point in front else "none",
            linewidth=0.8,
            capsize=2,
        )
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    for axis in figure.log:
        (axes.set_xscale if axis == "x" else axes.set_yscale)("log")


def _lengths(cell: StatisticsCell, factor: float) -> list[list[float]] | None:
    lengths = whiskers([cell], factor)
    return None if lengths is None else [list(side) for side in lengths]
