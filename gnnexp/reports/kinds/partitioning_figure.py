"""Figures of the report `partitioning`: copies (SDT-GNN, Figure 6), time and memory (Figures 7 and 9)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gnnexp.record.runs import Run
from gnnexp.reports.figures.drawing import colour_of, empty_figure, save
from gnnexp.reports.kinds.partitioning import Partitioned, find_partitions, slowdown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANELS = 3  # in a row


def draw(runs: Sequence[Run], folder: Path, title: str = "") -> list[Path]:
    """Save `replication` and `cost` as png and svg; the files.

    `replication`: copies per vertex, a panel per graph, a group of bars per number of parts. `cost`: of the fewest
    parts of every graph, a group of bars per graph.
    """
    found = find_partitions(runs)
    if not found:
        return []
    return save({"replication": _replication(found), "cost": _cost(found)}, folder, title)


# --- Figure 6 --------------------------------------------------------------------------------------------------------
def _replication(found: Sequence[Partitioned]) -> Figure:
    """Bars: one home and full neighbours; dashes: the artifact's accounting. Collapsed partitions are hatched."""
    graphs = list(dict.fromkeys(one.graph for one in found))
    across = min(_PANELS, len(graphs))
    rows = -(-len(graphs) // across)
    figure = empty_figure(2.0 + 4.0 * across, 0.6 + 2.9 * rows)
    panels = figure.subplots(rows, across, squeeze=False).flatten()
    names = _names(found)
    for axes, graph in zip(panels, graphs, strict=False):
        _draw_copies(axes, [one for one in found if one.graph == graph], names)
    for axes in panels[len(graphs):]:
        axes.set_visible(False)
    _legend(figure, names)
    return figure


def _draw_copies(axes: Axes, found: Sequence[Partitioned], names: Sequence[str]) -> None:
    parts = sorted({one.parts for one in found})
    for one in found:
        number, place = names.index(one.partitioner), _place(parts.index(one.parts), one.partitioner, names)
        axes.bar(place, one.quality["replication_full"], 0.8 / len(names), color=colour_of(number),
                 hatch="////" if one.collapsed else None, edgecolor="white", linewidth=0)
        axes.scatter(place, one.quality["replication_artifact"], marker="_", color="black", s=300 / len(names))
    axes.set_xticks(range(len(parts)), [f"p = {count}" for count in parts])
    axes.set_ylim(bottom=1.0)  # no partition has fewer copies than vertices
    axes.set_ylabel("copies per vertex: full (bar),\nartifact (dash); hatched: collapsed", fontsize=7)
    axes.set_title(found[0].dataset, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)


# --- Figures 7 and 9 -------------------------------------------------------------------------------------------------
def _cost(found: Sequence[Partitioned]) -> Figure:
    """Seconds in units of SPRING's (above), memory added in units of the edges' (below), both logarithmic."""
    fewest = {graph: min(one.parts for one in found if one.graph == graph) for graph in (one.graph for one in found)}
    shown = [one for one in found if one.parts == fewest[one.graph]]
    titles = {one.graph: f"{one.dataset}\np = {one.parts}" for one in shown}
    figure = empty_figure(max(6.5, 2.5 + 1.3 * len(titles), 3.0 + 0.2 * len(shown)), 6.0)
    times, memory = figure.subplots(2, 1, sharex=True)
    _draw_ratios(times, shown, lambda one: slowdown(one, found),
                 "seconds in units of SPRING's\n(not of collapsed partitions)")
    _draw_ratios(memory, shown, _memory, "memory added, in units of\nthe edges' 8 bytes each")
    memory.set_xticks(range(len(titles)), [*titles.values()], fontsize=8)
    _legend(figure, _names(shown))
    return figure


def _memory(one: Partitioned) -> float | None:
    """In units of the raw graph's."""
    return one.added_bytes / one.data_bytes if one.added_bytes is not None and one.data_bytes else None


def _draw_ratios(
    axes: Axes, shown: Sequence[Partitioned], value_of: Callable[[Partitioned], float | None], label: str
) -> None:
    """Bars from 1 up or down."""
    from matplotlib.ticker import LogLocator

    graphs, names = list(dict.fromkeys(one.graph for one in shown)), _names(shown)
    for one in shown:
        if value := value_of(one):  # a logarithmic scale has no zero
            axes.bar(_place(graphs.index(one.graph), one.partitioner, names), value - 1.0, 0.8 / len(names), 1.0,
                     color=colour_of(names.index(one.partitioner)))
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    axes.set_ylabel(label, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _names(found: Sequence[Partitioned]) -> list[str]:
    return list(dict.fromkeys(one.partitioner for one in found))


def _place(group: int, name: str, names: Sequence[str]) -> float:
    """Middle of the bar of `name` in the `group`th group."""
    return group + 0.8 * ((names.index(name) + 0.5) / len(names) - 0.5)


def _legend(figure: Figure, names: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=colour_of(number), label=name) for number, name in enumerate(names)]
    figure.legend(handles=handles, frameon=False, fontsize=8, loc="outside right center")
