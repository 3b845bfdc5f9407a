"""What a figure of a report shows: one entry of `report.figures`, read and checked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gnnexp.errors import Problem
from gnnexp.experiment.signature import Parameter, check_keys, unknown
from gnnexp.reports.values.metrics import check_metric

# What a file may say under each key, and which keys each kind of drawing takes and needs, beside those of all.
_HINTS: Mapping[str, Any] = {
    "name": str, "draw": str, "series": Sequence[str] | None, "panels": Sequence[str], "where": Mapping[str, Any],
    "x": str, "y": str | Sequence[str], "log": Literal["x", "y"] | Sequence[Literal["x", "y"]], "ideal": bool,
    "by": Literal["epoch", "time"], "stacked": bool,
}
_ALL = ("name", "draw", "series", "panels", "where")
_KEYS: Mapping[str, tuple[str, ...]] = {
    "stacked": (), "lines": ("x", "y", "log", "ideal"), "curves": ("by", "y"), "range": ("y",),
    "bars": ("y", "stacked", "log"), "matrix": ("y",),
}
_NEEDED = ("name", "draw", "x", "y")
DRAWINGS = tuple(_KEYS)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Figure:
    """What a figure shows.

    Attributes:
        name: of its files.
        draw: one of `DRAWINGS`.
        y: metrics of the record (`metrics.value_of`); several for `bars` only; none: curves take the task's own.
        x: config key of numbers along a line.
        series: config keys that tell lines or bars apart; None: those that name a row, but for `x` and `panels`.
        panels: config keys, a panel for each of their values.
        where: values that a run must have, by config key.
        log: axes that are logarithmic.
        ideal: whether lines have the one beside them that falls as 1 / x.
        by: `epoch`, or `time`: seconds of training so far.
        stacked: whether bars of several metrics stand on each other.
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
        """Config keys that it names."""
        return tuple(filter(None, (self.x, *(self.series or ()), *self.panels, *self.where)))


def read_figures(options: Sequence[Any], where: str) -> tuple[tuple[Figure, ...], list[Problem]]:
    """The figures of a report, and everything that is wrong with any of them."""
    figures, problems = [], []
    for number, one in enumerate(options):
        place = f"{where}[{number}]"
        if found := _check(one, place):
            problems += found
        else:
            figures.append(_figure(one))
    names = [figure.name for figure in figures]
    problems += [Problem(f"{where}.name", name, "two figures would be one file", "give each a name of its own")
                 for name in sorted({name for name in names if names.count(name) > 1})]
    return tuple(figures), problems


def _check(one: object, place: str) -> list[Problem]:
    if not isinstance(one, dict):
        return [Problem(place, one, "must be a mapping", "{name: epoch, draw: stacked}")]
    draw = one.get("draw")
    if not isinstance(draw, str) or draw not in DRAWINGS:
        return [unknown(f"{place}.draw", draw, str(draw), DRAWINGS)]
    needed = {*_NEEDED} - {"y" if draw == "curves" else ""}
    keys = (*_ALL, *_KEYS[draw])
    problems = check_keys(place, one, {key: Parameter(key, _HINTS[key], key in needed) for key in keys})
    right = one.keys() - {problem.key.rpartition(".")[2] for problem in problems}
    if "name" in right and not _NAME.fullmatch(one["name"]):
        problems.append(Problem(f"{place}.name", one["name"], "must be a file's name of letters, digits, _ and -",
                                "name: scaling"))
    metrics = (_words(one["y"]) or ("",)) if "y" in right else ()
    problems += [problem for metric in metrics for problem in check_metric(f"{place}.y", metric)]
    if len(metrics) > 1 and draw != "bars":
        problems.append(Problem(f"{place}.y", one["y"], f"{draw} takes one metric", "a figure for each"))
    return problems


def _figure(one: Mapping[str, Any]) -> Figure:
    """Of an entry without mistakes."""
    series = one.get("series")
    return Figure(
        str(one["name"]), str(one["draw"]), _words(one.get("y")), str(one.get("x") or ""),
        None if series is None else _words(series), _words(one.get("panels")),
        {key: tuple(map(_text, value if isinstance(value, list) else [value]))
         for key, value in (one.get("where") or {}).items()},
        _words(one.get("log")), bool(one.get("ideal", False)), str(one.get("by", "epoch")),
        bool(one.get("stacked", False)))


def _words(value: object) -> tuple[str, ...]:
    """A word, a list of them, or nothing."""
    if value is None:
        return ()
    return tuple(map(str, value)) if isinstance(value, list) else (str(value),)


def _text(value: object) -> str:
    """As `Run.value` has it."""
    return "null" if value is None else str(value)
