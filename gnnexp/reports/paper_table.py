"""A paper's table with our numbers next to the paper's, as `report.published` of a sweep describes it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gnnexp.components.signature import key_problems, parameters_of_dataclass, unknown
from gnnexp.errors import ConfigError, Problem
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.comparison import count_cell, shared_caption
from gnnexp.reports.expression import evaluate, expression_problems
from gnnexp.reports.metrics import mean_and_interval, metric_problems, value_of
from gnnexp.reports.published_cells import Cell, cells, number_of, pairs_in_order, papers, printed_value
from gnnexp.reports.published_graphs import published_graph
from gnnexp.reports.tables.cells import ABSENT, NumberCell, StatisticsCell, TableCell
from gnnexp.reports.tables.groups import RunGroup
from gnnexp.reports.tables.table import ReportTable

EPOCH = "time/epoch_s"


@dataclass(frozen=True)
class PublishedTable:
    """The published table that is shown next to ours.

    Attributes:
        paper: name of the paper, one of `published_cells.papers()`.
        source: the table in the paper, such as `Table 3`.
        columns: the metric of our record for each quantity of the paper, in order; or an `expression` with brackets.
        where: further fields and settings of the cells, the same for all rows. They override the values of a row's
            runs (`model: ""` if the paper does not name the model).
        settings: settings of the cells that differ between rows, each with a config key of the runs or an expression.
        systems: the paper's system for a system of ours, if their names differ.
        edge_rows: our systems whose published code keeps rows for the edges of a GAT. Estimates of their memory include
            these rows (`gnnexp.planning.work.Workload`).
        over: a system that the last column of every row is compared with, or None.
    """

    paper: str
    source: str
    columns: Mapping[str, str]
    where: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    systems: Mapping[str, str] = field(default_factory=dict)
    edge_rows: Sequence[str] = ()
    over: str | None = None

    @property
    def epoch(self) -> str:
        """The quantity that is shown next to our seconds of an epoch; empty if there is none."""
        return next((quantity for quantity, metric in self.columns.items() if metric == EPOCH), "")

    def printed(self, run: RecordedRun, quantity: str) -> str:
        """The paper's cell for the system and setting of `run`; `–` if there is none."""
        wanted = {"dataset": published_graph(run), "model": run.value("model"), "system": self.system_of(run)}
        wanted |= self.settings_of(run)
        return printed_value(self.paper, source=self.source, quantity=quantity, **{**wanted, **self.where})

    def system_of(self, run: RecordedRun) -> str:
        """The paper's system for `run`; empty if another system of ours stands for the paper's system of this name."""
        name = run.value("system")
        return self.systems.get(name, "" if name in self.systems.values() else name)

    def settings_of(self, run: RecordedRun) -> dict[str, str]:
        """The values of `settings` for `run`, in the form that cells have."""
        return {
            name: f"{evaluate(key, run):g}" if _is_expression(key) else run.value(key)
            for name, key in self.settings.items()
        }


def read_published(options: Mapping[str, Any], where: str = "report.published") -> PublishedTable:
    """Read the options from a sweep's file.

    Raises:
        ConfigError: a key is unknown, or the paper has no such source or quantity.
    """
    problems = key_problems(
        where,
        {key: value for key, value in options.items() if value is not None},
        parameters_of_dataclass(PublishedTable),
    )
    paper, source, columns = (options.get(key) for key in ("paper", "source", "columns"))
    if paper not in papers():
        problems.append(unknown(f"{where}.paper", paper, str(paper), papers()))
    if not columns:
        problems.append(
            Problem(
                f"{where}.columns",
                columns,
                "must map the paper's quantities to metrics of the record",
                "columns: {epoch_s: time/epoch_s}",
            )
        )
    if not problems:
        assert isinstance(paper, str) and isinstance(columns, Mapping)
        known = [cell for cell in cells(paper) if cell.source == source]
        if not known:
            sources = sorted({cell.source for cell in cells(paper)})
            problems.append(unknown(f"{where}.source", source, str(source), sources))
        quantities = sorted({cell.quantity for cell in known})
        problems += [
            unknown(f"{where}.columns", quantity, str(quantity), quantities)
            for quantity in columns
            if known and quantity not in quantities
        ]
        problems += [
            problem
            for quantity, metric in columns.items()
            for problem in _value_problems(f"{where}.columns.{quantity}", metric)
        ]
        problems += _setting_problems(f"{where}.settings", options.get("settings") or {}, known)
    ConfigError.raise_all(problems)
    return PublishedTable(**{key: value for key, value in options.items() if value is not None})


def _is_expression(text: object) -> bool:
    return isinstance(text, str) and "[" in text


def _value_problems(where: str, value: object) -> list[Problem]:
    return expression_problems(str(value), where) if _is_expression(value) else metric_problems(where, value)


def _setting_problems(where: str, settings: Mapping[str, Any], known: Sequence[Cell]) -> list[Problem]:
    names = sorted({name for cell in known for name in cell.setting})
    problems = [
        unknown(f"{where}.{name}", key, str(name), names)
        for name, key in settings.items()
        if known and name not in names
    ]
    return problems + [
        problem
        for name, key in settings.items()
        if _is_expression(key)
        for problem in expression_problems(key, f"{where}.{name}")
    ]


def make_paper_table(groups: Sequence[RunGroup], keys: Sequence[str], published: PublishedTable) -> ReportTable:
    """One row per group: for every quantity our value over seeds and the paper's. The caption compares the orders."""
    header = [name for quantity in published.columns for name in (quantity, f"{quantity}, paper")]
    if published.over:
        header += [f"x {published.over}", f"x {published.over}, paper"]
    rows = [(*group.labels, *_cells(group, groups, published), count_cell(group)) for group in groups]
    return ReportTable((*keys, *header, "runs"), tuple(rows), _caption(groups, keys, published))


def _cells(group: RunGroup, groups: Sequence[RunGroup], published: PublishedTable) -> list[TableCell]:
    one = any_of(group)
    found: list[TableCell] = []
    for quantity, metric in published.columns.items():
        values = tuple(_values(group.runs, metric))
        ours = StatisticsCell(values, absent=ABSENT if group.runs else group.verdict)
        found += [ours, published.printed(one, quantity)]
    if published.over:
        found += _ratios(group, groups, published)
    return found


def _ratios(group: RunGroup, groups: Sequence[RunGroup], published: PublishedTable) -> list[NumberCell]:
    """Ours and the paper's: the last column divided by that of the `over` row of the same graph and model."""
    quantity, metric = list(published.columns.items())[-1]
    base = next(
        (
            other
            for other in groups
            if any_of(other).value("system") == published.over
            and place_of(other, published) == place_of(group, published)
        ),
        None,
    )
    if base is None:
        return [NumberCell(math.nan), NumberCell(math.nan)]
    ours = _mean(group, metric) / _mean(base, metric)
    papers = [number_of(published.printed(any_of(member), quantity)) for member in (group, base)]
    return [NumberCell(value, ".2f") for value in (ours, papers[0] / papers[1])]


def _caption(groups: Sequence[RunGroup], keys: Sequence[str], published: PublishedTable) -> str:
    quantity, metric = list(published.columns.items())[-1]
    right, total = pairs_in_order(
        (place_of(group, published), _mean(group, metric), number_of(published.printed(any_of(group), quantity)))
        for group in groups
    )
    order = f" By {quantity}, {right} of {total} pairs of systems are in the paper's order." if total else ""
    return (
        f"Paper: {published.paper}, {published.source}, on its machines and its graphs. Ours: "
        f"{shared_caption(groups, keys)}{order}"
    )


def any_of(group: RunGroup) -> RecordedRun:
    """One run of the row, finished or not: all runs have the same values of the row's keys."""
    return (*group.runs, *group.failed)[0]


def place_of(group: RunGroup, published: PublishedTable) -> tuple[str, ...]:
    """What systems must share to be compared: the published graph, the model, the settings and the kind of machine."""
    run = any_of(group)
    return published_graph(run), run.value("model"), *published.settings_of(run).values(), run.machine


def _mean(group: RunGroup, metric: str) -> float:
    if not group.runs:
        return math.inf if group.verdict == "OOM" else math.nan
    return mean_and_interval(_values(group.runs, metric))[0]


def _values(runs: Sequence[RecordedRun], metric: str) -> list[float]:
    """The values of all runs that recorded the metric."""
    of = evaluate if _is_expression(metric) else _metric
    return [value for run in runs if math.isfinite(value := of(metric, run))]


def _metric(name: str, run: RecordedRun) -> float:
    return value_of(run, name)
