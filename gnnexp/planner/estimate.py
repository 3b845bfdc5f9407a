"""Seconds of an epoch on a described machine: a linear model of counted work (docs/estimates.md).

    sample    edges drawn / sampling + bytes of frontiers and blocks / link
    load      feature bytes / where they come from + bytes of features / link
    forward + backward
              rows gathered / gather + operations / flops + bytes of activations / link + bytes of chunks / host
    sync      bytes of gradients / link
    every exchange beside that: latency

Nothing is fitted: the constants are the profile's. What overlaps in a run is told by its record and is not added.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gnnexp.planner.machine import Machine
from gnnexp.planner.work import Work

_SAMPLING = ("frontier", "topology", "sizes")
_LOADING = ("features",)
_SYNC = ("gradients", "embeddings", "parameters")
_KNOWN = (*_SAMPLING, *_LOADING, *_SYNC)


@dataclass(frozen=True)
class Estimate:
    """One epoch, in seconds.

    Attributes:
        sample_s, load_s, forward_backward_s, sync_s: of the busiest rank.
        device_bytes: what its device must hold.
        fits: whether it can; True where nobody says how much there is.
    """

    sample_s: float
    load_s: float
    forward_backward_s: float
    sync_s: float
    device_bytes: float
    fits: bool

    @property
    def epoch_s(self) -> float:
        """One after the other."""
        return self.sample_s + self.load_s + self.forward_backward_s + self.sync_s


def estimate(work: Work, machine: Machine) -> Estimate:
    """`work` of one rank on a rank of `machine`, which has as many ranks as the work was counted for.

    More ranks make other work: run them (on a smaller machine, which counts the same) and estimate that.
    """

    def exchanged(tags: Iterable[str]) -> float:
        return sum(work.sent_bytes.get(tag, 0.0) / machine.link + work.rounds.get(tag, 0.0) * machine.latency
                   for tag in tags)

    loaded = work.loaded_bytes
    within = tuple(tag for tag in work.sent_bytes if tag not in _KNOWN)
    computed = work.gathered_bytes / machine.gather + work.flops / machine.flops
    # A host that computes has nothing to bring to a device: its rows cross nothing.
    crossed = 0.0 if machine.host == machine.gather else work.crossing_bytes / machine.host
    return Estimate(
        sample_s=work.sampled_edges / machine.sampling + exchanged(_SAMPLING),
        load_s=(loaded.get("host", 0.0) + loaded.get("disk", 0.0)) / machine.host
        + loaded.get("peer", 0.0) / machine.peer + exchanged(_LOADING),
        forward_backward_s=computed + crossed + exchanged(within), sync_s=exchanged(_SYNC),
        device_bytes=work.device_bytes,
        fits=machine.device_memory is None or work.device_bytes <= machine.device_memory,
    )
