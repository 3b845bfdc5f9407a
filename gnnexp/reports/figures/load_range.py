"""How even the ranks' loads are: bars from the least to the most loaded rank, with a dash at the mean."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gnnexp.errors import DataError
from gnnexp.measure.phases import FORWARD_BACKWARD
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.figures.drawing import DrawnFigure, bars_width, colour_of, finish_figure, name_bars, panel_figure
from gnnexp.reports.figures.panels import Figure, Panel, caption_of, runs_of_panels, series_names
from gnnexp.reports.metrics import axis_of, typical_epoch
from gnnexp.reports.tables.cells import NumberCell, TableCell
from gnnexp.reports.tables.groups import RunGroup
from gnnexp.reports.tables.table import ReportTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Load(NamedTuple):
    """The load of the ranks in an epoch."""

    least: float
    mean: float
    most: float


def draw_load_range(figure: Figure, panels: Sequence[Panel]) -> DrawnFigure:
    """A bar per series, with the ratio of most to mean above it."""
    metric, names = figure.y[0], series_names(panels)
    label, factor = axis_of(metric)
    canvas, spaces = panel_figure(panels, [bars_width(panel.series) for panel in panels], 3.6, legend_width=0.8)
    rows, lacking = list[tuple[TableCell, ...]](), []
    for axes, panel in zip(spaces, panels, strict=True):
        loads = {name: load for name, group in panel.series.items() if (load := load_of(group, metric)) is not None}
        lacking += [name for name, group in panel.series.items() if group.runs and name not in loads]
        _bars(axes, loads, factor, [names.index(name) for name in loads])
        axes.set_ylabel(f"{label}, by rank")
        rows += [
            (
                panel.title,
                name,
                metric,
                *(NumberCell(value, ".6g") for value in load),
                NumberCell(load.most / load.mean if load.mean else math.nan, ".4f"),
            )
            for name, load in loads.items()
        ]
    first = (
        f"{metric} of the least and of the most loaded rank. Dash: mean over the ranks. Number above: most / "
        f"mean. {typical_epoch(runs_of_panels(panels)).capitalize()}."
    )
    if lacking:
        first += f" Not recorded by rank, not drawn: {', '.join(dict.fromkeys(lacking))}."
    caption = caption_of(panels, first=first, seeds="Over several seeds: the mean.")
    finish_figure(canvas, caption)
    header = ("panel", "series", "metric", "least", "mean", "most", "most / mean")
    return DrawnFigure(canvas, ReportTable(header, tuple(rows), caption))


def load_of(group: RunGroup, metric: str) -> Load | None:
    """The load in the typical epoch, mean over the runs; None if no rank of any run recorded the metric."""
    loads = [load for run in group.runs if (load := _load(run, metric)) is not None]
    return Load(*map(statistics.fmean, zip(*loads, strict=True))) if loads else None


def _load(run: RecordedRun, metric: str) -> Load | None:
    """Medians over the epochs after the first. Epochs with another number of ranks, or a stop inside, are left out."""
    try:
        lines = run.lines()
    except (OSError, DataError):
        return None
    whole = [
        line["ranks"]
        for line in lines[1:] or lines
        if line.get("ranks") and len(line["ranks"]) == len(lines[-1]["ranks"]) and not line.get("resumed")
    ]
    epochs = [[value for rank in ranks if (value := rank_value(rank, metric)) is not None] for ranks in whole]
    full = [values for values, ranks in zip(epochs, whole, strict=True) if len(values) == len(ranks)]
    if not full:
        return None
    return Load(
        statistics.median(map(min, full)),
        statistics.median(map(statistics.fmean, full)),
        statistics.median(map(max, full)),
    )


def rank_value(rank: Mapping[str, Any], metric: str) -> float | None:
    """A metric of one rank in one epoch; None if the rank's record does not have it."""
    room, _, name = metric.partition("/")
    if room == "time":
        return _seconds(rank["times"], name.removesuffix("_s"))
    if room == "comm" and name.startswith("bytes_"):
        # No entry means no traffic for this purpose, so the count is 0.
        return float(rank["traffic"].get(name.removeprefix("bytes_"), {}).get("sent_bytes", 0))
    if room == "memory":
        value = rank.get("memory", {}).get(name)
    else:
        value = rank["work"].get(name if room == "work" else metric)
    return None if value is None else float(value)


def _seconds(times: Mapping[str, Any], name: str) -> float | None:
    phases = times["phases"]
    if name in ("fb", "compute"):
        wanted = FORWARD_BACKWARD if name == "fb" else (*FORWARD_BACKWARD, "update")
        return float(sum(phases.get(phase, 0.0) for phase in wanted))
    found = phases.get(name, times.get(f"{name}_s"))
    return float(found) if isinstance(found, int | float) else None


def _bars(axes: Axes, loads: Mapping[str, Load], factor: float, numbers: Sequence[int]) -> None:
    for place, (load, number) in enumerate(zip(loads.values(), numbers, strict=True)):
        # The edge keeps a bar visible if all ranks have the same load.
        axes.bar(
            place,
            factor * (load.most - load.least),
            0.5,
            factor * load.least,
            color=colour_of(number),
            edgecolor=colour_of(number),
            linewidth=1.5,
        )
        axes.hlines(factor * load.mean, place - 0.32, place + 0.32, colors="black", linewidth=1.5)
        if load.mean:
            axes.annotate(
                f"{load.most / load.mean:.2f}",
                (place, factor * load.most),
                (0, 4),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
    name_bars(axes, loads)
    axes.set_ylim(0, 1.12 * max([factor * load.most for load in loads.values()], default=1.0) or 1.0)
