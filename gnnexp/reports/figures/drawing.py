"""Shared parts of figures: an empty figure, colours, stacked bars, the legend, and saving to files."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from gnnexp.files.disk import write_bytes
from gnnexp.reports.tables.cells import StatisticsCell
from gnnexp.reports.tables.table import ReportTable

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gnnexp.reports.figures.panels import Panel

# Okabe and Ito's palette; the colours that are easiest to distinguish come first. Further lines start again.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#999999", "#F0E442")
# One mark fewer than there are colours: lines of the same colour then have different marks.
_MARKS = ("o", "s", "^", "D", "v", "P", "X")
_MOST_IN_A_ROW = 4
# A part below this share of the highest bar would be thinner than a line: it is neither drawn nor named.
_THINNEST = 1e-3
# Measured on figures that we looked at: inches of a wide letter in names under bars (8 points), and letters per inch
# of a caption of this size.
_INCHES_PER_LETTER = 0.075
_CAPTION_SIZE, _CAPTION_PER_INCH = 6.5, 19.0


LegendPlace = Literal["outside right upper", "outside lower center"]


class DrawnFigure(NamedTuple):
    """A figure and the data that it shows; the table's caption is the figure's caption."""

    canvas: Figure
    table: ReportTable


def whiskers(cells: Sequence[StatisticsCell], factor: float) -> tuple[list[float], list[float]] | None:
    """Lengths below and above each mean, of the range or the interval that the table shows; None if there is none."""
    below = [factor * (cell.mean - cell.bounds[0]) if cell.spread else 0.0 for cell in cells]
    above = [factor * (cell.bounds[1] - cell.mean) if cell.spread else 0.0 for cell in cells]
    return (below, above) if any(below) or any(above) else None


def colour_of(number: int) -> str:
    """The colour of line or bar `number`, from 0."""
    return _COLOURS[number % len(_COLOURS)]


def mark_of(number: int) -> str:
    """The mark of the points of line `number`, from 0."""
    return _MARKS[number % len(_MARKS)]


def empty_figure(width: float, height: float) -> Figure:
    """A figure of this size in inches. Matplotlib is imported here, so that only drawing needs it."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def panel_figure(
    panels: Sequence[Panel], widths: Sequence[float], height: float, legend_width: float
) -> tuple[Figure, list[Axes]]:
    """A figure with axes for each panel, a few in a row; each panel has its title above.

    Args:
        panels: the panels.
        widths: width of each panel in inches.
        height: height of each panel in inches.
        legend_width: width of the legend in inches.
    """
    columns = max(1, min(_MOST_IN_A_ROW, len(panels)))
    rows = max(1, math.ceil(len(panels) / columns))
    canvas = empty_figure(legend_width + columns * max(widths, default=2.0), rows * height)
    spaces: list[Axes] = list(canvas.subplots(rows, columns, squeeze=False).flat)
    for axes, panel in zip(spaces, panels, strict=False):
        axes.set_title(panel.title, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in spaces[len(panels) :]:
        axes.set_axis_off()
    return canvas, spaces[: len(panels)]


def bars_width(names: Collection[str]) -> float:
    """Inches for these bars with their names below, one word per line."""
    longest = max((len(word) for name in names for word in name.split()), default=0)
    return 0.7 + len(names) * max(0.9, _INCHES_PER_LETTER * (longest + 1))


def name_bars(axes: Axes, names: Collection[str]) -> None:
    """Write names below the bars, one word per line. A single bar has as much room at its sides as several bars."""
    axes.set_xticks(range(len(names)), [name.replace(" ", "\n") for name in names], fontsize=8)
    axes.set_xlim(-0.6, max(0.6, len(names) - 0.4))


def finish_figure(canvas: Figure, caption: str) -> None:
    """Add one legend for all panels on the right, and the caption below."""
    legend(canvas)
    columns = int(canvas.get_figwidth() * _CAPTION_PER_INCH)
    canvas.supxlabel("\n".join(textwrap.wrap(caption, columns)), fontsize=_CAPTION_SIZE, x=0.01, ha="left")
    width, height = canvas.get_size_inches()
    canvas.set_size_inches(width, height + 0.12 * len(textwrap.wrap(caption, columns)))


def legend(canvas: Figure, place: LegendPlace = "outside right upper", columns: int = 1) -> None:
    """Add one legend for all panels, outside of them. A label of several panels has the mark of the first."""
    named: dict[str, Artist] = {}
    for axes in canvas.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    if named:
        canvas.legend(list(named.values()), list(named), loc=place, frameon=False, fontsize=8, ncols=columns)


class BarPart(NamedTuple):
    """A part of stacked bars, with one height per bar."""

    label: str
    colour: str
    heights: Sequence[float]


def draw_stack(axes: Axes, places: Sequence[float], parts: Sequence[BarPart], width: float = 0.6) -> list[float]:
    """Draw `parts` on top of each other, the first at the bottom. Return the height of each bar."""
    tops = [sum(of_bar) for of_bar in zip(*(part.heights for part in parts), strict=True)]
    bottoms = [0.0] * len(places)
    for part in parts:
        if max(part.heights, default=0.0) > _THINNEST * max(tops, default=0.0):
            axes.bar(places, part.heights, width, bottoms, label=part.label, color=part.colour)
        bottoms = [bottom + height for bottom, height in zip(bottoms, part.heights, strict=True)]
    return tops


def save(figures: Mapping[str, Figure], folder: Path, title: str) -> list[Path]:
    """Save each figure as png and svg under its name. Return the files. Without figures no folder is made."""
    files = []
    for name, figure in figures.items():
        folder.mkdir(parents=True, exist_ok=True)
        figure.suptitle(title, fontsize=10)
        for suffix in ("png", "svg"):
            files.append(folder / f"{name}.{suffix}")
            save_figure(figure, files[-1])
    return files


def save_figure(figure: Figure, file: Path) -> None:
    """Save in the format of the file's ending. The same drawing gives the same bytes: a repeated report is equal."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "gnnexp"}):  # otherwise the ids in the file are random
        drawn = io.BytesIO()
        figure.savefig(drawn, format=file.suffix[1:], metadata={"Date": None} if file.suffix == ".svg" else None)
    write_bytes(file, drawn.getvalue())
