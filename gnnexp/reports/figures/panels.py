"""The description of a figure (an entry of `report.figures`), its runs in panels and series, and its caption."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gnnexp.components.signature import Parameter, key_problems, unknown
from gnnexp.errors import Problem
from gnnexp.record.runs import MACHINE, RecordedRun
from gnnexp.reports.labels import said
from gnnexp.reports.metrics import metric_problems, typical_epoch, values_of
from gnnexp.reports.tables.cells import ENOUGH_FOR_INTERVAL
from gnnexp.reports.tables.groups import RunGroup, group_runs, mixtures, with_machine

# The type of each key, and the keys that each kind of drawing takes and needs in addition to those of all kinds.
_HINTS: Mapping[str, Any] = {
    "name": str,
    "draw": str,
    "series": Sequence[str] | None,
    "panels": Sequence[str],
    "where": Mapping[str, Any],
    "x": str,
    "y": str | Sequence[str],
    "log": Literal["x", "y"] | Sequence[Literal["x", "y"]],
    "ideal": bool,
    "by": Literal["epoch", "time"],
    "stacked": bool,
}
_ALL = ("name", "draw", "series", "panels", "where")
_KEYS: Mapping[str, tuple[str, ...]] = {
    "stacked": (),
    "lines": ("x", "y", "log", "ideal"),
    "curves": ("by", "y"),
    "range": ("y",),
    "bars": ("y", "stacked", "log"),
    "matrix": ("y",),
    "pareto": ("y", "log"),
}
_NEEDED = ("name", "draw", "x", "y")
DRAWINGS = tuple(_KEYS)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Figure:
    """The description of one figure.

    Attributes:
        name: name of its files.
        draw: the kind of drawing, one of `DRAWINGS`.
        y: metrics of the record (`metrics.value_of`). `bars` take several, `pareto` takes two (horizontal, vertical),
            all others one; curves without one use the task's own.
        x: config key of the numbers along a line.
        series: config keys that distinguish lines or bars; None: those that name a row, except `x` and `panels`.
        panels: config keys; there is a panel for each of their values.
        where: values that a run must have, by config key.
        log: axes that are logarithmic.
        ideal: whether each line has an ideal line next to it, which falls as 1 / x.
        by: `epoch`, or `time` for seconds of training so far.
        stacked: whether the bars of several metrics are stacked.
    """

    name: str
    draw: str
    y: tuple[str, ...] = ()
    x: str = ""
    series: tuple[str, ...] | None = None
    panels: tuple[str, ...] = ()
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    log: tuple[str, ...] = ()
    ideal: bool = False
    by: str = "epoch"
    stacked: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """All config keys in the description."""
        return tuple(filter(None, (self.x, *(self.series or ()), *self.panels, *self.where)))


def read_figures(options: Sequence[Any], where: str) -> tuple[tuple[Figure, ...], list[Problem]]:
    """The figures of a report, and all problems of their descriptions."""
    figures, problems = [], []
    for number, option in enumerate(options):
        place = f"{where}[{number}]"
        if wrong := _panel_problems(option, place):
            problems += wrong
        else:
            figures.append(_figure(option))
    names = [figure.name for figure in figures]
    problems += [
        Problem(f"{where}.name", name, "two figures would have the same file", "give each figure its own name")
        for name in sorted({name for name in names if names.count(name) > 1})
    ]
    return tuple(figures), problems


def _panel_problems(option: object, place: str) -> list[Problem]:
    if not isinstance(option, dict):
        return [Problem(place, option, "must be a mapping", "{name: epoch, draw: stacked}")]
    draw = option.get("draw")
    if not isinstance(draw, str) or draw not in DRAWINGS:
        return [unknown(f"{place}.draw", draw, str(draw), DRAWINGS)]
    needed = {*_NEEDED} - {"y" if draw == "curves" else ""}
    keys = (*_ALL, *_KEYS[draw])
    problems = key_problems(place, option, {key: Parameter(key, _HINTS[key], key in needed) for key in keys})
    right = option.keys() - {problem.key.rpartition(".")[2] for problem in problems}
    if "name" in right and not _NAME.fullmatch(option["name"]):
        problems.append(
            Problem(f"{place}.name", option["name"], "must be a file name of letters, digits, _ and -", "name: scaling")
        )
    metrics = (_words(option["y"]) or ("",)) if "y" in right else ()
    problems += [problem for metric in metrics for problem in metric_problems(f"{place}.y", metric)]
    if draw == "pareto" and len(metrics) != 2:
        problems.append(
            Problem(f"{place}.y", option.get("y"), "pareto takes two metrics", "y: [time/epoch_s, acc/test]")
        )
    if len(metrics) > 1 and draw not in ("bars", "pareto"):
        problems.append(Problem(f"{place}.y", option["y"], f"{draw} takes one metric", "a figure for each"))
    return problems


def _figure(option: Mapping[str, Any]) -> Figure:
    """The figure of an entry without mistakes."""
    series = option.get("series")
    return Figure(
        str(option["name"]),
        str(option["draw"]),
        _words(option.get("y")),
        str(option.get("x") or ""),
        None if series is None else _words(series),
        _words(option.get("panels")),
        {
            key: tuple(map(_text, value if isinstance(value, list) else [value]))
            for key, value in (option.get("where") or {}).items()
        },
        _words(option.get("log")),
        bool(option.get("ideal", False)),
        str(option.get("by", "epoch")),
        bool(option.get("stacked", False)),
    )


def _words(value: object) -> tuple[str, ...]:
    """The words of a value that is a word, a list of words, or None."""
    if value is None:
        return ()
    return tuple(map(str, value)) if isinstance(value, list) else (str(value),)


def _text(value: object) -> str:
    """The value as text, in the form of `RecordedRun.value`."""
    return "null" if value is None else str(value)


_SEEDS = (
    f"Over several seeds: mean and 95 % interval (Student's t), or least to greatest value of fewer than "
    f"{ENOUGH_FOR_INTERVAL} seeds."
)


@dataclass(frozen=True)
class Panel:
    """A panel of a figure.

    Attributes:
        title: what its runs have in common; empty if there is only one panel.
        series: groups of runs by the name of their line or bar, in order of first appearance.
    """

    title: str
    series: Mapping[str, RunGroup]


def panels_of_figure(figure: Figure, runs: Sequence[RecordedRun], rows: Sequence[str]) -> list[Panel]:
    """The panels of `figure`.

    Args:
        figure: the description of the figure.
        runs: runs of the report, including failed ones.
        rows: config keys that name a row of the report. They name the series if the figure does not.
    """
    shown = [run for run in runs if all(run.value(key) in values for key, values in figure.where.items())]
    keys = figure.series if figure.series is not None else series_of(figure, shown, rows)
    keys = keys if MACHINE in (figure.x, *figure.panels) else with_machine(keys, shown)
    panels = []
    for of_panel in group_runs(shown, figure.panels):
        series: dict[str, RunGroup] = {}
        for group in group_runs((*of_panel.runs, *of_panel.failed), keys):
            series[_name_of(keys, group.labels)] = group
        panels.append(Panel(_name_of(figure.panels, of_panel.labels), series))
    return panels


def series_of(figure: Figure, runs: Sequence[RecordedRun], rows: Sequence[str]) -> tuple[str, ...]:
    """The keys of `rows` whose values differ and that are neither panels nor the x axis, else the system."""
    left = [key for key in rows if key not in (*figure.panels, figure.x)]
    return tuple(key for key in left if len({run.value(key) for run in runs}) > 1) or ("system",)


def _name_of(keys: Sequence[str], values: Sequence[str]) -> str:
    """`p3 workers=4`: the values in one line, a bare number with its key; null values are left out."""
    return " ".join(said(key, value) for key, value in zip(keys, values, strict=True) if value != "null")


def series_names(panels: Iterable[Panel]) -> list[str]:
    """The names of all series of all panels, each once. Each has a colour of its own."""
    return list(dict.fromkeys(name for panel in panels for name in panel.series))


def runs_of_panels(panels: Iterable[Panel]) -> list[RecordedRun]:
    """The finished runs of all panels."""
    return [run for panel in panels for group in panel.series.values() for run in group.runs]


def caption_of(
    panels: Sequence[Panel],
    metrics: Sequence[str] = (),
    first: str = "",
    seeds: str = _SEEDS,
    places: Sequence[RunGroup] | None = None,
) -> str:
    """The caption of a figure: what is drawn, over which epochs and runs, and what is missing.

    Args:
        panels: panels of the figure.
        metrics: metrics whose recorded values are drawn.
        first: the first sentence, in place of the one about `metrics`.
        seeds: the sentence about several seeds.
        places: groups of runs that are averaged, if these are not whole series.
    """
    where = [(name, panel, group) for panel in panels for name, group in panel.series.items()]
    notes = [first or f"{' and '.join(metrics)}: {typical_epoch(runs_of_panels(panels))}."]
    together = [group for _, _, group in where] if places is None else places
    if any(len(group.runs) > 1 for group in together):
        notes.append(seeds)
    ended = [panel_part for panel_part in where if panel_part[2].runs]
    lacking = []
    for metric in metrics:
        without = [_place(name, panel) for name, panel, group in ended if not values_of(group.runs, metric)]
        lacking += [f"{metric} of {'all' if len(without) == len(ended) > 1 else ', '.join(without)}"] if without else []
    failed = [f"{_place(name, panel)} ({group.verdict})" for name, panel, group in where if group.failed]
    if lacking:
        notes.append(f"Not recorded, not drawn: {'; '.join(lacking)}.")
    if failed:
        notes.append(f"Failed: {', '.join(failed)}.")
    if keys := mixtures(together):
        notes.append(f"Runs that differ in {', '.join(keys)} are averaged together.")
    return " ".join(notes)


def _place(name: str, panel: Panel) -> str:
    return f"{name} on {panel.title}" if panel.title else name
