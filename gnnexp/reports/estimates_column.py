"""A column of estimates in the comparison table: seconds of an epoch on a described machine, at the paper's size."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from gnnexp.planning.estimate import estimate_epoch
from gnnexp.planning.machine import Machine
from gnnexp.reports.labels import setting_of
from gnnexp.reports.paper_table import PublishedTable, any_of, place_of
from gnnexp.reports.planned import has_rates, tells_enough
from gnnexp.reports.published_cells import number_of, pairs_in_order
from gnnexp.reports.published_graphs import work_as_published
from gnnexp.reports.tables.cells import ABSENT, VerdictCell
from gnnexp.reports.tables.groups import RunGroup
from gnnexp.reports.tables.table import ReportTable

OUT_OF_MEMORY = "OOM"


def with_estimates(
    table: ReportTable,
    groups: Sequence[RunGroup],
    machine: Machine,
    paper: str = "",
    published: PublishedTable | None = None,
) -> ReportTable:
    """`table` with a column of estimated seconds of an epoch on `machine`: after the paper's column, or at the end.

    Args:
        table: the comparison table, one row per group.
        groups: the groups of runs, one per row.
        machine: the described machine.
        paper: the paper whose share of training vertices is used; empty: the share of the graph's shape.
        published: the paper's numbers in the table, which the estimates are compared with.
    """
    edge_rows = () if published is None else published.edge_rows
    seconds = [estimated_s(group, machine, paper, edge_rows) for group in groups]
    paired = published is not None and bool(published.epoch)
    quantity = published.epoch if published is not None and paired else "epoch_s"
    place = table.header.index(f"{quantity}, paper") + 1 if paired else len(table.header)
    header = (*table.header[:place], f"{quantity}, estimated", *table.header[place:])
    rows = tuple((*row[:place], _cell(value), *row[place:]) for row, value in zip(table.rows, seconds, strict=True))
    notes = [
        f"{quantity}, estimated: on {machine.name}, not measured. A linear model of what the runs counted "
        "(docs/estimates.md) gives it, with the counts of the whole graph of that shape "
        f"(1 / dataset.scale) and of all its targets{f' in {paper}' if paper else ''}."
    ]
    if published is not None and paired:
        if published.edge_rows:
            notes.append(
                f"Memory of {', '.join(published.edge_rows)} with GAT: of code that keeps the projected rows "
                "of both ends of every edge, which ours does not."
            )
        notes += _against_paper(groups, seconds, published)
    if left_out := sum(map(math.isnan, seconds)):
        notes.append(
            f"No estimate: {left_out} rows. An estimate needs a finished run that counted what its layers "
            f"computed, on the {machine.nodes * machine.workers} ranks of {machine.name}, on fewer of its "
            "devices, or on several of its nodes. The profile must have a rate of products in the run's "
            "train.matmul."
        )
    best = frozenset((row, column + (column >= place)) for row, column in table.best)
    return ReportTable(header, rows, " ".join([table.caption, *notes]), best=best)


def estimated_s(group: RunGroup, machine: Machine, paper: str = "", edge_rows: Sequence[str] = ()) -> float:
    """Mean over the runs; infinite if the device's memory is too small, NaN if no run has the needed counts."""
    runs = [
        run
        for run in group.runs
        if tells_enough(run) and has_rates(run, machine) and machine.can_run(setting_of(run).ranks)
    ]
    estimates = [estimate_epoch(work_as_published(paper, run, edge_rows), machine) for run in runs]
    if not estimates:
        return math.nan
    return (
        statistics.fmean(estimate.epoch_s for estimate in estimates)
        if all(estimate.fits for estimate in estimates)
        else math.inf
    )


def _cell(seconds: float) -> VerdictCell:
    return VerdictCell(seconds, absent=OUT_OF_MEMORY if math.isinf(seconds) else ABSENT)


def _against_paper(groups: Sequence[RunGroup], seconds: Sequence[float], published: PublishedTable) -> list[str]:
    """How many pairs of systems have the paper's order, and how far the estimates are from the paper's numbers."""
    papers = [_printed(published.printed(any_of(group), published.epoch)) for group in groups]
    right, total = pairs_in_order(zip((place_of(group, published) for group in groups), seconds, papers, strict=True))
    notes = [f"By this estimate, {right} of {total} pairs of systems are in the paper's order."] if total else []
    errors = [
        abs(math.log(ours / theirs))
        for ours, theirs in zip(seconds, papers, strict=True)
        if math.isfinite(ours) and math.isfinite(theirs) and theirs > 0 < ours
    ]
    if errors:
        notes.append(
            f"Estimate and paper differ by a factor of {math.exp(statistics.median(errors)):.2f} (median of "
            f"{len(errors)} rows)."
        )
    return notes


def _printed(text: str) -> float:
    """The paper's number; infinite for `OOM`, so that systems that do not fit are ordered last."""
    return math.inf if text == OUT_OF_MEMORY else number_of(text)
