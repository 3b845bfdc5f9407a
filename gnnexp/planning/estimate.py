"""Seconds of an epoch on a described machine: a linear model of counted work (docs/estimates.md).

- Sample: `edges drawn / sampling + bytes of frontiers and blocks / link`.
- Load: `feature bytes / rate of their origin + bytes of features / link + bytes of blocks / host`.
- Forward + backward: `rows gathered / gather + operations / flops + elementwise bytes / stream`
  (`flops_tf32` for `train.matmul=tf32`)
  `+ bytes of activations / link + bytes of chunks / host + steps x step_s`.
- Sync: `bytes of gradients / link`.
- Each exchange adds `latency`.

Nothing is fitted: the constants are the profile's. If a system does two things at the same time, the longer one counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from gnnexp.planning.machine import Machine
from gnnexp.planning.work import Workload

_SAMPLING = ("frontier", "topology", "sizes")
_LOADING = ("features",)
_SYNC = ("gradients", "embeddings", "parameters")
_KNOWN = (*_SAMPLING, *_LOADING, *_SYNC)
# Ranks meet when they exchange sizes, so this wait belongs to the latency of the exchange that follows, like a barrier.
_MEETINGS = ("sizes",)


@dataclass(frozen=True)
class EpochEstimate:
    """The estimate of one epoch, in seconds.

    Attributes:
        sample_s, load_s, forward_backward_s, sync_s: seconds of each part, on the busiest rank.
        device_bytes: bytes that the rank's device must hold.
        fits: whether the device can hold them; True if its memory is not known.
        hidden_s: part of these seconds that overlaps with other work.
        more_chunks: factor on the counted number of chunks that makes each of them fit.
    """

    sample_s: float
    load_s: float
    forward_backward_s: float
    sync_s: float
    device_bytes: float
    fits: bool
    hidden_s: float = 0.0
    more_chunks: int = 1

    @property
    def epoch_s(self) -> float:
        """Seconds of the epoch: the sum of its parts without the hidden seconds."""
        return self.sample_s + self.load_s + self.forward_backward_s + self.sync_s - self.hidden_s


def estimate_epoch(work: Workload, machine: Machine) -> EpochEstimate:
    """Estimate `work` of one rank on a rank of `machine`, which has as many ranks as the work was counted for.

    Another number of ranks changes the work. Run that many ranks, for example on a smaller machine (the counts are the
    same), and estimate that run.
    """
    loaded, crossed = work.loaded_bytes, _crossed(work, machine)
    brought = crossed if work.sampled_edges else 0.0  # blocks of sampled batches, and rows that other ranks sent
    prepared = (
        work.sampled_edges / machine.sampling + _exchanged(work, machine, _SAMPLING),
        (loaded.get("host", 0.0) + loaded.get("disk", 0.0)) / machine.host
        + brought
        + _exchanged(work, machine, _LOADING),
    )
    products = machine.product_rate(work.matmul)
    assert products is not None, "callers leave out work whose products have no rate"
    computed = (
        work.gathered_bytes / machine.gather
        + work.flops / products
        + work.elementwise_bytes / machine.stream
        + work.steps * machine.step_s
        + crossed
        - brought
    )
    exchanged = _exchanged(work, machine, (tag for tag in work.sent_bytes if tag not in _KNOWN))
    sync, passing = _exchanged(work, machine, _SYNC), work.pipelined_bytes / machine.link
    hidden = _behind(passing, computed, work.pipelined) if machine.concurrent else 0.0
    if machine.concurrent and work.ahead:
        hidden += _behind(sum(prepared), computed + exchanged - hidden + sync, work.steps)
    more_chunks = _more_chunks(work, machine)
    return EpochEstimate(
        *prepared,
        computed + exchanged,
        sync,
        device_bytes=work.device_bytes / more_chunks,
        fits=machine.device_memory is None or work.device_bytes / more_chunks <= machine.device_memory,
        hidden_s=hidden,
        more_chunks=more_chunks,
    )


def _exchanged(work: Workload, machine: Machine, tags: Iterable[str]) -> float:
    return sum(
        work.sent_bytes.get(tag, 0.0) / machine.link
        + (0.0 if tag in _MEETINGS else work.rounds.get(tag, 0.0) * machine.latency)
        for tag in tags
    )


def _crossed(work: Workload, machine: Machine) -> float:
    """Seconds of copies between host and device; 0 on a host that computes itself."""
    return 0.0 if machine.host == machine.gather else work.crossing_bytes / machine.host


def _behind(one: float, other: float, pieces: float) -> float:
    """Seconds saved by two stages that work on different pieces: the shorter stage without its first piece."""
    return min(one, other) * (1 - 1 / pieces) if pieces > 1 else 0.0


def _more_chunks(work: Workload, machine: Machine) -> int:
    """The factor on the number of chunks. Work in chunks fits any device if its chunks are small enough."""
    if not work.chunked or machine.device_memory is None:
        return 1
    return max(1, math.ceil(work.device_bytes / machine.device_memory))
