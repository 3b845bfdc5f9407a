"""Seconds of an epoch on a described machine: a linear model of counted work (docs/estimates.md).

    sample    edges drawn / sampling + bytes of frontiers and blocks / link
    load      feature bytes / where they come from + bytes of features / link + bytes of blocks / host
    forward + backward
              rows gathered / gather + operations / flops + elementwise bytes / stream
              + bytes of activations / link + bytes of chunks / host + steps x step_s
    sync      bytes of gradients / link
    every exchange beside that: latency

Nothing is fitted: the constants are the profile's. Of what a system does at the same time the longer counts.
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
# Telling sizes is where the ranks of the exchange that follows meet: a part of that one's latency, as its barrier is.
_MEETINGS = ("sizes",)


@dataclass(frozen=True)
class Estimate:
    """One epoch, in seconds.

    Attributes:
        sample_s, load_s, forward_backward_s, sync_s: of the busiest rank.
        device_bytes: what its device must hold.
        fits: whether it can; True where nobody says how much there is.
        hidden_s: of those seconds, what passes beside other ones.
        more_chunks: times as many chunks as were counted, so that each of them fits.
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
        """One after the other, but for what passes beside."""
        return self.sample_s + self.load_s + self.forward_backward_s + self.sync_s - self.hidden_s


def estimate(work: Workload, machine: Machine) -> Estimate:
    """`work` of one rank on a rank of `machine`, which has as many ranks as the work was counted for.

    More ranks make other work: run them (on a smaller machine, which counts the same) and estimate that.
    """
    loaded, crossed = work.loaded_bytes, _crossed(work, machine)
    brought = crossed if work.sampled_edges else 0.0  # of sampled batches: their blocks, and rows that other ranks sent
    prepared = (
        work.sampled_edges / machine.sampling + _exchanged(work, machine, _SAMPLING),
        (loaded.get("host", 0.0) + loaded.get("disk", 0.0)) / machine.host + brought
        + _exchanged(work, machine, _LOADING),
    )
    computed = (work.gathered_bytes / machine.gather + work.flops / machine.flops
                + work.elementwise_bytes / machine.stream + work.steps * machine.step_s + crossed - brought)
    exchanged = _exchanged(work, machine, (tag for tag in work.sent_bytes if tag not in _KNOWN))
    sync, passing = _exchanged(work, machine, _SYNC), work.pipelined_bytes / machine.link
    hidden = _behind(passing, computed, work.pipelined) if machine.concurrent else 0.0
    if machine.concurrent and work.ahead:
        hidden += _behind(sum(prepared), computed + exchanged - hidden + sync, work.steps)
    more_chunks = _more_chunks(work, machine)
    return Estimate(
        *prepared, computed + exchanged, sync, device_bytes=work.device_bytes / more_chunks,
        fits=machine.device_memory is None or work.device_bytes / more_chunks <= machine.device_memory,
        hidden_s=hidden, more_chunks=more_chunks,
    )


def _exchanged(work: Workload, machine: Machine, tags: Iterable[str]) -> float:
    return sum(work.sent_bytes.get(tag, 0.0) / machine.link
               + (0.0 if tag in _MEETINGS else work.rounds.get(tag, 0.0) * machine.latency) for tag in tags)


def _crossed(work: Workload, machine: Machine) -> float:
    """A host that computes has nothing to bring to a device: its rows cross nothing."""
    return 0.0 if machine.host == machine.gather else work.crossing_bytes / machine.host


def _behind(one: float, other: float, pieces: float) -> float:
    """Seconds that two stages save by working on different pieces: all of the shorter but its first piece."""
    return min(one, other) * (1 - 1 / pieces) if pieces > 1 else 0.0


def _more_chunks(work: Workload, machine: Machine) -> int:
    """What is worked on in chunks fits any device, in chunks that are small enough."""
    if not work.chunked or machine.device_memory is None:
        return 1
    return max(1, math.ceil(work.device_bytes / machine.device_memory))
