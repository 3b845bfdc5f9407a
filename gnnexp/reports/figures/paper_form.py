"""A figure for a paper: at the width of a column, in a serif font, readable without colours, as PDF and SVG.

A figure of a report has its title and its caption inside, and a legend at its right. In a paper the text around it says
what it shows, so these leave it, and the legend goes below.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gnnexp.files.disk import write_bytes
from gnnexp.reports.figures.drawing import legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text

# What the names of these files end in.
PAPER = "_paper"
# Inches: a column of two, and a whole page. A figure with more panels in a row than a column holds gets the page.
COLUMN, PAGE = 3.33, 7.0
_PANELS_OF_COLUMN = 2
_BARS_OF_COLUMN = 6
# Names under more bars than this stand on end.
_MOST_UPRIGHT = 6
_POINTS = 7.0
# Inches of a legend's mark with its spaces, and of a wide letter of this size.
_HANDLE, _LETTER = 0.55, 0.055
# Times-like and with every sign that our labels have; matplotlib brings it.
_FONT = "STIXGeneral"
Dash = Literal["-", "--", "-.", ":"]
# Grey printers tell these apart, whatever the colours.
_HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "++", "oo", "--")
_LINES: tuple[Dash, ...] = ("-", "--", "-.", ":")


def save_for_paper(canvas: Figure, folder: Path, name: str) -> list[Path]:
    """Save a drawn figure as `NAME_paper.pdf` and `.svg`. The figure itself is changed: save its other files before."""
    from matplotlib import rc_context

    files = []
    with rc_context({"font.family": _FONT, "mathtext.fontset": "stix", "pdf.fonttype": 42, "svg.hashsalt": "gnnexp"}):
        _tell_apart_in_grey(canvas)
        _make_narrow(canvas)
        for suffix in ("pdf", "svg"):
            drawn = io.BytesIO()
            dates = {"CreationDate": None} if suffix == "pdf" else {"Date": None}
            canvas.savefig(drawn, format=suffix, metadata=dates)
            files.append(folder / f"{name}{PAPER}.{suffix}")
            write_bytes(files[-1], drawn.getvalue())
    return files


def paper_width(canvas: Figure) -> float:
    """Inches of a column; of a page if there are more panels in a row, or more bars, than a column holds."""
    specs = [axes.get_subplotspec() for axes in canvas.axes]
    panels = max((spec.get_gridspec().ncols for spec in specs if spec is not None), default=1)
    return COLUMN if panels <= _PANELS_OF_COLUMN and panels * _most_bars(canvas) <= _BARS_OF_COLUMN else PAGE


def _most_bars(canvas: Figure) -> int:
    """The largest number of bars next to each other; 0 without bars."""
    return max((len(axes.get_xticks()) for axes in canvas.axes if axes.patches), default=0)


def _make_narrow(canvas: Figure) -> None:
    width, (old_width, old_height) = paper_width(canvas), canvas.get_size_inches()
    canvas.suptitle("")
    canvas.supxlabel("")
    for box in list(canvas.legends):
        box.remove()
    labels = [label for axes in canvas.axes for label in axes.get_legend_handles_labels()[1]]
    room = _HANDLE + _LETTER * max(map(len, labels), default=1)
    legend(canvas, "outside lower center", columns=max(1, int(width / room)))
    canvas.set_size_inches(width, min(old_height, max(0.6 * width, width * old_height / old_width)))
    for axes in canvas.axes:
        if axes.patches and len(axes.get_xticks()) > _MOST_UPRIGHT:
            names = [text.get_text().replace("\n", " ") for text in axes.get_xticklabels()]
            axes.set_xticks(axes.get_xticks(), names, rotation=90)
    for text in _texts(canvas):
        text.set_fontfamily(_FONT)
        text.set_fontsize(min(_POINTS, text.get_fontsize()))


def _texts(canvas: Figure) -> Iterator[Text]:
    from matplotlib.text import Text

    yield from (artist for artist in canvas.findobj(Text) if isinstance(artist, Text))


def _tell_apart_in_grey(canvas: Figure) -> None:
    """Bars of a legend's entry have a hatch, lines a dash of their own."""
    bars: dict[str, str] = {}
    dashes: dict[str, Dash] = {}
    numbers, places = count(), count()
    for axes in canvas.axes:
        for container in axes.containers:
            label = str(container.get_label())
            for patch in getattr(container, "patches", ()):
                if label not in bars:
                    bars[label] = _HATCHES[next(numbers) % len(_HATCHES)]
                patch.set_hatch(bars[label])
                patch.set_edgecolor("black")
                patch.set_linewidth(0.4)
        for line in axes.lines:
            label = str(line.get_label())
            if line.get_linestyle() == "-" and not label.startswith("_"):
                dashes.setdefault(label, _LINES[next(places) % len(_LINES)])
                line.set_linestyle(dashes[label])
