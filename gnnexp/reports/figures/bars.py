"""Bars of one or several metrics, one group of bars per series, side by side or stacked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gnnexp.reports.figures.drawing import (
    BarPart,
    DrawnFigure,
    bars_width,
    colour_of,
    draw_stack,
    finish_figure,
    name_bars,
    panel_figure,
    whiskers,
)
from gnnexp.reports.figures.panels import Figure, Panel, caption_of
from gnnexp.reports.metrics import axis_of, values_of
from gnnexp.reports.tables.cells import StatisticsCell
from gnnexp.reports.tables.table import ReportTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_bars(figure: Figure, panels: Sequence[Panel]) -> DrawnFigure:
    """Means over seeds with their interval. A series that failed shows its verdict in the place of its bars."""
    canvas, spaces = panel_figure(panels, [bars_width(panel.series) for panel in panels], 3.6, legend_width=2.6)
    rows = []
    for axes, panel in zip(spaces, panels, strict=True):
        cells = [
            [StatisticsCell(tuple(values_of(group.runs, metric)), ".6g") for group in panel.series.values()]
            for metric in figure.y
        ]
        (_stacked if figure.stacked else _grouped)(axes, figure, cells)
        name_bars(axes, panel.series)
        _verdicts(axes, panel)
        _scale(axes, figure)
        for number, name in enumerate(panel.series):
            rows += [
                (panel.title, name, metric, of_metric[number])
                for metric, of_metric in zip(figure.y, cells, strict=True)
                if of_metric[number].values
            ]
    caption = caption_of(panels, figure.y)
    finish_figure(canvas, caption)
    return DrawnFigure(canvas, ReportTable(("panel", "series", "metric", "value"), tuple(rows), caption))


Cells = Sequence[Sequence[StatisticsCell]]  # by metric and series


def _grouped(axes: Axes, figure: Figure, cells: Cells) -> None:
    width = 0.8 / len(figure.y)
    for number, (metric, of_metric) in enumerate(zip(figure.y, cells, strict=True)):
        label, factor = axis_of(metric)
        places = [place + width * (number + 0.5) - 0.4 for place in range(len(of_metric))]
        if not any(cell.values for cell in of_metric):
            continue  # the caption names it
        axes.bar(
            places,
            [factor * cell.mean for cell in of_metric],
            width,
            color=colour_of(number),
            label=label,
            yerr=whiskers(of_metric, factor),
            capsize=2,
        )


def _stacked(axes: Axes, figure: Figure, found: Cells) -> None:
    """Stacked bars. A metric that was not recorded has height 0, and the caption names it."""
    parts = []
    for number, (metric, of_metric) in enumerate(zip(figure.y, found, strict=True)):
        label, factor = axis_of(metric)
        heights = [factor * cell.mean if cell.values else 0.0 for cell in of_metric]
        parts.append(BarPart(label, colour_of(number), heights))
    draw_stack(axes, range(len(found[0])), parts)


def _verdicts(axes: Axes, panel: Panel) -> None:
    for place, group in enumerate(panel.series.values()):
        if not group.runs:
            axes.annotate(group.verdict, (place, 0), (0, 4), textcoords="offset points", ha="center", fontsize=8)


def _scale(axes: Axes, figure: Figure) -> None:
    labels = list(dict.fromkeys(axis_of(metric)[0] for metric in figure.y))
    units = {label.rpartition(", ")[2] if ", " in label else "per epoch" for label in labels}
    axes.set_ylabel(labels[0] if len(labels) == 1 else units.pop() if len(units) == 1 else "see legend")
    if "y" in figure.log:
        axes.set_yscale("log")
