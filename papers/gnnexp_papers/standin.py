"""Counts of a synthetic graph (a stand-in), compared with the counts that the paper prints of its own graph."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gnnexp.planning.work import full_factor, full_steps
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.expression import evaluate
from gnnexp.reports.published_cells import Cell, cells, chosen, number_of
from gnnexp.reports.published_graphs import fraction_of_targets, published_graph
from gnnexp_papers.claim import Cells, Check, Claim, Count, Expects
from gnnexp_papers.pairs import Found, matches, statistic

# A stand-in decides nothing about its graph if a count differs from the paper's by more than this factor.
TOO_FAR = 1.5
# Counts within this factor are called equal, since papers print two or three digits.
_SAME = 1.05


@dataclass(frozen=True)
class Counted:
    """One count of a stand-in.

    Attributes:
        graph: the published graph that the stand-in stands for.
        name: the count's name.
        ours: our count at the published size; NaN if no run has counted it.
        papers: the paper's count, as printed.
    """

    graph: str
    name: str
    ours: float
    papers: float

    @property
    def is_far(self) -> bool:
        """Whether the count differs too much from the paper's to decide anything."""
        return math.isnan(self.ours) or times_off(self.ours, self.papers) > TOO_FAR

    def __str__(self) -> str:
        return f"{self.name} {'not counted' if math.isnan(self.ours) else with_papers(self.ours, self.papers)}"


def counted(claim: Claim, runs_of: Mapping[str, Sequence[RecordedRun]]) -> list[Counted]:
    """Counts that the claim depends on, for each graph whose counts the paper prints."""
    check = claim.check
    if check is None:
        return []
    found: dict[tuple[str, str], list[Counted]] = {}
    for count in check.counts or ():
        runs = {run.path: run for sweep in count.sweeps or check.sweeps for run in runs_of.get(sweep, ())}
        for run in runs.values():
            for one in _of_run(claim.paper, count, run):
                found.setdefault((one.graph, one.name), []).append(one)
    return [Counted(*key, statistics.fmean(one.ours for one in same), same[0].papers) for key, same in found.items()]


def _of_run(paper: str, count: Count, run: RecordedRun) -> Iterable[Counted]:
    graph = stands_for(run)
    if run.status != "finished" or not graph or not matches(run, count.of):
        return
    ours = evaluate(count.value, run, at_full_size(paper, run))
    for papers in () if math.isnan(ours) else _printed(paper, count, graph):
        yield Counted(graph, count.name, ours, papers)


def _printed(paper: str, count: Count, graph: str) -> list[float]:
    """The numbers that the paper prints for a count of a graph."""
    found = chosen(cells(paper), dataset=graph, **count.cell)
    return [cell.number for cell in found if not math.isnan(cell.number)]


def not_counted(claim: Claim, runs: Iterable[RecordedRun], counts: Iterable[Counted]) -> list[Counted]:
    """Counts that the paper prints for the graphs of these runs, but that no run of the count's sweeps has made."""
    check, have = claim.check, {(one.graph, one.name) for one in counts}
    missing: dict[tuple[str, str], float] = {}
    for run in runs:
        for count in (check.counts or ()) if check is not None else ():
            graph, of = stands_for(run), {key: value for key, value in count.of.items() if key.startswith("dataset.")}
            printed = _printed(claim.paper, count, graph) if graph and matches(run, of) else []
            if printed and (graph, count.name) not in have:
                missing[graph, count.name] = printed[0]
    return [Counted(*key, math.nan, papers) for key, papers in missing.items()]


def at_full_size(paper: str, run: RecordedRun) -> dict[str, float]:
    """`full`: how many times larger the published graph is. `steps`: how many times more steps an epoch has on it."""
    return {"full": full_factor(run), "steps": full_steps(run, fraction_of_targets(paper, run))}


def stands_for(run: RecordedRun) -> str:
    """The published graph that a synthetic graph stands for; empty for real graphs."""
    return published_graph(run) if run.value("dataset.shape") != "null" else ""


def is_unlike(found: Found, counts: Iterable[Counted]) -> bool:
    """Whether a count of a graph of this pair differs by more than the factor `TOO_FAR`."""
    graphs = {stands_for(run) for run in found.runs}
    return any(one.graph in graphs and one.is_far for one in counts)


def expected_of(found: Found, claim: Claim) -> Expects:
    """The paper's number for this very pair if the paper prints cells, else what the sentence says."""
    check, expects = claim.check, claim.expects
    if check is None or check.cells is None:
        return expects
    low, high = _cell(claim.paper, check.cells, found.runs[0], expects)
    return expects if math.isnan(low) else Expects(expects.statistic, low, high, None, expects.better)


def _cell(paper: str, wanted: Cells, run: RecordedRun, expects: Expects) -> tuple[float, float]:
    of, over = (_only(paper, side, wanted, run) for side in (wanted.of, wanted.over))
    if of is None or (wanted.over and over is None):
        return math.nan, math.nan
    if over is not None:
        value = statistic(of.number, over.number, expects)
        return value, value
    return of.number, number_of(of.upper) if of.upper else of.number


def _only(paper: str, side: Mapping[str, str], wanted: Cells, run: RecordedRun) -> Cell | None:
    same = {name: run.value(key) for name, key in wanted.by.items()}
    found = chosen(cells(paper), dataset=published_graph(run), **same, **side) if side else []
    assert len(found) < 2, f"{paper}, {side}, {same}: {len(found)} cells"
    return found[0] if found else None


def published_numbers(paper: str, check: Check, run: RecordedRun) -> dict[str, float]:
    """`published/<quantity>`: the numbers in the check's `printed` cells for the run's graph."""
    if not check.printed:
        return {}
    found = chosen(cells(paper), dataset=published_graph(run), **check.printed)
    return {f"published/{cell.quantity}": cell.number for cell in found}


def short(value: float) -> str:
    """A count as papers print it: `926M`, `13.4B`, `8.5`."""
    for factor, sign in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{sign}"
    return f"{value:.3g}"


def times_off(ours: float, papers: float) -> float:
    """The factor between two counts, at least 1, whichever is larger; infinite if ours is 0."""
    return max(ours / papers, papers / ours) if ours > 0 else math.inf


def with_papers(ours: float, papers: float) -> str:
    """`1.09B / 926M (1.2x off)`."""
    off = times_off(ours, papers)
    return f"{short(ours)} / {short(papers)} ({f'{off:.2g}x off' if off > _SAME else 'equal'})"
