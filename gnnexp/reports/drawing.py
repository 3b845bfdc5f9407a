"""What figures of reports have in common: an empty one, colours, and the files in which they are kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, those first that are told apart best; more lines than these begin again.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#999999", "#F0E442")


def colour_of(number: int) -> str:
    """Of the `number`th line or bar."""
    return _COLOURS[number % len(_COLOURS)]


def empty_figure(width: float, height: float) -> Figure:
    """Inches; matplotlib is imported only where something is drawn."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, layout="constrained")


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
