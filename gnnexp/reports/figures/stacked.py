"""The breakdown figure: the stacked phases of an epoch, one bar per kind of run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gnnexp.reports.figures.drawing import (
    BarPart,
    DrawnFigure,
    bars_width,
    draw_stack,
    finish_figure,
    name_bars,
    panel_figure,
)
from gnnexp.reports.figures.panels import Figure, Panel, caption_of, runs_of_panels
from gnnexp.reports.metrics import typical_epoch
from gnnexp.reports.tables.cells import NumberCell, TableCell, cell_text
from gnnexp.reports.tables.groups import RunGroup
from gnnexp.reports.tables.table import ReportTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours of Okabe and Ito's palette: colour-blind readers can distinguish them, also in grey.
_PARTS = (
    ("S  sample", "sample", "#0072B2"),
    ("N  negatives", "negatives", "#009E73"),
    ("L  load", "load", "#56B4E9"),
    ("FB  forward + backward", "fb", "#E69F00"),
    ("D  decoder, both ways", "decode", "#CC79A7"),
    ("sync", "sync", "#D55E00"),
    ("update", "update", "#999999"),
    ("wait for other ranks", "wait", "#DDDDDD"),
)
_WALL = "time/epoch_s"
_UNTOLD = " –: not recorded; it is a part of another phase (DDP waits and reduces inside of backward)."


def draw_stacked(figure: Figure, panels: Sequence[Panel]) -> DrawnFigure:
    """Stacked S / N / L / FB / D / sync / update / wait bars, one per series, with a line at the epoch's seconds.

    Bars are means over the ranks. Phases exclude each other, so the means add up to the mean epoch. (The table shows
    the slowest rank of each phase.) The line has the number of the table: the epoch of the slowest rank.
    """
    shown = [{name: group for name, group in panel.series.items() if group.runs} for panel in panels]
    canvas, spaces = panel_figure(panels, [bars_width(series) for series in shown], 3.8, legend_width=2.4)
    rows: list[tuple[TableCell, ...]] = []
    for axes, panel, series in zip(spaces, panels, shown, strict=True):
        _bars(axes, series)
        for name, group in series.items():
            rows.append(
                (
                    panel.title,
                    name,
                    *(NumberCell(seconds, ".6g") for seconds in (*_seconds(group).values(), group.mean(_WALL))),
                    NumberCell(len(group.runs), "d"),
                )
            )
    first = (
        f"Seconds in each phase, mean over the ranks: {typical_epoch(runs_of_panels(panels))}. Line and number: "
        "the epoch of the slowest rank, as in the table."
        + (_UNTOLD if any(cell_text(cell) == "–" for row in rows for cell in row) else "")
    )
    caption = caption_of(panels, first=first, seeds="Over several seeds: the mean.")
    finish_figure(canvas, caption)
    header = ("panel", "series", *(f"{name} s" for _, name, _ in _PARTS), "epoch s", "runs")
    return DrawnFigure(canvas, ReportTable(header, tuple(rows), caption))


def _bars(axes: Axes, series: Mapping[str, RunGroup]) -> None:
    places = list(range(len(series)))
    seconds = [_seconds(group) for group in series.values()]
    tops = draw_stack(
        axes,
        places,
        [BarPart(label, colour, [_drawn(of_group[name]) for of_group in seconds]) for label, name, colour in _PARTS],
    )
    walls = [group.mean(_WALL) for group in series.values()]
    axes.hlines(
        walls, [p - 0.36 for p in places], [p + 0.36 for p in places], colors="black", label="epoch, slowest rank"
    )
    for place, wall, top in zip(places, walls, tops, strict=True):
        if math.isfinite(wall):
            axes.annotate(
                f"{wall:.3g} s", (place, max(wall, top)), (0, 3), textcoords="offset points", ha="center", fontsize=8
            )
    name_bars(axes, series)
    axes.set_ylim(0, 1.15 * max([*tops, *(wall for wall in walls if math.isfinite(wall)), 1e-9]))
    axes.set_ylabel("seconds per epoch")


def _seconds(group: RunGroup) -> dict[str, float]:
    """Seconds of every part; NaN if the record does not have it. FB is shown without the decoder, which is in it."""
    seconds = {name: group.mean(f"time/{name}_s_mean") for _, name, _ in _PARTS}
    return {**seconds, "fb": seconds["fb"] - _drawn(seconds["decode"])}


def _drawn(seconds: float) -> float:
    return seconds if math.isfinite(seconds) else 0.0
