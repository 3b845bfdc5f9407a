"""What every rank did in an epoch of full-graph training, from its own record."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from gnnexp.measure.phases import FORWARD_BACKWARD
from gnnexp.record.records import read_epochs
from gnnexp.record.runs import Run

_GRADIENTS = "gradients"
# No vertex data: the gradients' sum, and what tells the lengths of an exchange (its bytes are sent, though).
_NO_PAYLOAD = (_GRADIENTS, "sizes")
Line = Mapping[str, Any]  # one rank of one epoch


@dataclass(frozen=True)
class RankLoad:
    """What a rank did in an epoch, the mean of several; counts are exact.

    Attributes:
        computation_s: forward, backward and update, less the time inside collectives that is part of them.
        communication_s: inside collectives of vertex data, hidden ones too; the barriers before them are `wait_s`.
        gradients_s: inside the gradients' sum.
        wait_s: for slower ranks.
        epoch_s: wall time.
        edges: computed, forward; of tensor parallelism the share of its columns.
        redundant: of `edges`, those whose destination is another rank's.
        communicated: edges whose source was fetched; None where no rank lacks any (tensor parallelism).
        sent_bytes: to other ranks, but for gradients.
        gradient_bytes: in the gradients' sum.
        collectives: payload exchanges but for gradients.
    """

    computation_s: float
    communication_s: float
    gradients_s: float
    wait_s: float
    epoch_s: float
    edges: Fraction
    redundant: Fraction
    communicated: Fraction | None
    sent_bytes: Fraction
    gradient_bytes: Fraction
    collectives: Fraction

    @property
    def dependency_s(self) -> float:
        """Spent on vertices of other ranks: communication, and the redundant edges' share of the computation."""
        return self.communication_s + (self.computation_s * float(self.redundant / self.edges) if self.edges else 0.0)


def tells_redundancy(run: Run) -> bool:
    """Whether every epoch counts redundant edges: those of full-graph training do, of mini-batches none."""
    return bool(run.epochs) and all("work/edges_redundant" in epoch for epoch in run.epochs)


def rank_loads(run: Run) -> list[RankLoad]:
    """By rank, the mean over the `warm_epochs`, so that what is sent in some epochs weighs as it should."""
    return [_rank_load(epochs) for epochs in zip(*warm_epochs(run), strict=True)]


def warm_epochs(run: Run) -> list[Sequence[Line]]:
    """Every rank's record of the epochs that read no features.

    Empty where there is no such epoch: the first reads them, and one in which the run went on after a stop. Only epochs
    on the last number of ranks count, and none that was stopped half way.
    """
    lines = read_epochs(run.path)
    ranks = len(lines[-1].get("ranks", ())) if lines else 0
    return [line["ranks"] for line in lines
            if ranks and len(line.get("ranks", ())) == ranks and not line.get("resumed")
            and not any(map(_reads_features, line["ranks"]))]


def _reads_features(rank: Line) -> bool:
    """By the rows that it counted; a record without such counts tells by seconds, which were 0 where it read none."""
    counted = [rows for name, rows in rank["work"].items() if name.startswith("features_loaded_")]
    return any(counted) if counted else bool(rank["times"]["phases"].get("load"))


def _rank_load(epochs: Sequence[Line]) -> RankLoad:
    times = [epoch["times"] for epoch in epochs]
    tags = {tag for epoch in epochs for tag in epoch["traffic"]}
    vertex_data = tags - {_GRADIENTS}
    crosses = any("edges_cross" in epoch["work"] for epoch in epochs)
    return RankLoad(
        statistics.fmean(computation_s(epoch) for epoch in epochs),
        statistics.fmean(_traffic(epoch, "seconds", vertex_data) for epoch in epochs),
        statistics.fmean(_traffic(epoch, "seconds", {_GRADIENTS}) for epoch in epochs),
        statistics.fmean(time["phases"].get("wait", math.nan) for time in times),
        statistics.fmean(time.get("epoch_s", math.nan) for time in times),
        _mean(_work(epoch, "computed") for epoch in epochs), _mean(_work(epoch, "redundant") for epoch in epochs),
        _mean(_work(epoch, "cross") for epoch in epochs) if crosses else None,
        _mean(_traffic(epoch, "sent_bytes", vertex_data) for epoch in epochs),
        _mean(_traffic(epoch, "sent_bytes", {_GRADIENTS}) for epoch in epochs),
        _mean(_traffic(epoch, "rounds", tags.difference(_NO_PAYLOAD)) for epoch in epochs),
    )


def computation_s(rank: Line) -> float:
    """Of one epoch of a rank: forward + backward + update - collectives of vertex data that the loop was in.

    Those run within forward and backward; the gradients' sum is a phase by itself (`sync`), and so are barriers. What a
    background thread exchanged while the loop computed is hidden, no part of any phase; what the loop waited for is.
    """
    phases = rank["times"]["phases"]
    return float(sum(phases.get(phase, 0.0) for phase in (*FORWARD_BACKWARD, "update")) - exchange_s(rank))


def exchange_s(rank: Line) -> float:
    """Of one epoch of a rank: inside collectives of vertex data, while the loop was in them or waited for them."""
    hidden = rank["times"].get("hidden", {}).get("comm", 0.0)
    return float(_traffic(rank, "seconds", rank["traffic"].keys() - {_GRADIENTS}) - hidden)


def _traffic(rank: Line, figure: str, tags: Iterable[str]) -> Any:  # noqa: ANN401  bytes and rounds int, seconds float
    """Over `tags`; a purpose without an exchange is not recorded."""
    return sum(rank["traffic"].get(tag, {}).get(figure, 0) for tag in tags)


def _work(rank: Line, kind: str) -> int:
    return int(rank["work"].get(f"edges_{kind}", 0))


def _mean(counts: Iterable[int]) -> Fraction:
    values = list(counts)
    return Fraction(sum(values), len(values))
