"""Where the time of an epoch goes when vertex data lives in host memory (HongTu, section 7.4, Figure 9)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from gnnexp.record.runs import Run
from gnnexp.reports.kinds.rank_load import Line, computation_s, exchange_s, warm_epochs


@dataclass(frozen=True)
class Breakdown:
    """Seconds of an epoch: the mean over ranks, of that the median over warm epochs. None: not told.

    Attributes:
        h2d: host memory to device tier.
        d2h: device tier to host memory.
        d2d: inside collectives of vertex data between device tiers, but for what was hidden.
        hosts: the same between host memories, of rows on their way to another rank's device.
        host_add: adding up gradients in host memory.
        compute: forward + backward less all of these.
        wait: for slower ranks.
        epoch: wall time; more than the sum by the gradients' sum, the update and what no phase has.
    """

    h2d: float | None
    d2h: float | None
    d2d: float | None
    hosts: float | None
    host_add: float | None
    compute: float | None
    wait: float | None
    epoch: float | None


def breakdown_of(run: Run) -> Breakdown:
    """Of the warm epochs of `run`."""
    epochs = [[_of_rank(rank, run) for rank in ranks] for ranks in warm_epochs(run)]
    return Breakdown(**{field.name: _typical([[getattr(rank, field.name) for rank in ranks] for ranks in epochs])
                        for field in fields(Breakdown)})


def _of_rank(rank: Line, run: Run) -> Breakdown:
    times, exchange = rank["times"], exchange_s(rank)
    between_hosts = run.value("paradigm.dedup.inter") == "False"
    # Records from before crossings were timed do not know; one that knows leaves out what did not happen.
    crossings: Mapping[str, float] | None = times.get("crossings")
    h2d, d2h, host_add = (None if crossings is None else crossings.get(what, 0.0)
                          for what in ("h2d", "d2h", "host_add"))
    compute = None
    if crossings is not None and not (crossings and _crosses_beside(run)):
        compute = computation_s(rank) - times["phases"]["update"] - sum(crossings.values())
    d2d, hosts = (0.0, exchange) if between_hosts else (exchange, 0.0)
    return Breakdown(h2d, d2h, d2d, hosts, host_add, compute, times["phases"]["wait"], times["epoch_s"])


def _crosses_beside(run: Run) -> bool:
    """Whether rows come while the GPU computes: then crossings are no part of the phases, and the rest is not told."""
    device = run.provenance.get("chosen", {}).get("device", "cpu")
    return str(device).startswith("cuda") and run.value("paradigm.prefetch") == "True"


def _typical(epochs: Sequence[Sequence[float | None]]) -> float | None:
    means = []
    for ranks in epochs:
        known = [seconds for seconds in ranks if seconds is not None]
        if len(known) < len(ranks):
            return None
        means.append(statistics.fmean(known))
    return statistics.median(means) if means else None
