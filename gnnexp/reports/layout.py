"""What a report shows: the `report:` block of a sweep's file, read and checked as one value (docs/reports.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.signature import Parameter, check_keys, unknown
from gnnexp.planning.profiles import machine_named
from gnnexp.reports.figures.description import Figure, read_figures
from gnnexp.reports.published.beside import Beside, read_beside
from gnnexp.reports.published.cells import papers
from gnnexp.reports.queries.answer import ask
from gnnexp.reports.queries.query import read_query
from gnnexp.reports.values.metrics import check_header, check_metric

T = TypeVar("T")
_HINTS: Mapping[str, Any] = {"rows": Sequence[str], "query": Any, "columns": Mapping[str, Any], "paper": str,
                             "published": Mapping[str, Any], "estimate": str, "figures": list}
# What states of sweeps had at their top before there was a layout.
_OLDER = ("rows", "kind", "published")


@dataclass(frozen=True)
class Layout:
    """What a report shows.

    Attributes:
        rows: config keys that name a row; empty: those that differ.
        query: whose table and figures are shown, by its name or file; empty for the comparison table.
        columns: of the comparison table: the metric of the record by the header, in order; empty: the usual ones.
        published: which table of a paper stands beside ours, or None.
        paper: whose share of the vertices estimates train; that of `published` where it is asked for.
        estimate: hardware profile on which an epoch is estimated, or empty.
        figures: None: the usual ones.
    """

    rows: tuple[str, ...] = ()
    query: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    published: Beside | None = None
    paper: str = ""
    estimate: str = ""
    figures: tuple[Figure, ...] | None = None

    @property
    def compares(self) -> bool:
        """Whether there is a comparison table: always without a query, beside a query's own where it is asked for."""
        return not self.query or bool(self.columns or self.published or self.estimate)

    @property
    def keys(self) -> dict[str, str]:
        """Config keys that it names, and where."""
        named = dict.fromkeys(self.rows, "report.rows")
        return {key: f"report.figures.{figure.name}" for figure in self.figures or () for key in figure.keys} | named


def read_layout(options: object, where: str = "report") -> Layout:
    """From a sweep's file.

    Args:
        options: the `report:` block.
        where: how problems name it.

    Raises:
        ConfigError: everything that is wrong with it.
    """
    if not isinstance(options, Mapping):
        raise ConfigError(Problem(where, options, "must be a mapping", "report: {rows: [dataset, system]}"))
    given = {str(key): value for key, value in options.items() if value is not None}
    problems = check_keys(where, given, {key: Parameter(key, hint, required=False) for key, hint in _HINTS.items()})
    wrong = {problem.key for problem in problems}
    given = {key: value for key, value in given.items() if f"{where}.{key}" not in wrong}
    if "columns" in given and "published" in given:
        problems.append(Problem(f"{where}.columns", given["columns"], "published has columns of its own",
                                "leave one of them out"))
    problems += _check_columns(f"{where}.columns", given.get("columns", {}))
    published, found = _tried(read_beside, given.get("published"), f"{where}.published")
    problems += [*found, *_check_paper(f"{where}.paper", given.get("paper"), published)]
    problems += _tried(_ask_nothing, given.get("query"), f"{where}.query")[1]
    problems += [replace(problem, key=f"{where}.estimate ({problem.key})")
                 for problem in _tried(machine_named, given.get("estimate"))[1]]
    figures, found = read_figures(given.get("figures", []), f"{where}.figures")
    ConfigError.raise_all([*problems, *found])
    return Layout(tuple(given.get("rows", ())), given.get("query", ""), dict(given.get("columns", {})), published,
                  given.get("paper", published.paper if published else ""), given.get("estimate", ""),
                  figures if "figures" in given else None)


def _tried(read: Callable[..., T], value: object, *where: str) -> tuple[T | None, list[Problem]]:
    """What is read of a value, and what is wrong with it; neither of None."""
    try:
        return None if value is None else read(value, *where), []
    except ConfigError as error:
        return None, list(error.problems)


def _ask_nothing(name: str, where: str) -> None:
    """Asked about no runs, a query shows whether DuckDB understands it."""
    ask(read_query(name, where), [], where)


def layout_of(state: Mapping[str, Any]) -> Layout:
    """Of a sweep's state file, also one that an older version wrote."""
    report = state.get("report", {key: state[key] for key in _OLDER if state.get(key)})
    return read_layout({"query" if key == "kind" else key: value for key, value in report.items()})


def check_named(layout: Layout, known: Iterable[str], where: str = "") -> list[Problem]:
    """Config keys that the layout names and that no run has.

    Args:
        layout: of the report.
        known: dotted keys, and names of groups, of any run.
        where: begins the problems' key.
    """
    names = {*known}
    return [unknown(f"{where}{place}", key, key, names) for key, place in layout.keys.items() if key not in names]


def _check_columns(where: str, columns: Mapping[object, Any]) -> list[Problem]:
    problems = []
    for header, metric in ((str(header), metric) for header, metric in columns.items()):
        found = check_metric(f"{where}.{header}", metric)
        problems += found or check_header(f"{where}.{header}", header, metric)
    return problems


def _check_paper(where: str, paper: object, published: Beside | None) -> list[Problem]:
    if paper is None:
        return []
    if paper not in papers():
        return [unknown(where, paper, str(paper), papers())]
    if published is not None and published.paper != paper:
        return [Problem(where, paper, f"published is {published.paper}'s", "leave one of them out")]
    return []
