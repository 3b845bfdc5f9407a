"""Epochs on graphs of several relations by system, each beside a sampling one's (NeutronTP, Table 3)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gnnexp.record.runs import Run
from gnnexp.reports.published.cells import number_of, printed
from gnnexp.reports.published.graphs import published_graph
from gnnexp.reports.table import Table, megabytes_cell, seconds_cell
from gnnexp.reports.values.labels import ALWAYS, last_of_settings

BASELINE = "distdgl"
_COLUMNS = ("epoch s", f"x {BASELINE}", "edges computed", "MB sent", "paper s", f"paper x {BASELINE}")
# As the paper calls the systems (Table 3: seconds per epoch of R-GCN on 16 nodes with a T4 each).
_PUBLISHED = {BASELINE: "distdglv2", "neutrontp": "neutrontp"}
_CAPTION = (
    "Epoch: wall time, median of the epochs after the first, which warms up, slowest rank. "
    f"x {BASELINE}: how many times as fast on the same graph and ranks. Edges computed: by the layers of an epoch's "
    "forward passes, over all ranks; by columns, each rank's share of them. MB: 10^6 bytes to other ranks in an epoch. "
    "Paper: DistDGLv2 and NeutronTP on ogbn-mag (mag_like) and MAG240M (mag_lsc_like), 16 nodes with a GPU each: "
    "another machine and other sizes, so that only who is ahead compares. neutrontp trains the model's decoupled twin."
)


@dataclass(frozen=True)
class Epoch:
    """Of a finished run.

    Attributes:
        labels: what tells its setting from those beside it, by column.
        seconds: wall time.
        edges: computed.
        sent_bytes: to other ranks.
        paper_s: of the system on the graph that ours is like; NaN where nobody published it.
    """

    labels: Mapping[str, str]
    seconds: float
    edges: float
    sent_bytes: float
    paper_s: float


def find_epochs(runs: Iterable[Run]) -> list[Epoch]:
    """Of finished runs, the last of each setting, in order of first appearance."""
    chosen = [run for run in runs if run.status == "finished"]
    return [_epoch(labels, run) for labels, run in last_of_settings(chosen)]


def _epoch(labels: Mapping[str, str], run: Run) -> Epoch:
    tags = {name for epoch in run.epochs for name in epoch if name.startswith("comm/bytes_")} - {"comm/bytes_skipped"}
    published = printed("neutrontp", source="Table 3", quantity="runtime_s", dataset=published_graph(run),
                        system=_PUBLISHED.get(run.value("system"), "none"))
    return Epoch(labels, run.median("time/epoch_s"), run.median("work/edges_computed"), sum(map(run.median, tags)),
                 number_of(published))


def make_table(runs: Sequence[Run]) -> Table:
    """One row per setting."""
    epochs = find_epochs(runs)
    baselines = {_graph(one): one for one in epochs if one.labels["system"] == BASELINE}
    rows = [(*one.labels.values(), *_cells(one, baselines.get(_graph(one)))) for one in epochs]
    left_out = ((sum(run.status != "finished" for run in runs), "failed"),
                (sum(run.status == "finished" for run in runs) - len(epochs), "repeated later"))
    caption = " ".join([_CAPTION, *(f"Left out: {count} runs {why}." for count, why in left_out if count)])
    return Table((*(epochs[0].labels if epochs else ALWAYS), *_COLUMNS), tuple(rows), caption)


def _graph(one: Epoch) -> tuple[str, str]:
    return one.labels["dataset"], one.labels["ranks"]


def _cells(one: Epoch, baseline: Epoch | None) -> tuple[str, ...]:
    ours, papers = (math.nan, math.nan) if baseline is None else (
        baseline.seconds / one.seconds, baseline.paper_s / one.paper_s)
    return (seconds_cell(one.seconds), _cell(ours, "{:.2f}"), _cell(one.edges, "{:.0f}"),
            megabytes_cell(one.sent_bytes), _cell(one.paper_s, "{:.1f}"), _cell(papers, "{:.2f}"))


def _cell(value: float, form: str) -> str:
    return "–" if math.isnan(value) else form.format(value)
