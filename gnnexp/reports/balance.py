"""What every rank computes and sends in full-graph training (NeutronTP, Figures 3, 4, 5, 8 and 10, Table 2).

A figure of a rank is its mean over the epochs after those that read features, so that what is sent in some epochs only
(Sancus' rows) weighs as it should. Counts are exact: fractions of integers of the record.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from gnnexp.records import read_epochs
from gnnexp.reports.runs import Run
from gnnexp.reports.setting import setting_of
from gnnexp.reports.table import Table, seconds_cell

_COLUMNS = (
    "computation s max", "computation s min", "communication s max", "communication s min", "wait s max", "epoch s",
    "edges", "edges max", "edges max/mean", "bytes", "bytes max", "bytes max/mean", "gradient bytes", "redundant %",
    "edges communicated", "VD edges", "VD time %", "collectives", "by tag",
)
_LABELS = ("system", "dataset", "ranks", "model", "layers", "partitioner")
# What makes no other setting: names, where records go, what is refused beforehand.
_UNIMPORTANT = ("name", "tracker", "preflight", "system")
# No vertex data: the gradients' sum; what tells sizes of an exchange is no payload, but its bytes are sent.
_GRADIENTS, _SIZES = "gradients", "sizes"


@dataclass(frozen=True)
class RankLoad:
    """What a rank did in an epoch.

    Attributes:
        computation_s: forward, backward and update, less the time inside collectives that is part of them.
        communication_s: inside collectives, hidden ones too; the barriers before them are `wait_s`.
        dependency_s: of `communication_s` what is not gradients, and the redundant edges' share of `computation_s`.
        wait_s: for slower ranks.
        epoch_s: wall time.
        edges: computed, forward; of tensor parallelism the share of its columns.
        redundant: of `edges`, those whose destination is another rank's.
        communicated: edges whose source is another rank's and fetched; None where vertices have no owners' rows.
        sent_bytes: to other ranks, but for gradients.
        gradient_bytes: in the gradients' sum.
        rounds: payload exchanges but for gradients, by tag.
    """

    computation_s: float
    communication_s: float
    dependency_s: float
    wait_s: float
    epoch_s: float
    edges: Fraction
    redundant: Fraction
    communicated: Fraction | None
    sent_bytes: Fraction
    gradient_bytes: Fraction
    rounds: Mapping[str, Fraction]


@dataclass(frozen=True)
class Balance:
    """A finished run: its setting as a row's first cells, and the load of every rank."""

    labels: tuple[str, ...]
    run: Run
    ranks: Sequence[RankLoad]


def is_full_graph(run: Run) -> bool:
    """Whether all targets are one batch and the record tells redundant edges, as every full-graph paradigm's does."""
    counted = [epoch for epoch in run.epochs if "work/edges_redundant" in epoch]
    return run.value("train.batch_size") == "null" and len(counted) == len(run.epochs) > 0


def warm_epochs(run: Run) -> list[Mapping[str, Any]]:
    """Lines of the record after the first, as long as nothing was read in them and they were trained in one piece.

    A run that was started again reads its features again, and may have had other ranks before.
    """
    lines = read_epochs(run.path)
    return [line for line in lines[1:]
            if not line.get("resumed") and len(line["ranks"]) == len(lines[-1]["ranks"])
            and not any(rank["times"]["phases"]["load"] for rank in line["ranks"])]


def rank_load(epochs: Sequence[Mapping[str, Any]]) -> RankLoad:
    """The mean of one rank's records of some epochs."""
    times = [epoch["times"] for epoch in epochs]
    edges, redundant = _count(epochs, "edges_computed"), _count(epochs, "edges_redundant")
    computation = statistics.fmean(computation_s(epoch) for epoch in epochs)
    seconds = _of_traffic(epochs, "seconds")
    communication = sum(seconds.values())
    sent = {tag: _mean(values) for tag, values in _by_tag(epochs, "sent_bytes").items()}
    rounds = {tag: _mean(values) for tag, values in _by_tag(epochs, "rounds").items()}
    again = computation * float(redundant / edges) if edges else 0.0
    crosses = any("edges_cross" in epoch["work"] for epoch in epochs)
    return RankLoad(
        computation, communication, communication - seconds.get(_GRADIENTS, 0.0) + again,
        statistics.fmean(time["phases"]["wait"] for time in times), statistics.fmean(time["epoch_s"] for time in times),
        edges, redundant, _count(epochs, "edges_cross") if crosses else None,
        sum((sent[tag] for tag in sent if tag != _GRADIENTS), Fraction()), sent.get(_GRADIENTS, Fraction()),
        {tag: count for tag, count in rounds.items() if tag not in (_GRADIENTS, _SIZES) and count},
    )


def computation_s(rank: Mapping[str, Any]) -> float:
    """Of one epoch of a rank: forward + backward + update - (collectives - hidden collectives - gradients' sum).

    Collectives of vertex data run within forward and backward. What a background thread exchanged while the loop
    computed is hidden, not part of any phase; what the loop waited for it is. The gradients' sum is a phase by itself.
    """
    times, traffic = rank["times"], rank["traffic"]
    inside = sum(of_tag["seconds"] for tag, of_tag in traffic.items() if tag != _GRADIENTS)
    exposed = inside - times["hidden"].get("comm", 0.0)
    return float(sum(times["phases"][phase] for phase in ("forward", "backward", "update")) - exposed)


def _count(epochs: Sequence[Mapping[str, Any]], name: str) -> Fraction:
    return _mean([epoch["work"].get(name, 0) for epoch in epochs])


def _mean(counts: Sequence[int]) -> Fraction:
    return Fraction(sum(counts), len(counts))


def _by_tag(epochs: Sequence[Mapping[str, Any]], figure: str) -> dict[str, list[Any]]:
    """`figure` of every epoch; 0 in epochs that had no exchange of that purpose, which are not recorded."""
    tags = sorted({tag for epoch in epochs for tag in epoch["traffic"]})
    return {tag: [epoch["traffic"].get(tag, {}).get(figure, 0) for epoch in epochs] for tag in tags}


def _of_traffic(epochs: Sequence[Mapping[str, Any]], figure: str) -> dict[str, float]:
    return {tag: statistics.fmean(values) for tag, values in _by_tag(epochs, figure).items()}


# --- rows ------------------------------------------------------------------------------------------------------------
def find_balances(runs: Sequence[Run]) -> tuple[tuple[str, ...], list[Balance]]:
    """The columns that tell settings apart, and finished full-graph runs, the last of each setting, in their order."""
    chosen = [run for run in runs if run.status == "finished" and is_full_graph(run) and warm_epochs(run)]
    more = _telling_keys(chosen)
    last: dict[tuple[str, ...], Run] = {}
    for run in chosen:
        last[(*_labels(run), *(run.value(key) for key in more))] = run
    return (*_LABELS, *more), [Balance(labels, run, _loads(run)) for labels, run in last.items()]


def _loads(run: Run) -> list[RankLoad]:
    return [rank_load(of_rank) for of_rank in zip(*(line["ranks"] for line in warm_epochs(run)), strict=True)]


def _labels(run: Run) -> tuple[str, ...]:
    setting = setting_of(run)
    # Only what was partitioned has a partitioner, whatever the configuration says.
    partitioner = run.value("partitioner") if run.provenance.get("partition") else "–"
    return run.value("system"), setting.dataset, str(setting.ranks), run.value("model"), setting.layers, partitioner


def _telling_keys(runs: Sequence[Run]) -> tuple[str, ...]:
    """Config keys that differ between runs of the same labels."""
    alike: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for run in runs:
        alike.setdefault(_labels(run), []).append(_flat(run.config))
    return tuple(sorted({
        key for configs in alike.values() for config in configs for key in config
        if key.partition(".")[0] not in _UNIMPORTANT and any(other.get(key) != config[key] for other in configs)
    }))


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """By dotted keys."""
    flat: dict[str, str] = {}
    for key, value in config.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": str(value)}
    return flat


# --- the table -------------------------------------------------------------------------------------------------------
def make_table(runs: Sequence[Run]) -> Table:
    """One row per setting."""
    labels, balances = find_balances(runs)
    rows = [(*balance.labels, *_cells(balance.ranks)) for balance in balances]
    return Table((*labels, *_COLUMNS), tuple(rows), _caption(runs, balances))


def _cells(ranks: Sequence[RankLoad]) -> tuple[str, ...]:
    computing, exchanging = [rank.computation_s for rank in ranks], [rank.communication_s for rank in ranks]
    edges, sent = [rank.edges for rank in ranks], [rank.sent_bytes for rank in ranks]
    redundant = sum((rank.redundant for rank in ranks), Fraction())
    necessary = sum(edges, Fraction()) - redundant
    rounds = ranks[0].rounds  # the same on every rank, or the run would not have been recorded
    return (
        *(seconds_cell(extreme(values)) for values in (computing, exchanging) for extreme in (max, min)),
        seconds_cell(max(rank.wait_s for rank in ranks)), seconds_cell(max(rank.epoch_s for rank in ranks)),
        *_load_cells(edges), *_load_cells(sent), count_cell(sum((rank.gradient_bytes for rank in ranks), Fraction())),
        f"{float(100 * redundant / necessary):.2f}" if necessary else "–",
        *_dependency_cells(ranks, redundant), count_cell(sum(rounds.values(), Fraction())),
        ", ".join(f"{tag} {count_cell(count)}" for tag, count in rounds.items()) or "–",
    )


def _load_cells(values: Sequence[Fraction]) -> tuple[str, str, str]:
    """Of all ranks, of the fullest, and the fullest over the mean."""
    total = sum(values, Fraction())
    skew = f"{float(max(values) * len(values) / total):.3f}" if total else "–"
    return count_cell(total), count_cell(max(values)), skew


def _dependency_cells(ranks: Sequence[RankLoad], redundant: Fraction) -> tuple[str, str, str]:
    communicated = [rank.communicated for rank in ranks if rank.communicated is not None]
    if not communicated:
        return "–", "–", "–"
    crossing = sum(communicated, Fraction())
    share = sum(rank.dependency_s for rank in ranks) / sum(rank.epoch_s for rank in ranks)
    return count_cell(crossing), count_cell(crossing + redundant), f"{100 * share:.1f}"


def count_cell(value: Fraction) -> str:
    """A count, exact; with two decimals where it is not the same in all epochs."""
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.2f}"


def _caption(runs: Sequence[Run], balances: Sequence[Balance]) -> str:
    failed = sum(run.status != "finished" for run in runs)
    full = [run for run in runs if run.status == "finished" and is_full_graph(run)]
    cold = sum(not warm_epochs(run) for run in full)
    left_out = ((failed, "failed"), (len(runs) - failed - len(full), "not full-graph"),
                (cold, "without an epoch after the one that reads features"),
                (len(full) - cold - len(balances), "repeated later in the same setting"))
    return " ".join([
        "Per epoch, a rank's mean over the epochs after those that read features; then max, min or sum over ranks.",
        "Computation: forward + backward + update - time inside collectives of vertex data that the training loop was "
        "in or waited for. Communication: time inside collectives, gradients' and hidden ones too, so the sum may "
        "exceed the epoch. Waiting for slower ranks before a collective is in neither: wait.",
        "Edges: computed in a forward pass, redundant ones too; of tensor parallelism scaled by its share of the "
        "columns. Bytes: to other ranks, without gradients. Redundant: of the necessary edges.",
        "Communicated: edges whose source was fetched, in this epoch or (stale) before. VD edges: communicated + "
        "redundant, an edge that is both twice. VD time: (communication without gradients + computation x redundant "
        "edges / edges, an estimate) / epoch, mean over ranks. –: no vertex dependencies (tensor parallelism).",
        "Collectives: payload exchanges but for gradients, a chunk's each.",
        *(f"Left out: {count} runs {why}." for count, why in left_out if count),
    ])
