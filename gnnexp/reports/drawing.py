"""What figures of reports have in common: an empty one, colours, stacked bars, and the files in which they are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, those first that are told apart best; more lines than these begin again.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#999999", "#F0E442")
# A part below this share of the highest bar is thinner than a line: neither drawn nor named.
_THINNEST = 1e-3


def colour_of(number: int) -> str:
    """Of the `number`th line or bar."""
    return _COLOURS[number % len(_COLOURS)]


def empty_figure(width: float, height: float) -> Figure:
    """Inches; matplotlib is imported only where something is drawn."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, layout="constrained")


class Part(NamedTuple):
    """A part of stacked bars: its `heights` by bar."""

    label: str
    colour: str
    heights: Sequence[float]


def stack(axes: Axes, places: Sequence[float], parts: Sequence[Part], width: float = 0.6) -> list[float]:
    """Draw `parts` on top of each other, the first at the bottom; how high the bars are."""
    tops = [sum(of_bar) for of_bar in zip(*(part.heights for part in parts), strict=True)]
    bottoms = [0.0] * len(places)
    for part in parts:
        if max(part.heights, default=0.0) > _THINNEST * max(tops, default=0.0):
            axes.bar(places, part.heights, width, bottoms, label=part.label, color=part.colour)
        bottoms = [bottom + height for bottom, height in zip(bottoms, part.heights, strict=True)]
    return tops


def save(figures: Mapping[str, Figure], folder: Path, title: str) -> list[Path]:
    """Each figure as png and svg under its name; the files. Without figures no folder is made."""
    files = []
    for name, figure in figures.items():
        folder.mkdir(parents=True, exist_ok=True)
        figure.suptitle(title, fontsize=10)
        for suffix in ("png", "svg"):
            files.append(folder / f"{name}.{suffix}")
            figure.savefig(files[-1])
    return files
