"""Lines: a metric against a number of the configuration, such as scaling curves or memory by chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnexp.reports.figures.drawing import DrawnFigure, colour_of, finish_figure, mark_of, panel_figure, whiskers
from gnnexp.reports.figures.panels import Figure, Panel, caption_of, series_names
from gnnexp.reports.metrics import axis_of, values_of
from gnnexp.reports.tables.cells import NumberCell, StatisticsCell
from gnnexp.reports.tables.groups import RunGroup, group_runs
from gnnexp.reports.tables.table import ReportTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

_FEW = 10  # up to this many places along an axis are all named
_FARTHEST = 3.0  # the y axis ends at most at this many times the outermost mean, although an interval may reach farther


@dataclass(frozen=True)
class Point:
    """One point of a line.

    Attributes:
        x: place along the axis.
        cell: the metric over the runs.
    """

    x: float
    cell: StatisticsCell


def draw_lines(figure: Figure, panels: Sequence[Panel]) -> DrawnFigure:
    """A line per series, with a point for each value of `figure.x`; dotted: the ideal, from the line's first point."""
    metric, names = figure.y[0], series_names(panels)
    label, factor = axis_of(metric)
    canvas, spaces = panel_figure(panels, [3.4] * len(panels), 3.6, legend_width=1.8)
    rows, left_out = [], []
    for axes, panel in zip(spaces, panels, strict=True):
        places: set[float] = set()
        means: list[float] = []
        for name, group in panel.series.items():
            points, others = points_of_line(group, figure.x, metric)
            left_out += [f"{name} with {figure.x}={value}" for value in others]
            number = names.index(name)
            places |= {point.x for point in points}
            means += [point.cell.mean for point in points]
            _line(axes, points, factor, name, number)
            if figure.ideal and points:
                means += _ideal(axes, points, factor, number)
            rows += [(panel.title, name, NumberCell(point.x, "g"), metric, point.cell) for point in points]
        _scales(axes, figure, sorted(places), [factor * mean for mean in means])
        axes.set_xlabel(figure.x)
        axes.set_ylabel(label)
    together = [
        place for panel in panels for group in panel.series.values() for place in group_runs(group.runs, (figure.x,))
    ]
    caption = caption_of(panels, figure.y, places=together) + _notes(figure, left_out)
    finish_figure(canvas, caption)
    return DrawnFigure(canvas, ReportTable(("panel", "series", figure.x, "metric", "value"), tuple(rows), caption))


def points_of_line(group: RunGroup, x: str, metric: str) -> tuple[list[Point], list[str]]:
    """The points of a line from left to right, and the values of `x` that have no point."""
    points, others = [], []
    for place in group_runs((*group.runs, *group.failed), (x,)):
        values = values_of(place.runs, metric)
        at = _number(place.labels[0])
        if values and at is not None:
            points.append(Point(at, StatisticsCell(tuple(values), ".6g")))
        else:
            others.append(place.labels[0])
    return sorted(points, key=lambda point: point.x), others


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _line(axes: Axes, points: Sequence[Point], factor: float, name: str, number: int) -> None:
    axes.errorbar(
        [point.x for point in points],
        [factor * point.cell.mean for point in points],
        whiskers([point.cell for point in points], factor),
        label=name,
        color=colour_of(number),
        marker=mark_of(number),
        markersize=4,
        linewidth=1.3,
        capsize=2,
    )


def _ideal(axes: Axes, points: Sequence[Point], factor: float, number: int) -> list[float]:
    """Draw the ideal line, and return its values in the record's units."""
    first = points[0]
    ideal = [first.cell.mean * first.x / point.x for point in points]
    axes.plot(
        [point.x for point in points], [factor * value for value in ideal], ":", color=colour_of(number), linewidth=1.0
    )
    return ideal


def _scales(axes: Axes, figure: Figure, places: Sequence[float], means: Sequence[float]) -> None:
    """Set scales and limits by the means, since the interval of two seeds may be many times wider."""
    if "x" in figure.log and places:
        axes.set_xscale("log", base=2)
    if 0 < len(places) <= _FEW:
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.minorticks_off()
    if "y" in figure.log and places:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        positive = [mean for mean in means if mean > 0]
        axes.set_ylim(max(low, min(positive, default=low) / _FARTHEST), min(high, max(means) * _FARTHEST))
    elif places:
        axes.set_ylim(0, min(axes.get_ylim()[1], max(means) * _FARTHEST) or 1.0)


def _notes(figure: Figure, left_out: Sequence[str]) -> str:
    notes = []
    if figure.ideal:
        notes.append("Dotted: the ideal, which falls as 1 / x from a line's first point.")
    if left_out:
        notes.append(f"No point: {', '.join(left_out)}.")
    return "".join(f" {note}" for note in notes)
