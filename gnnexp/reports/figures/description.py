"""What a figure of a report shows: one entry of `report.figures`, read and checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gnnexp.errors import Problem
from gnnexp.experiment.signature import unknown
from gnnexp.reports.values.metrics import check_metric

BY = ("epoch", "time")
_AXES = ("x", "y")
# Further keys of every kind of drawing, beside `_ALL`, and those that it needs.
_ALL = ("name", "draw", "series", "panels", "where")
_KEYS: Mapping[str, tuple[str, ...]] = {
    "stacked": (), "lines": ("x", "y", "log", "ideal"), "curves": ("by", "y"), "range": ("y",),
    "bars": ("y", "stacked", "log"), "matrix": ("y",),
}
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "stacked": (), "lines": ("x", "y"), "curves": (), "range": ("y",), "bars": ("y",), "matrix": ("y",),
}
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


def read_figures(options: object, where: str) -> tuple[tuple[Figure, ...], list[Problem]]:
    """The figures of a report, and everything that is wrong with any of them."""
    if not isinstance(options, list):
        mend = "figures: [{name: epoch, draw: stacked}]"
        return (), [Problem(where, options, "must be a list of figures", mend)]
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
    problems = []
    draw = one.get("draw")
    if draw not in DRAWINGS:
        problems.append(unknown(f"{place}.draw", draw, str(draw), DRAWINGS))
    allowed = (*_ALL, *(_KEYS[str(draw)] if draw in DRAWINGS else {key for keys in _KEYS.values() for key in keys}))
    problems += [unknown(f"{place}.{key}", value, str(key), allowed) for key, value in one.items()
                 if key not in allowed]
    problems += [Problem(f"{place}.{key}", None, f"{draw} needs it", f"add {key}: …")
                 for key in ("name", *_NEEDED.get(str(draw), ())) if key not in one]
    for key, value in one.items():
        if key in _CHECKS and key in allowed:
            problems += _CHECKS[key](f"{place}.{key}", value)
    if draw in ("lines", "curves", "range", "matrix") and isinstance(one.get("y"), list) and len(one["y"]) > 1:
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


# --- one check per key -----------------------------------------------------------------------------------------------
def check_keys(where: str, value: object) -> list[Problem]:
    """A list of config keys."""
    if isinstance(value, list) and all(isinstance(key, str) and key for key in value):
        return []
    return [Problem(where, value, "must be a list of config keys", "[dataset, system]")]


def _check_name(where: str, value: object) -> list[Problem]:
    if isinstance(value, str) and _NAME.fullmatch(value):
        return []
    return [Problem(where, value, "must be a file's name of letters, digits, _ and -", "name: scaling")]


def _check_y(where: str, value: object) -> list[Problem]:
    metrics = value if isinstance(value, list) and value else [value]
    return [problem for metric in metrics for problem in check_metric(where, metric)]


def _check_x(where: str, value: object) -> list[Problem]:
    if isinstance(value, str) and value:
        return []
    return [Problem(where, value, "must be a config key of numbers", "x: hardware.workers")]


def _check_where(where: str, value: object) -> list[Problem]:
    if isinstance(value, dict) and value and all(isinstance(key, str) for key in value):
        return []
    return [Problem(where, value, "must map config keys to a value or a list of values", "where: {system: [dgl, p3]}")]


def _check_log(where: str, value: object) -> list[Problem]:
    words = value if isinstance(value, list) else [value]
    return [unknown(where, value, str(word), _AXES) for word in words if word not in _AXES]


def _check_by(where: str, value: object) -> list[Problem]:
    return [] if value in BY else [unknown(where, value, str(value), BY)]


def _check_flag(where: str, value: object) -> list[Problem]:
    return [] if isinstance(value, bool) else [Problem(where, value, "must be true or false", "true")]


_CHECKS: Mapping[str, Callable[[str, object], list[Problem]]] = {
    "name": _check_name, "y": _check_y, "x": _check_x, "series": check_keys, "panels": check_keys,
    "where": _check_where, "log": _check_log, "by": _check_by, "ideal": _check_flag, "stacked": _check_flag,
}
