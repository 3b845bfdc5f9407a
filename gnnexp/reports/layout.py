"""The contents of a report: the `report:` block of a sweep's file, read and checked as one value (docs/reports.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from gnnexp.components.signature import Parameter, key_problems, parameters_of_dataclass, unknown
from gnnexp.errors import ConfigError, Problem
from gnnexp.planning.machine import machine_named
from gnnexp.reports.answer import answers_of
from gnnexp.reports.figures.panels import Figure, read_figures
from gnnexp.reports.metrics import metric_problems, unit_problems
from gnnexp.reports.paired.verdicts import Margins
from gnnexp.reports.paper_table import PublishedTable, read_published
from gnnexp.reports.published_cells import papers
from gnnexp.reports.query import read_query

T = TypeVar("T")
_HINTS: Mapping[str, Any] = {
    "rows": Sequence[str],
    "query": Any,
    "columns": Mapping[str, Any],
    "paper": str,
    "published": Mapping[str, Any],
    "estimate": str,
    "against": str,
    "equal": Mapping[str, float],
    "target": float,
    "figures": list,
}
# Top-level keys in the state files of older versions, from before there was a layout.
_OLDER = ("rows", "kind", "published")


@dataclass(frozen=True)
class ReportLayout:
    """What a report contains.

    Attributes:
        rows: config keys that name a row; empty: those that differ.
        query: name or file of the query whose table and figures are shown; empty for the comparison table.
        columns: metrics of the comparison table by their header, in order; empty: the usual ones.
        published: the paper's table that is shown next to ours, or None.
        paper: the paper whose share of training vertices estimates use; by default that of `published`.
        estimate: hardware profile for the estimate of an epoch, or empty.
        against: the system that all others are compared with, pair by pair; empty: none.
        equal: up to where two systems count as equal.
        target: value of the validation metric whose seconds of training are a column, or None.
        figures: descriptions of the figures; None: the usual ones.
    """

    rows: tuple[str, ...] = ()
    query: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    published: PublishedTable | None = None
    paper: str = ""
    estimate: str = ""
    against: str = ""
    equal: Margins = field(default_factory=Margins)
    target: float | None = None
    figures: tuple[Figure, ...] | None = None

    @property
    def compares(self) -> bool:
        """Whether the report has a comparison table: always without a query, else if one of its options is given."""
        return not self.query or bool(
            self.columns or self.published or self.estimate or self.against or self.target is not None
        )

    @property
    def keys(self) -> dict[str, str]:
        """The config keys that the layout names, each with the place that names it."""
        named = dict.fromkeys(self.rows, "report.rows")
        return {key: f"report.figures.{figure.name}" for figure in self.figures or () for key in figure.keys} | named


def read_layout(options: object, where: str = "report") -> ReportLayout:
    """Read the layout of a report from a sweep's file.

    Args:
        options: the `report:` block.
        where: the name of the block in problems.

    Raises:
        ConfigError: the block has mistakes; all of them are reported.
    """
    if not isinstance(options, Mapping):
        raise ConfigError(Problem(where, options, "must be a mapping", "report: {rows: [dataset, system]}"))
    chosen = {str(key): value for key, value in options.items() if value is not None}
    problems = key_problems(where, chosen, {key: Parameter(key, hint, required=False) for key, hint in _HINTS.items()})
    wrong = {problem.key for problem in problems}
    chosen = {key: value for key, value in chosen.items() if f"{where}.{key}" not in wrong}
    if "columns" in chosen and "published" in chosen:
        problems.append(
            Problem(f"{where}.columns", chosen["columns"], "published has columns of its own", "leave one of them out")
        )
    problems += _column_problems(f"{where}.columns", chosen.get("columns", {}))
    published, more = _tried(read_published, chosen.get("published"), f"{where}.published")
    problems += [*more, *_paper_problems(f"{where}.paper", chosen.get("paper"), published)]
    problems += _tried(_ask_nothing, chosen.get("query"), f"{where}.query")[1]
    problems += [
        replace(problem, key=f"{where}.estimate ({problem.key})")
        for problem in _tried(machine_named, chosen.get("estimate"))[1]
    ]
    equal, more = _tried(_read_margins, chosen.get("equal"), f"{where}.equal")
    problems += more
    figures, more = read_figures(chosen.get("figures", []), f"{where}.figures")
    ConfigError.raise_all([*problems, *more])
    return ReportLayout(
        tuple(chosen.get("rows", ())),
        chosen.get("query", ""),
        dict(chosen.get("columns", {})),
        published,
        chosen.get("paper", published.paper if published else ""),
        chosen.get("estimate", ""),
        chosen.get("against", ""),
        equal or Margins(),
        chosen.get("target"),
        figures if "figures" in chosen else None,
    )


def _tried(read: Callable[..., T], value: object, *where: str) -> tuple[T | None, list[Problem]]:
    """The result of `read(value, *where)` and its problems; None and no problems if `value` is None."""
    try:
        return None if value is None else read(value, *where), []
    except ConfigError as error:
        return None, list(error.problems)


def _read_margins(options: Mapping[str, Any], where: str) -> Margins:
    problems = key_problems(where, options, parameters_of_dataclass(Margins))
    problems += [
        Problem(f"{where}.{key}", value, "must be a finite number, 0 or more", f"{key}: 1")
        for key, value in options.items()
        if not problems and not (math.isfinite(value) and value >= 0)
    ]
    ConfigError.raise_all(problems)
    return Margins(**{key: float(value) for key, value in options.items()})


def _ask_nothing(name: str, where: str) -> None:
    """Run the query on no runs, which shows whether DuckDB accepts it."""
    answers_of(read_query(name, where), [], where)


def layout_of(state: Mapping[str, Any]) -> ReportLayout:
    """The layout in a sweep's state file, which an older version may have written."""
    report = state.get("report", {key: state[key] for key in _OLDER if state.get(key)})
    return read_layout({"query" if key == "kind" else key: value for key, value in report.items()})


def layout_problems(layout: ReportLayout, known: Iterable[str], where: str = "") -> list[Problem]:
    """Problems for config keys that the layout names but no run has.

    Args:
        layout: the layout of the report.
        known: the dotted keys and group names of all runs.
        where: prefix of the problems' keys.
    """
    names = {*known}
    return [unknown(f"{where}{place}", key, key, names) for key, place in layout.keys.items() if key not in names]


def _column_problems(where: str, columns: Mapping[object, Any]) -> list[Problem]:
    problems = []
    for header, metric in ((str(header), metric) for header, metric in columns.items()):
        found = metric_problems(f"{where}.{header}", metric)
        problems += found or unit_problems(f"{where}.{header}", header, metric)
    return problems


def _paper_problems(where: str, paper: object, published: PublishedTable | None) -> list[Problem]:
    if paper is None:
        return []
    if paper not in papers():
        return [unknown(where, paper, str(paper), papers())]
    if published is not None and published.paper != paper:
        return [Problem(where, paper, f"published is {published.paper}'s", "leave one of them out")]
    return []
