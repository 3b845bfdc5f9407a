"""Figures of a query's result: columns drawn as bars or lines, in one panel or several."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from gnnexp.reports.figures.drawing import BarPart, colour_of, draw_stack, empty_figure, legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABELLED_DECADES = 4  # at most, for labels within a decade
_PANELS_ACROSS = 3  # panels in a row, if there is one kind of panel
_STYLES = ("-", "--", ":")
_HATCHED = {"color": "none", "edgecolor": "white", "hatch": "///", "linewidth": 0}
Row = Mapping[str, Any]


@dataclass(frozen=True)
class ChartPanel:
    """One pair of axes. The fields are keys of a query's file.

    Attributes:
        y: columns that are drawn. Several are the parts of stacked bars, or the lines of a series.
        label: label of the y axis, or the column that holds it.
        xlabel: label of the x axis of lines, if it differs from the column's name.
        names: names of the columns in the legend, if there are several.
        colours: colours of the stacked columns.
        mark: a column that is drawn as a dash.
        hatched: a column that is drawn as a hatched bar over the bars, from their foot.
        reference: columns that are stacked in hatched bars, next to the bars of `y`.
        line: columns that are drawn as a line across the stack, each with its name in the legend.
        start: the lowest value of the axis; bars begin there if the axis is logarithmic.
        log: whether the y axis is logarithmic.
    """

    y: Sequence[str]
    label: str = ""
    xlabel: str = ""
    names: Sequence[str] = ()
    colours: Sequence[str] = ()
    mark: str = ""
    hatched: str = ""
    reference: Sequence[str] = ()
    line: Mapping[str, str] = field(default_factory=dict)
    start: float = 0.0
    log: bool = False


@dataclass(frozen=True)
class Chart:
    """The description of a query's figure. The fields are keys of the query's file (docs/reports.md).

    Attributes:
        figure: name of the figure and of its files.
        draw: `bars` side by side, `stacked` bars, or `lines`.
        x: the column whose values are groups of bars, or places along the x axis.
        panels: the panels, each with axes of its own.
        series: the column whose values are the bars of a group, or the lines; stacks need none.
        facets: a column; the panels are drawn once for each of its values, which is their title.
        below: whether panels stand below each other.
        called: for x and facets, the column that holds the text of each value, if the values are not texts.
        own: whether a group has room for its own bars only, and not for every series.
        colours: colours of series, by their value.
        powers: whether the x axis of lines is logarithmic, with base 2.
    """

    figure: str
    draw: str
    x: str
    panels: Sequence[ChartPanel]
    series: str = ""
    facets: str = ""
    called: Mapping[str, str] = field(default_factory=dict)
    below: bool = False
    own: bool = False
    colours: Mapping[str, str] = field(default_factory=dict)
    powers: bool = False

    @property
    def columns(self) -> set[str]:
        """The columns that the figure draws."""
        columns = {self.x, self.series, self.facets, *self.called.values()}
        of_panels = ((*panel.y, *panel.reference, *panel.line, panel.mark, panel.hatched) for panel in self.panels)
        return columns.union(*of_panels) - {""}


def draw_chart(chart: Chart, rows: Sequence[Row]) -> Figure:
    """Draw the figure of a result that has at least one row."""
    facets = _values(rows, chart.facets) if chart.facets else [""]
    count = len(facets) * len(chart.panels)
    across = 1 if chart.below else len(chart.panels) if len(chart.panels) > 1 else min(_PANELS_ACROSS, count)
    down, groups = -(-count // across), max(len(_values(_rows_of(rows, chart, facet), chart.x)) for facet in facets)
    wide = 2.0 + (1.1 * groups if chart.draw != "lines" else 2.5)
    # Names of bars overlap where the figure does not grow with the number of its bars.
    canvas = empty_figure(2.0 + across * max(3.0, min(wide, 15.0) if across > 1 else wide), 0.6 + 3.0 * down)
    all_axes = list(canvas.subplots(down, across, squeeze=False, sharex="col" if chart.below else "none").flat)
    panels = [(panel, facet) for facet in facets for panel in chart.panels]
    for axes, (panel, facet) in zip(all_axes, panels, strict=False):
        _DRAW[chart.draw](axes, chart, panel, _rows_of(rows, chart, facet), _values(rows, chart.series))
        if panel.log:
            axes.set_yscale("log")
            if chart.draw == "bars":
                _label_ratios(axes)
        elif chart.draw != "stacked":
            axes.set_ylim(bottom=panel.start)
        axes.set_ylabel(rows[0].get(panel.label, panel.label), fontsize=8)
        axes.set_title(_text(rows, chart, chart.facets, facet) if panel is chart.panels[0] else "", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in all_axes[count:]:
        axes.set_visible(False)
    legend(canvas)
    return canvas


def _values(rows: Sequence[Row], column: str) -> list[Any]:
    """The distinct values of a column, in order."""
    return list(dict.fromkeys(row[column] for row in rows)) if column else []


def _rows_of(rows: Sequence[Row], chart: Chart, facet: object) -> list[Row]:
    return [row for row in rows if not chart.facets or row[chart.facets] == facet]


def _text(rows: Sequence[Row], chart: Chart, column: str, value: object) -> str:
    called = chart.called.get(column, column)
    return str(next(row[called] for row in rows if row[column] == value)) if called else ""


def _bars(axes: Axes, chart: Chart, panel: ChartPanel, rows: Sequence[Row], series: Sequence[Any]) -> None:
    groups, base = _values(rows, chart.x), panel.start if panel.log else 0.0

    def place(row: Row) -> tuple[float, float]:
        """Middle and width of a bar."""
        peers = [peer[chart.series] for peer in rows if peer[chart.x] == row[chart.x]] if chart.own else series
        return (
            groups.index(row[chart.x]) + 0.8 * ((peers.index(row[chart.series]) + 0.5) / len(peers) - 0.5),
            0.8 / len(peers),
        )

    for column in filter(None, (panel.y[0], panel.hatched)):
        for number, name in enumerate(series):
            shown = [
                (*place(row), row[column] - base)
                for row in rows
                if row[chart.series] == name and row[column] is not None
            ]
            style = (
                _HATCHED
                if column == panel.hatched
                else {"color": chart.colours.get(name, colour_of(number)), "label": str(name)}
            )
            if shown:
                middles, widths, heights = zip(*shown, strict=True)
                axes.bar(middles, heights, widths, base, **style)
    if panel.mark:
        axes.scatter(
            [place(row)[0] for row in rows],
            [row[panel.mark] for row in rows],
            marker="_",
            color="black",
            s=max(30.0, 300 / len(series)),
        )
    if panel.log:
        axes.axhline(base, color="black", linewidth=0.8)
    _name_groups(axes, [_text(rows, chart, chart.x, group) for group in groups])


def _label_ratios(axes: Axes) -> None:
    """Label 1, 2 and 5 of each decade, if bars of ratios span few decades: powers of 10 would say too little."""
    from matplotlib.ticker import LogLocator

    low, high = axes.get_ylim()
    if math.log10(high / low) <= _LABELLED_DECADES:  # the locator labels nothing if there are too many decades
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")


def _stacked(axes: Axes, chart: Chart, panel: ChartPanel, rows: Sequence[Row], series: Sequence[Any]) -> None:
    referenced = [place for place, row in enumerate(rows) if panel.reference and row[panel.reference[0]] is not None]
    shift, width = (0.2, 0.38) if panel.reference else (0.0, 0.6)
    tops = draw_stack(axes, [place - shift for place in range(len(rows))], [*_parts(panel, panel.y, rows)], width)
    num_plain = len(axes.containers)
    parts = [*_parts(panel, panel.reference, [rows[place] for place in referenced])]
    draw_stack(axes, [place + shift for place in referenced], parts, 0.3)
    for bar in chain.from_iterable(axes.containers[num_plain:]):
        bar.set_hatch("//")
    for column, name in panel.line.items():
        levels = [row[column] or 0.0 for row in rows]
        left, right = ([place + side for place in range(len(rows))] for side in (-0.36, 0.36))
        axes.hlines(levels, left, right, colors="black", label=name)
        axes.set_ylim(0, 1.1 * max([*tops, *levels]))
    _name_groups(axes, [str(row[chart.x]) for row in rows])


def _parts(panel: ChartPanel, columns: Sequence[str], rows: Sequence[Row]) -> Iterator[BarPart]:
    for name, colour, column in zip(panel.names, panel.colours, columns, strict=False):
        yield BarPart(name, colour, [row[column] or 0.0 for row in rows])


def _lines(axes: Axes, chart: Chart, panel: ChartPanel, rows: Sequence[Row], series: Sequence[Any]) -> None:
    for number, name in enumerate(series):
        for what, style, column in zip(panel.names or ("",), _STYLES, panel.y, strict=False):
            points = [
                (row[chart.x], row[column]) for row in rows if row[chart.series] == name and row[column] is not None
            ]
            label = f"{name}: {what}" if what and len(series) > 1 else what or str(name)
            if points:
                places, heights = zip(*sorted(points, key=itemgetter(0)), strict=True)
                axes.plot(places, heights, style, marker="o", markersize=4, color=colour_of(number), label=label)
    ticks = sorted({row[chart.x] for row in rows})
    if chart.powers:
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xlabel(panel.xlabel or chart.x)


def _name_groups(axes: Axes, names: Sequence[str]) -> None:
    long = any("\n" in name for name in names)
    axes.set_xticks(range(len(names)), names, fontsize=7, rotation=20 if long else 0, ha="right" if long else "center")


_DRAW = {"bars": _bars, "stacked": _stacked, "lines": _lines}
DRAWINGS = tuple(_DRAW)
