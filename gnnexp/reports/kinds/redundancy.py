"""Redundant work of data parallelism: what its micro-batches compute and load against one mini-batch (GSplit, Table 1).

Micro is data parallelism with a neighbour sample per rank (`sampler.key=micro`). Mini is split parallelism on as many
ranks, in one group; where there is none, a run of one rank, whose batch is the mini-batch for any number of ranks.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gnnexp.planning.full_size import full_factor, full_steps
from gnnexp.record.runs import Run
from gnnexp.reports.published.cells import cells, chosen, printed, with_papers
from gnnexp.reports.published.graphs import graph_like, share_of_targets
from gnnexp.reports.table import Table
from gnnexp.reports.values.setting import Setting, setting_columns, setting_of, splits_one_batch

_ORIGINS = ("host", "local", "peer", "remote", "disk")
_COLUMNS = ("edges micro", "edges mini", "edges ratio", "features micro", "features mini", "features ratio",
            "paper's edges ratio", "paper's features ratio")
_COUNTERS = {"edges_computed": ("edges_computed",),
             "features_loaded": tuple(f"features_loaded_{origin}" for origin in _ORIGINS)}
# The paper's counts: quantity, and whose.
_COUNTED = {"edges micro": ("edges_computed", "micro"), "edges mini": ("edges_computed", "mini"),
            "features micro": ("features_loaded", "micro"), "features mini": ("features_loaded", "mini")}
Role = Literal["micro", "split", "alone", "other"]


def role_of(run: Run) -> Role:
    """The side of the comparison that `run` is on; what owners have of a batch is no even micro-batch."""
    if splits_one_batch(run):
        return "split"
    if run.value("paradigm") != "data_parallel":
        return "other"
    alone = setting_of(run).ranks == 1
    if run.value("sampler.key") == "micro" and (alone or run.value("paradigm.assign") in ("even", "null")):
        return "micro"
    return "alone" if alone else "other"


@dataclass(frozen=True)
class Pair:
    """Finished runs of one setting on both sides.

    Attributes:
        setting: theirs.
        micro: runs on micro-batches; empty where there is none.
        mini: runs on the mini-batch; empty where there is none.
        stands_in: whether `mini` are runs of one rank for want of split parallel ones.
    """

    setting: Setting
    micro: Sequence[Run]
    mini: Sequence[Run]
    stands_in: bool = False


def find_pairs(runs: Sequence[Run]) -> list[Pair]:
    """Every setting with runs on micro-batches, then the runs on mini-batches that none of them needs."""
    sides: dict[tuple[Role, Setting], list[Run]] = {}
    for run in runs:
        sides.setdefault((role_of(run), setting_of(run)), []).append(run)
    pairs, used = [], set()
    for setting in sorted(setting for role, setting in sides if role == "micro"):
        mini = next((key for key in _mini_keys(setting) if key in sides), None)
        used.add(mini)
        stands_in = mini is not None and mini != ("split", setting)
        pairs.append(Pair(setting, sides["micro", setting], sides[mini] if mini else (), stands_in))
    unused = sorted(key for key in sides if key[0] in ("split", "alone") and key not in used)
    return [*pairs, *(Pair(key[1], (), sides[key]) for key in unused)]


def _mini_keys(setting: Setting) -> list[tuple[Role, Setting]]:
    one = replace(setting, ranks=1)
    return [("split", setting), ("split", one), ("alone", one), ("micro", one)]


def make_table(runs: Sequence[Run]) -> Table:
    """One row per setting that has both sides; the caption names what has no row."""
    finished = [run for run in runs if run.status == "finished"]
    pairs = find_pairs(finished)
    shown = [pair for pair in pairs if pair.micro and pair.mini]
    columns = setting_columns([pair.setting for pair in shown])
    counted = [_at_full_size(pair) for pair in shown]
    told = [name for name in _COUNTED if any(name in one for one in counted)]
    rows = [(*(str(getattr(pair.setting, name)) for name in columns), *_cells(pair),
             *(one.get(name, "–") for name in told)) for pair, one in zip(shown, counted, strict=True)]
    others = [run for run in finished if role_of(run) == "other"]
    header = (*columns, *_COLUMNS, *(f"{name}, full size / paper" for name in told))
    return Table(header, tuple(rows), _caption(pairs, others, len(runs) - len(finished)))


def _cells(pair: Pair) -> tuple[str, ...]:
    ours: list[str] = []
    for group in _COUNTERS.values():
        micro, mini = per_epoch(pair.micro, group), per_epoch(pair.mini, group)
        known = not math.isnan(micro + mini) and mini > 0
        ours += count_cell(micro), count_cell(mini), f"{micro / mini:.2f}x" if known else "–"
    graph = graph_like(pair.setting.shape)
    return (*ours, *(printed("gsplit", "-", source="Table 1", quantity="redundancy_ratio", of=of, dataset=graph)
                     for of in _COUNTERS))


def _at_full_size(pair: Pair) -> dict[str, str]:
    """What the published graph and all of its targets would count, beside what the paper prints."""
    graph, told = graph_like(pair.setting.shape), {}
    for name, (quantity, side) in _COUNTED.items() if graph else ():
        runs = pair.micro if side == "micro" else pair.mini
        found = chosen(cells("gsplit"), source="Table 1", quantity=quantity, batches=side, dataset=graph)
        times = full_factor(runs[0]) * full_steps(runs[0], share_of_targets("gsplit", runs[0]))
        counted = per_epoch(runs, _COUNTERS[quantity]) * times
        if found and not math.isnan(counted):
            told[name] = with_papers(counted, found[0].number)
    return told


def per_epoch(runs: Sequence[Run], counters: Sequence[str]) -> float:
    """Sum of the `work/*` counters over all ranks, the mean over epochs and runs; NaN where none was recorded."""
    sums = [sum(found) for run in runs for epoch in run.epochs
            if (found := [epoch[f"work/{name}"] for name in counters if f"work/{name}" in epoch])]
    return statistics.fmean(sums) if sums else math.nan


def count_cell(value: float) -> str:
    """A mean count, to the nearest whole."""
    return "–" if math.isnan(value) else f"{value:.0f}"


def _caption(pairs: Sequence[Pair], others: Sequence[Run], num_failed: int) -> str:
    notes = [
        "Edges computed and features loaded in an epoch, over all ranks, mean over epochs and runs. Micro: data "
        "parallelism with a sample per rank; mini: one mini-batch for all ranks. Paper: GSplit, Table 1, 4 GPUs.",
        *(f"Mini of {pair.setting} is a run of one rank." for pair in pairs if pair.stands_in),
        *(f"Micro without its mini: {pair.setting}." for pair in pairs if not pair.mini),
        *(f"Mini without its micro: {pair.setting}." for pair in pairs if not pair.micro),
    ]
    if any(graph_like(pair.setting.shape) for pair in pairs):
        notes.append("Full size: counts times the size and the steps of the published graph over ours; where they are "
                     "more than 1.5 times off, our graph decides no claim (docs/reports.md).")
    kinds = Counter(run.value("system") for run in others)
    if kinds:
        named = ", ".join(f"{count} of {system}" for system, count in kinds.items())
        notes.append(f"Neither micro nor mini: {named}.")
    return " ".join([*notes, f"Failed: {num_failed} runs."] if num_failed else notes)
