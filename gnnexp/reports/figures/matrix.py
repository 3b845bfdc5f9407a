"""Speed-up matrix: a heat map of how many times less the row needs than the column, with numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gnnexp.reports.figures.drawing import DrawnFigure, finish_figure, panel_figure
from gnnexp.reports.figures.panels import Figure, Panel, caption_of
from gnnexp.reports.metrics import mean_and_interval, values_of
from gnnexp.reports.tables.cells import NumberCell
from gnnexp.reports.tables.groups import RunGroup
from gnnexp.reports.tables.table import ReportTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Brown to blue-green through white: colour-blind readers can distinguish them.
_COLOURS = "BrBG"
# Colours cover at least this factor on both sides of 1, so that noise does not look like a speed-up.
_LEAST_SPAN = 1.25
# Letters are white beyond this share of the way from the middle to either end.
_DARK = 0.6


def draw_matrix(figure: Figure, panels: Sequence[Panel]) -> DrawnFigure:
    """Ratios of means over seeds: the column's metric divided by the row's."""
    metric = figure.y[0]
    sizes = [max(2.0, 0.75 * len(panel.series)) for panel in panels]
    height = 1.2 + max(sizes, default=2.0)
    canvas, spaces = panel_figure(panels, [size + 0.6 for size in sizes], height, legend_width=1.0)
    ratios = [_ratios(list(panel.series.values()), metric) for panel in panels]
    known = [ratio for of_panel in ratios for line in of_panel for ratio in line if ratio > 0]
    span = max([_LEAST_SPAN, *known, *(1 / ratio for ratio in known)])
    for axes, panel, of_panel in zip(spaces, panels, ratios, strict=True):
        _heat(axes, panel, of_panel, span)
    rows = [
        (panel.title, row, column, metric, NumberCell(ratio, ".4f"))
        for panel, of_panel in zip(panels, ratios, strict=True)
        for row, line in zip(panel.series, of_panel, strict=True)
        for column, ratio in zip(panel.series, line, strict=True)
        if not math.isnan(ratio)
    ]
    caption = (
        f"How many times less the row has than the column (above 1: the row is ahead). {caption_of(panels, [metric])}"
    )
    finish_figure(canvas, caption)
    return DrawnFigure(canvas, ReportTable(("panel", "row", "column", "metric", "column / row"), tuple(rows), caption))


def _ratios(groups: Sequence[RunGroup], metric: str) -> list[list[float]]:
    """The column's mean divided by the row's; NaN for seconds of different kinds of machine: not comparable."""
    means = [mean_and_interval(values_of(group.runs, metric))[0] for group in groups]
    kinds = [{run.machine for run in group.runs} if "time/" in metric else set() for group in groups]
    return [
        [
            column / row if row and of_row == of_column else math.nan
            for column, of_column in zip(means, kinds, strict=True)
        ]
        for row, of_row in zip(means, kinds, strict=True)
    ]


def _heat(axes: Axes, panel: Panel, ratios: Sequence[Sequence[float]], span: float) -> None:
    from matplotlib.colors import LogNorm

    names = list(panel.series)
    axes.imshow(ratios, cmap=_COLOURS, norm=LogNorm(1 / span, span))
    axes.set_xticks(range(len(names)), names, fontsize=8, rotation=35, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.spines[["left", "bottom"]].set_visible(False)
    verdicts = [group.verdict if not group.runs else "–" for group in panel.series.values()]
    for row, line in enumerate(ratios):
        for column, ratio in enumerate(line):
            known = not math.isnan(ratio)
            text = f"{ratio:.2f}" if known else verdicts[row] if verdicts[row] != "–" else verdicts[column]
            dark = known and abs(math.log(ratio)) > _DARK * math.log(span)
            axes.text(column, row, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
