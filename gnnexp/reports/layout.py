"""What a report shows: the `report:` block of a sweep's file, read and checked as one value (docs/reports.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.signature import unknown
from gnnexp.planning.profiles import machine_named
from gnnexp.reports.figures.description import Figure, check_keys, read_figures
from gnnexp.reports.kinds.kinds import KINDS
from gnnexp.reports.published.beside import Beside, read_beside
from gnnexp.reports.published.cells import papers
from gnnexp.reports.values.metrics import check_header, check_metric

_KEYS = ("rows", "kind", "columns", "paper", "published", "estimate", "figures")
# What states of sweeps had at their top before there was a layout.
_OLDER = ("rows", "kind", "published")


@dataclass(frozen=True)
class Layout:
    """What a report shows.

    Attributes:
        rows: config keys that name a row; empty: those that differ.
        kind: one of `KINDS`, with a table and figures of its own; empty for the comparison table.
        columns: of the comparison table: the metric of the record by the header, in order; empty: the usual ones.
        published: which table of a paper stands beside ours, or None.
        paper: whose share of the vertices estimates train; that of `published` where it is asked for.
        estimate: hardware profile on which an epoch is estimated, or empty.
        figures: None: the usual ones.
    """

    rows: tuple[str, ...] = ()
    kind: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    published: Beside | None = None
    paper: str = ""
    estimate: str = ""
    figures: tuple[Figure, ...] | None = None

    @property
    def compares(self) -> bool:
        """Whether there is a comparison table: always without a kind, beside a kind's own where it is asked for."""
        return not self.kind or bool(self.columns or self.published or self.estimate)

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
    problems = [unknown(f"{where}.{key}", value, str(key), _KEYS) for key, value in options.items() if key not in _KEYS]
    given = {key: value for key, value in options.items() if value is not None}
    problems += check_keys(f"{where}.rows", given.get("rows", []))
    if "kind" in given and given["kind"] not in [*KINDS]:
        problems.append(unknown(f"{where}.kind", given["kind"], str(given["kind"]), KINDS))
    problems += _check_columns(f"{where}.columns", given.get("columns", {}))
    problems += _check_estimate(f"{where}.estimate", given.get("estimate"))
    if "columns" in given and "published" in given:
        problems.append(Problem(f"{where}.columns", given["columns"], "published has columns of its own",
                                "leave one of them out"))
    published, found = _read_published(f"{where}.published", given.get("published"))
    problems += [*found, *_check_paper(f"{where}.paper", given.get("paper"), published)]
    figures, found = read_figures(given.get("figures", []), f"{where}.figures")
    if problems := [*problems, *found]:
        raise ConfigError(problems)
    return Layout(tuple(given.get("rows", ())), given.get("kind", ""), dict(given.get("columns", {})), published,
                  given.get("paper", published.paper if published else ""), given.get("estimate", ""),
                  figures if "figures" in given else None)


def layout_of(state: Mapping[str, Any]) -> Layout:
    """Of a sweep's state file, also one that an older version wrote."""
    return read_layout(state.get("report", {key: state[key] for key in _OLDER if state.get(key)}))


def check_named(layout: Layout, known: Iterable[str], where: str = "") -> list[Problem]:
    """Config keys that the layout names and that no run has.

    Args:
        layout: of the report.
        known: dotted keys, and names of groups, of any run.
        where: begins the problems' key.
    """
    names = {*known}
    return [unknown(f"{where}{place}", key, key, names) for key, place in layout.keys.items() if key not in names]


def _check_columns(where: str, columns: object) -> list[Problem]:
    if not isinstance(columns, Mapping) or not all(isinstance(header, str) for header in columns):
        return [Problem(where, columns, "must map headers to metrics of the epoch record",
                        "columns: {epoch s: time/epoch_s}")]
    problems = []
    for header, metric in columns.items():
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


def _check_estimate(where: str, profile: object) -> list[Problem]:
    if profile is None:
        return []
    if not isinstance(profile, str):
        return [Problem(where, profile, "must be a hardware profile", "estimate: p3_8xlarge")]
    try:
        machine_named(profile)
    except ConfigError as error:
        return [Problem(f"{where} ({problem.key})", problem.value, problem.allowed, problem.mend)
                for problem in error.problems]
    return []


def _read_published(where: str, options: object) -> tuple[Beside | None, list[Problem]]:
    if options is None:
        return None, []
    if not isinstance(options, Mapping):
        return None, [Problem(where, options, "must be a mapping",
                              "published: {paper: gsplit, source: Table 3, columns: {…}}")]
    try:
        return read_beside(options, where), []
    except ConfigError as error:
        return None, list(error.problems)
