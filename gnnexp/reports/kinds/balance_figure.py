"""Figures of the report `balance`: load by rank (NeutronTP, Figures 3 and 10), collectives by layers (Figure 8)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gnnexp.record.runs import Run
from gnnexp.reports.figures.drawing import colour_of, empty_figure, save
from gnnexp.reports.kinds.balance import Balance, find_balances

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(runs: Sequence[Run], folder: Path, title: str = "") -> list[Path]:
    """Save `balance` and, where runs differ in their number of layers, `collectives`, as png and svg; the files."""
    balances = find_balances(runs)
    if not balances:
        return []
    figures = {"balance": _loads(balances)}
    if len({balance.layers for balance in balances}) > 1:
        figures["collectives"] = _collectives(balances)
    return save(figures, folder, title)


def _loads(balances: Sequence[Balance]) -> Figure:
    """Edges computed (above) and bytes sent but for gradients (below), a group of bars per setting, a bar per rank."""
    figure = empty_figure(max(6.5, 2.0 + 1.1 * len(balances)), 6.0)
    edges, sent = figure.subplots(2, 1, sharex=True)
    _draw_bars(edges, balances, [[float(rank.edges) for rank in one.ranks] for one in balances])
    _draw_bars(sent, balances, [[float(rank.sent_bytes) for rank in one.ranks] for one in balances])
    _hatch(edges, balances)
    edges.set_ylabel("edges computed\n(hatched: redundant)")
    sent.set_ylabel("bytes sent\n(without gradients)")
    edges.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _draw_bars(axes: Axes, balances: Sequence[Balance], heights: Sequence[Sequence[float]]) -> None:
    for rank in range(max(map(len, heights))):
        having = [number for number, values in enumerate(heights) if rank < len(values)]
        places, widths = zip(*(_place(number, rank, len(heights[number])) for number in having), strict=True)
        axes.bar(places, [heights[number][rank] for number in having], widths, label=f"rank {rank}",
                 color=colour_of(rank))
    axes.set_xticks(range(len(balances)), [one.name(balances) for one in balances], fontsize=7, rotation=20, ha="right")
    axes.spines[["top", "right"]].set_visible(False)


def _hatch(axes: Axes, balances: Sequence[Balance]) -> None:
    """The redundant edges at the foot of the bars."""
    for number, balance in enumerate(balances):
        for rank, load in enumerate(balance.ranks):
            if load.redundant:
                place, width = _place(number, rank, len(balance.ranks))
                axes.bar(place, float(load.redundant), width, color="none", edgecolor="white", hatch="///", linewidth=0)


def _place(number: int, rank: int, num_ranks: int) -> tuple[float, float]:
    """Middle and width of a rank's bar in the `number`th group."""
    return number + 0.8 * ((rank + 0.5) / num_ranks - 0.5), 0.8 / num_ranks


def _collectives(balances: Sequence[Balance]) -> Figure:
    """Payload exchanges of an epoch but for gradients, a line per setting without its layers."""
    figure = empty_figure(6.5, 3.8)
    axes = figure.add_subplot()
    lines: dict[str, list[tuple[int, float]]] = {}
    for one in balances:
        name = one.name(balances, but=("layers",)).replace("\n", " ")
        lines.setdefault(name, []).append((one.layers, float(one.ranks[0].collectives)))
    for number, (name, points) in enumerate(lines.items()):
        axes.plot(*zip(*sorted(points), strict=True), marker="o", label=name, color=colour_of(number))
    axes.set_xticks(sorted({one.layers for one in balances}))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("layers")
    axes.set_ylabel("collectives per epoch")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    return figure
