"""Figures of the report `balance`: load by rank (NeutronTP, Figures 3 and 10), collectives by layers (Figure 8)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gnnexp.reports.balance import Balance, find_balances
from gnnexp.reports.runs import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours of Okabe and Ito's palette; more ranks begin again.
_COLOURS = ("#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#F0E442", "#999999")


def draw(runs: Sequence[Run], folder: Path, title: str = "") -> list[Path]:
    """Save `balance` and, where runs differ in their number of layers, `collectives`, as png and svg; the files."""
    columns, balances = find_balances(runs)
    files = _save(_loads(columns, balances, title), folder, "balance")
    depth = columns.index("layers")
    if len({balance.labels[depth] for balance in balances}) > 1:
        files += _save(_collectives(columns, balances, title), folder, "collectives")
    return files


def _save(figure: Figure, folder: Path, name: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{name}.{suffix}" for suffix in ("png", "svg")]
    for file in files:
        figure.savefig(file)
    return files


def _loads(columns: Sequence[str], balances: Sequence[Balance], title: str) -> Figure:
    """Edges computed (left) and bytes sent but for gradients (right), a group of bars per setting, a bar per rank."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(9.0, 3.0 + 2.2 * len(balances)), 4.2), dpi=150, layout="constrained")
    edges, sent = figure.subplots(1, 2)
    names = _names(columns, balances)
    _draw_bars(edges, names, [[float(rank.edges) for rank in one.ranks] for one in balances],
               "edges computed per epoch")
    _draw_bars(sent, names, [[float(rank.sent_bytes) for rank in one.ranks] for one in balances],
               "bytes sent per epoch (without gradients)")
    if balances:
        sent.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.suptitle(title, fontsize=10)
    return figure


def _names(columns: Sequence[str], balances: Sequence[Balance]) -> list[str]:
    """What sets each apart, and always the system."""
    shown = [number for number, column in enumerate(columns)
             if column == "system" or len({one.labels[number] for one in balances}) > 1]
    return ["\n".join(one.labels[number] for number in shown) for one in balances]


def _draw_bars(axes: Axes, names: Sequence[str], heights: Sequence[Sequence[float]], label: str) -> None:
    num_ranks = max(map(len, heights), default=0)
    for rank in range(num_ranks):
        settings = [number for number, values in enumerate(heights) if rank < len(values)]
        places = [number + 0.8 * ((rank + 0.5) / len(heights[number]) - 0.5) for number in settings]
        widths = [0.8 / len(heights[number]) for number in settings]
        axes.bar(places, [heights[number][rank] for number in settings], widths, label=f"rank {rank}",
                 color=_COLOURS[rank % len(_COLOURS)])
    axes.set_xticks(range(len(names)), names, fontsize=7, rotation=20, ha="right")
    axes.set_ylabel(label)
    axes.spines[["top", "right"]].set_visible(False)


def _collectives(columns: Sequence[str], balances: Sequence[Balance], title: str) -> Figure:
    """Payload exchanges of an epoch but for gradients, a line per setting without its layers."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 3.8), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    depth = columns.index("layers")
    others = [*columns[:depth], *columns[depth + 1 :]]
    cut = [Balance((*one.labels[:depth], *one.labels[depth + 1 :]), one.run, one.ranks) for one in balances]
    lines: dict[str, list[tuple[int, float]]] = {}
    for name, one in zip(_names(others, cut), balances, strict=True):
        point = int(one.labels[depth]), float(sum(one.ranks[0].rounds.values()))
        lines.setdefault(name.replace("\n", " "), []).append(point)
    for number, (name, points) in enumerate(lines.items()):
        axes.plot(*zip(*sorted(points), strict=True), marker="o", label=name, color=_COLOURS[number % len(_COLOURS)])
    axes.set_xticks(sorted({layers for points in lines.values() for layers, _ in points}))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("layers")
    axes.set_ylabel("collectives per epoch")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=10)
    return figure
