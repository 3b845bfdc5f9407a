"""A paper's table with our numbers beside its own: what `report.published` of a sweep asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gnnexp.config.signature import unknown
from gnnexp.errors import ConfigError, Problem
from gnnexp.reports.published.cells import cells, number_of, papers, printed
from gnnexp.reports.published.graphs import published_graph
from gnnexp.reports.published.order import Compared, pairs_in_order
from gnnexp.reports.spread import interval_cell, mean_and_interval
from gnnexp.reports.table import Group, Table
from gnnexp.runs import Run

_KEYS = ("paper", "source", "columns", "where", "over")


@dataclass(frozen=True)
class Beside:
    """Which published table stands beside ours.

    Attributes:
        paper: of `cells.papers()`.
        source: `Table 3`.
        columns: a metric of our record by the paper's quantity, in order.
        where: further fields and settings of the cells, the same for all rows.
        over: a system that every row's last column is compared with, or None.
    """

    paper: str
    source: str
    columns: Mapping[str, str]
    where: Mapping[str, str] = field(default_factory=dict)
    over: str | None = None

    def printed(self, run: Run, quantity: str) -> str:
        """The paper's cell for what `run` is, `–` where it has none."""
        return printed(self.paper, source=self.source, quantity=quantity, dataset=published_graph(run),
                       model=run.value("model"), system=run.value("system"), **self.where)


def read_beside(options: Mapping[str, Any], where: str = "report.published") -> Beside:
    """From a sweep's file.

    Raises:
        ConfigError: a key is unknown, or the paper has no such source or quantity.
    """
    problems = [unknown(f"{where}.{key}", value, str(key), _KEYS) for key, value in options.items() if key not in _KEYS]
    paper, source, columns = (options.get(key) for key in ("paper", "source", "columns"))
    if paper not in papers():
        problems.append(unknown(f"{where}.paper", paper, str(paper), papers()))
    if not isinstance(columns, Mapping) or not columns:
        problems.append(Problem(f"{where}.columns", columns, "must map the paper's quantities to metrics of the record",
                                "columns: {epoch_s: time/epoch_s}"))
    if not problems:
        assert isinstance(paper, str) and isinstance(columns, Mapping)
        known = [cell for cell in cells(paper) if cell.source == source]
        if not known:
            sources = sorted({cell.source for cell in cells(paper)})
            problems.append(unknown(f"{where}.source", source, str(source), sources))
        quantities = sorted({cell.quantity for cell in known})
        problems += [unknown(f"{where}.columns", quantity, str(quantity), quantities)
                     for quantity in columns if known and quantity not in quantities]
    if problems:
        raise ConfigError(problems)
    more = dict(options.get("where", {})), options.get("over")
    return Beside(str(paper), str(source), dict(options["columns"]), *more)


def make_table(groups: Sequence[Group], keys: Sequence[str], beside: Beside) -> Table:
    """One row per group: for every quantity ours, over seeds, and the paper's; how often both order systems alike."""
    header = [name for quantity in beside.columns for name in (quantity, f"{quantity}, paper")]
    if beside.over:
        header += [f"x {beside.over}", f"x {beside.over}, paper"]
    rows = [(*group.labels, *_cells(group, groups, beside)) for group in groups]
    return Table((*keys, *header), tuple(rows), _caption(groups, beside))


def _cells(group: Group, groups: Sequence[Group], beside: Beside) -> list[str]:
    one = _any(group)
    found = []
    for quantity, metric in beside.columns.items():
        values = [run.median(metric) for run in group.runs]
        found += [interval_cell(values) if group.runs else group.verdict, beside.printed(one, quantity)]
    if beside.over:
        found += _ratios(group, groups, beside)
    return found


def _ratios(group: Group, groups: Sequence[Group], beside: Beside) -> list[str]:
    """The last column of this row over that of the `over` row of the same graph and model, ours and the paper's."""
    quantity, metric = list(beside.columns.items())[-1]
    base = next((other for other in groups if _any(other).value("system") == beside.over
                 and _place(other) == _place(group)), None)
    if base is None:
        return ["–", "–"]
    ours = _mean(group, metric) / _mean(base, metric)
    papers = number_of(beside.printed(_any(group), quantity)) / number_of(beside.printed(_any(base), quantity))
    return ["–" if math.isnan(value) else f"{value:.2f}" for value in (ours, papers)]


def _caption(groups: Sequence[Group], beside: Beside) -> str:
    quantity, metric = list(beside.columns.items())[-1]
    found = [Compared(_place(group), _any(group).value("system"), _mean(group, metric),
                      number_of(beside.printed(_any(group), quantity))) for group in groups]
    right, total = pairs_in_order(found)
    warm = sorted({run.num_warm for group in groups for run in group.runs})
    epochs = f"{warm[0]}" if len(warm) == 1 else f"{min(warm, default=0)} to {max(warm, default=0)}"
    order = f" By {quantity}, {right} of {total} pairs of systems are in the paper's order." if total else ""
    return (f"Paper: {beside.paper}, {beside.source}, on its machines and its graphs. Ours: median of the {epochs} "
            f"epochs after the first, which warms up; mean and 95 % interval over several seeds.{order}")


def _any(group: Group) -> Run:
    return (*group.runs, *group.failed)[0]


def _place(group: Group) -> tuple[str, str]:
    return published_graph(_any(group)), _any(group).value("model")


def _mean(group: Group, metric: str) -> float:
    if not group.runs:
        return math.inf if group.verdict == "OOM" else math.nan
    return mean_and_interval([run.median(metric) for run in group.runs])[0]
