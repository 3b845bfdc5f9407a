"""What every rank computes and sends in full-graph training (NeutronTP, Figures 3, 4, 5, 8 and 10, Table 2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gnnexp.record.runs import Run
from gnnexp.reports.kinds.rank_load import RankLoad, rank_loads, tells_redundancy
from gnnexp.reports.table import Table, seconds_cell
from gnnexp.reports.values.labels import ALWAYS, figure_name, label_runs

_COLUMNS = (
    "computation s max", "computation s min", "communication s max", "communication s min", "wait s max", "epoch s",
    "edges", "edges by rank", "edges max/mean", "bytes", "bytes by rank", "bytes max/mean", "gradient bytes",
    "redundant edges", "redundant %", "VD edges", "VD time %", "collectives",
)
_CAPTION = (
    "A rank's epoch: mean over those that read no features. Computation: forward + backward + update - time inside "
    "collectives of vertex data that the loop was in or waited for. Communication: all time inside collectives, hidden "
    "too, so both together may exceed the epoch; waiting for slower ranks is in neither. Edges: of a forward pass; of "
    "tensor parallelism by its share of the columns. Bytes: to other ranks, but for gradients. Redundant: into another "
    "rank's vertices; % of the necessary edges. VD (vertex dependency) edges: redundant + those whose source was "
    "fetched, now or (stale) before; an edge that is both counts twice. VD time: communication but for gradients + "
    "computation x redundant edges / edges (an estimate), of the epoch. –: no rank lacks a vertex. Collectives: "
    "payload exchanges but for gradients, every chunk's."
)


@dataclass(frozen=True)
class Balance:
    """A finished run.

    Attributes:
        labels: what tells its setting from those beside it, by column.
        layers: of its model.
        ranks: what each did.
    """

    labels: Mapping[str, str]
    layers: int
    ranks: Sequence[RankLoad]

    def name(self, others: Sequence[Balance], but: Sequence[str] = ()) -> str:
        """For a figure: the system, and those labels that differ from those of `others`, `but` for some."""
        return figure_name(self.labels, [other.labels for other in others], but)


def find_balances(runs: Iterable[Run]) -> list[Balance]:
    """Finished full-graph runs, the last of each setting, in order of first appearance."""
    loads = [(run, rank_loads(run)) for run in runs if run.status == "finished" and tells_redundancy(run)]
    chosen = [(run, ranks) for run, ranks in loads if ranks]
    labels = label_runs([run for run, _ in chosen])
    last = {tuple(of_run.values()): Balance(of_run, int(run.value("model.layers")), ranks)
            for of_run, (run, ranks) in zip(labels, chosen, strict=True)}
    return list(last.values())


# --- the table -------------------------------------------------------------------------------------------------------
def make_table(runs: Sequence[Run]) -> Table:
    """One row per setting."""
    balances = find_balances(runs)
    rows = [(*balance.labels.values(), *_cells(balance.ranks)) for balance in balances]
    labels = tuple(balances[0].labels) if balances else ALWAYS
    return Table((*labels, *_COLUMNS), tuple(rows), _caption(runs, len(balances)))


def _cells(ranks: Sequence[RankLoad]) -> tuple[str, ...]:
    computing = [rank.computation_s for rank in ranks]
    exchanging = [rank.communication_s + rank.gradients_s for rank in ranks]
    edges, redundant = [rank.edges for rank in ranks], _sum(rank.redundant for rank in ranks)
    necessary = _sum(edges) - redundant
    return (
        *(seconds_cell(extreme(values)) for values in (computing, exchanging) for extreme in (max, min)),
        seconds_cell(max(rank.wait_s for rank in ranks)), seconds_cell(max(rank.epoch_s for rank in ranks)),
        *_load_cells(edges), *_load_cells([rank.sent_bytes for rank in ranks]),
        _count_cell(_sum(rank.gradient_bytes for rank in ranks)),
        _count_cell(redundant), f"{float(100 * redundant / necessary):.2f}" if necessary else "–",
        *_dependency_cells(ranks, redundant),
        _count_cell(ranks[0].collectives),  # the same on every rank, or the run would not have been recorded
    )


def _load_cells(values: Sequence[Fraction]) -> tuple[str, str, str]:
    """Of all ranks, of each, and the fullest over the mean."""
    total = _sum(values)
    skew = f"{float(max(values) * len(values) / total):.3f}" if total else "–"
    return _count_cell(total), " ".join(map(_count_cell, values)), skew


def _dependency_cells(ranks: Sequence[RankLoad], redundant: Fraction) -> tuple[str, str]:
    communicated = [rank.communicated for rank in ranks if rank.communicated is not None]
    if not communicated:
        return "–", "–"
    share = sum(rank.dependency_s for rank in ranks) / sum(rank.epoch_s for rank in ranks)
    return _count_cell(_sum(communicated) + redundant), f"{100 * share:.1f}"


def _sum(values: Iterable[Fraction]) -> Fraction:
    return sum(values, Fraction())


def _count_cell(value: Fraction) -> str:
    """Exact; two decimals where it is not the same in all epochs."""
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.2f}"


def _caption(runs: Sequence[Run], num_shown: int) -> str:
    finished = [run for run in runs if run.status == "finished"]
    full = [run for run in finished if tells_redundancy(run)]
    cold = sum(not rank_loads(run) for run in full)
    left_out = (
        (len(runs) - len(finished), "failed"), (len(finished) - len(full), "without counts of full-graph training"),
        (cold, "without an epoch that reads no features"), (len(full) - cold - num_shown, "repeated later"),
    )
    return " ".join([_CAPTION, *(f"Left out: {count} runs {why}." for count, why in left_out if count)])
