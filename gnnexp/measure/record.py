"""The epoch record: measurements of all ranks, reduced to one flat set of metrics. All paradigms have the same form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, get_args

from gnnexp.measure.ledger import TAGS, Tag, Traffic, added
from gnnexp.measure.phases import FORWARD_BACKWARD, PHASES, Crossing, PhaseTimes

_DERIVED = ("fb", "compute", "comm", "comm_exposed", "unaccounted", "epoch")
_HIDDEN = tuple(f"hidden_{what}" for what in (*PHASES, "comm"))
# All names that `time/*` and `comm/*` may have. Counters of components and metrics of tasks have other names.
TIME_NAMES = frozenset(
    f"time/{name}_s{of}" for name in (*PHASES, *_DERIVED, *_HIDDEN, *get_args(Crossing)) for of in ("", "_min", "_mean")
)
TRAFFIC_NAMES = frozenset(f"comm/{figure}_{tag}" for figure in ("bytes", "rounds") for tag in TAGS)


@dataclass(frozen=True)
class RankRecord:
    """One rank's share of an epoch's record.

    Attributes:
        rank: number of the rank.
        times: exclusive phase times.
        traffic: traffic by tag.
        work: counters (`edges_sampled`, `edges_computed`, `features_loaded_host`, …).
        memory: bytes by kind.
        losses: `(loss sum, targets)` of this rank, one pair per step.
        batches: counts of each batch by layer, `[steps][layers]`, by name.
        trace: figures of the epoch's trace (`measure.trace`), empty if the epoch was not traced.
    """

    rank: int
    times: PhaseTimes
    traffic: Mapping[Tag, Traffic]
    work: Mapping[str, int]
    memory: Mapping[str, int]
    losses: Sequence[tuple[float, int]] = field(default_factory=tuple)
    batches: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    trace: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, without losses and batches: the epoch's line has them for all ranks together."""
        record = asdict(self)
        del record["losses"], record["batches"]
        if not self.trace:
            del record["trace"]
        record["times"]["unaccounted_s"] = self.times.unaccounted_s
        return record

    def joined(self, later: RankRecord) -> RankRecord:
        """One record of this piece of an epoch and of the next piece, which may come from another process."""
        return RankRecord(
            self.rank,
            self.times.joined(later.times),
            added(self.traffic, later.traffic),
            added(self.work, later.work),
            {
                name: max(self.memory.get(name, 0), later.memory.get(name, 0))
                for name in self.memory.keys() | later.memory.keys()
            },
            [*self.losses, *later.losses],
            {
                name: [*self.batches.get(name, ()), *later.batches.get(name, ())]
                for name in self.batches.keys() | later.batches.keys()
            },
            # Figures of a piece are none of the epoch, but its seconds are those of a traced epoch.
            {"events": self.trace.get("events", 0) + later.trace.get("events", 0)} if self.trace or later.trace else {},
        )


def record_of(state: Mapping[str, Any]) -> RankRecord:
    """The record from the result of `asdict`."""
    times, traffic = PhaseTimes(**state["times"]), {tag: Traffic(**found) for tag, found in state["traffic"].items()}
    losses = [(loss, count) for loss, count in state["losses"]]
    return RankRecord(**{**state, "times": times, "traffic": traffic, "losses": losses})


def losses_of_others(pieces: Sequence[RankRecord], rank: int) -> RankRecord | None:
    """The record of a piece of an epoch that ran on another number of ranks. Rank 0 gets the summed loss of each step.

    Times, bytes and counts are left out: those of another number of ranks cannot be added.
    """
    if not pieces[0].losses:
        return None
    steps = [
        (sum(loss for loss, _ in step), sum(count for _, count in step))
        for step in zip(*(piece.losses for piece in pieces), strict=True)
    ]
    nothing = PhaseTimes(0.0, dict.fromkeys(PHASES, 0.0))
    return RankRecord(rank, nothing, {}, {}, {}, steps if rank == 0 else [(0.0, 0)] * len(steps))


def reduce_times(ranks: Sequence[RankRecord]) -> dict[str, float]:
    """`time/*` of all timed phases: the maximum over ranks, and the minimum (`_min`) and mean (`_mean`)."""
    columns: dict[str, list[float]] = {
        f"{phase}_s": [rank.times.phases[phase] for rank in ranks] for phase in PHASES if phase in ranks[0].times.phases
    }
    columns["fb_s"] = [sum(r.times.phases[phase] for phase in FORWARD_BACKWARD) for r in ranks]
    columns["compute_s"] = [fb + r.times.phases["update"] for fb, r in zip(columns["fb_s"], ranks, strict=True)]
    columns["comm_s"] = [sum(traffic.seconds for traffic in rank.traffic.values()) for rank in ranks]
    hidden_comm = [rank.times.hidden.get("comm", 0.0) for rank in ranks]
    columns["comm_exposed_s"] = [s - h for s, h in zip(columns["comm_s"], hidden_comm, strict=True)]
    columns["unaccounted_s"] = [rank.times.unaccounted_s for rank in ranks]
    columns["epoch_s"] = [rank.times.epoch_s for rank in ranks]
    for phase in sorted({phase for rank in ranks for phase in rank.times.hidden}):
        columns[f"hidden_{phase}_s"] = [rank.times.hidden.get(phase, 0.0) for rank in ranks]
    for crossing in sorted({crossing for rank in ranks for crossing in rank.times.crossings}):
        columns[f"{crossing}_s"] = [rank.times.crossings.get(crossing, 0.0) for rank in ranks]
    metrics: dict[str, float] = {}
    for name, values in columns.items():
        metrics[f"time/{name}"] = max(values)
        metrics[f"time/{name}_min"] = min(values)
        metrics[f"time/{name}_mean"] = sum(values) / len(values)
    return metrics


def reduce_traffic(ranks: Sequence[RankRecord]) -> dict[str, float]:
    """`comm/bytes_<tag>`: sum over ranks. `comm/rounds_<tag>`: must be the same on all ranks.

    `imbalance/bytes_<tag>`: maximum over mean of the bytes that ranks sent.
    """
    metrics: dict[str, float] = {}
    for tag in sorted({tag for rank in ranks for tag in rank.traffic}):
        entries = [rank.traffic.get(tag, Traffic()) for rank in ranks]
        rounds = {entry.rounds for entry in entries}
        assert len(rounds) == 1, f"ranks disagree on the rounds of {tag}: {[entry.rounds for entry in entries]}"
        sent = [entry.sent_bytes for entry in entries]
        metrics[f"comm/bytes_{tag}"] = sum(sent)
        metrics[f"imbalance/bytes_{tag}"] = max(sent) * len(sent) / sum(sent) if sum(sent) else 1.0
        metrics[f"comm/rounds_{tag}"] = rounds.pop()
    return metrics


def reduce_work(ranks: Sequence[RankRecord]) -> dict[str, float]:
    """`work/*`, and counters with their own prefix (`tier/h2d_bytes`), summed; `imbalance/*`: maximum over mean."""
    metrics: dict[str, float] = {}
    for name in sorted({name for rank in ranks for name in rank.work}):
        values = [rank.work.get(name, 0) for rank in ranks]
        total = sum(values)
        metrics[name if "/" in name else f"work/{name}"] = total
        metrics[f"imbalance/{name.rpartition('/')[2]}"] = max(values) * len(values) / total if total else 1.0
    return metrics


def layer_counts(ranks: Sequence[RankRecord]) -> dict[str, list[list[list[int]]]]:
    """Counts of each batch as `[steps][layers][ranks]`, by name."""
    names = sorted({name for rank in ranks for name in rank.batches})
    return {
        name: [
            [list(of_ranks) for of_ranks in zip(*of_step, strict=True)]
            for of_step in zip(*(rank.batches[name] for rank in ranks), strict=True)
        ]
        for name in names
    }


def reduce_batches(ranks: Sequence[RankRecord]) -> dict[str, float]:
    """`work/{edges,vertices,cross_edges}_layer<l>`, and the imbalance of a batch's edges per layer.

    `imbalance/edges_layer<l>`: maximum over mean of the ranks' edges in a batch, mean over batches (GSplit, Figure 5).
    """
    metrics: dict[str, float] = {}
    for name, steps in layer_counts(ranks).items():
        for layer in range(len(steps[0]) if steps else 0):
            of_batches = [step[layer] for step in steps]
            metrics[f"work/{name}_layer{layer + 1}"] = sum(map(sum, of_batches))
            if name == "edges":
                skews = [max(counts) * len(counts) / sum(counts) for counts in of_batches if sum(counts)]
                metrics[f"imbalance/edges_layer{layer + 1}"] = sum(skews) / len(skews) if skews else 1.0
    return metrics


def reduce_memory(ranks: Sequence[RankRecord]) -> dict[str, float]:
    """`memory/*`: maximum over ranks."""
    names = sorted({name for rank in ranks for name in rank.memory})
    return {f"memory/{name}": max(rank.memory.get(name, 0) for rank in ranks) for name in names}


def reduce_trace(ranks: Sequence[RankRecord]) -> dict[str, float]:
    """`trace/*` of a traced epoch: sums over ranks; of seconds the maximum, and minimum (`_min`) and mean (`_mean`)."""
    metrics: dict[str, float] = {}
    for name in sorted({name for rank in ranks for name in rank.trace}):
        values = [rank.trace.get(name, 0.0) for rank in ranks]
        metrics[f"trace/{name}"] = max(values) if name.endswith("_s") else sum(values)
        if name.endswith("_s"):
            metrics |= {f"trace/{name}_min": min(values), f"trace/{name}_mean": sum(values) / len(values)}
    return metrics


def step_losses(ranks: Sequence[RankRecord]) -> list[float]:
    """Mean loss of each step over its global batch: global sum divided by global count."""
    steps = zip(*(rank.losses for rank in ranks), strict=True)
    return [sum(loss for loss, _ in step) / max(1, sum(count for _, count in step)) for step in steps]


def reduce_epoch(ranks: Sequence[RankRecord]) -> dict[str, float]:
    """All metrics of an epoch, without those of an evaluation."""
    total = math.fsum(loss for rank in ranks for loss, _ in rank.losses)  # exact: independent of the order
    count = sum(count for rank in ranks for _, count in rank.losses)
    return {
        "loss/train": total / max(1, count),
        **reduce_times(ranks),
        **reduce_traffic(ranks),
        **reduce_work(ranks),
        **reduce_batches(ranks),
        **reduce_memory(ranks),
        **reduce_trace(ranks),
    }
