"""What a described machine does per second, from its hardware profile: data sheets, or a measurement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnnexp.errors import ConfigError, Problem

# What drawing one edge reads at random where a profile does not say how many edges it draws: the neighbour's id, and
# its place in the table that numbers a batch's vertices; a device fetches 32 bytes for either.
_BYTES_PER_DRAW = 64
_FIGURES = ("flops", "gather")


@dataclass(frozen=True)
class Machine:
    """Per rank, everything in bytes, floats, edges or exchanges per second.

    Attributes:
        name: of the profile.
        nodes, workers: machines and ranks on each.
        flops: float32 operations of dense products.
        gather: bytes of rows that aggregation reads.
        stream: bytes that elementwise work reads and writes.
        sampling: edges drawn.
        host: bytes from host memory into the device.
        link: bytes to other ranks, where they are as the profile places them; a node's network is shared by its ranks.
            A rank that is alone sends nothing: infinite where nobody says.
        latency: seconds of an exchange beside its bytes; 0 where a rank is alone and nobody says.
        step_s: seconds of a training step beside its work; 0 where nobody says.
        concurrent: whether exchanges and the preparation of batches leave training alone: on a host whose ranks talk
            through its own memory the same cores do all of it.
        device_memory: bytes of a rank's device; None where nobody says.
        source: where the figures are from.
    """

    name: str
    nodes: int
    workers: int
    flops: float
    gather: float
    stream: float
    sampling: float
    host: float
    link: float
    latency: float
    step_s: float
    concurrent: bool
    device_memory: int | None
    source: str

    def hosts(self, ranks: int) -> bool:
        """Whether so many ranks fill it, or several whole nodes of it: what a rank has is then the same."""
        several = self.workers < ranks < self.nodes * self.workers and ranks % self.workers == 0
        return several or ranks == self.nodes * self.workers

    def can_run(self, ranks: int) -> bool:
        """Whether so many ranks have what its ranks have: `hosts`, or fewer devices of one node, the others idle.

        Every device has its memory and its link to itself. Ranks on cores do not: fewer of them have more each.
        """
        return self.hosts(ranks) or (self.nodes == 1 and self.concurrent and 0 < ranks < self.workers)


def machine_of(name: str, hardware: Mapping[str, Any]) -> Machine:
    """From the resolved `hardware` of a profile.

    Raises:
        ConfigError: it does not say what an estimate needs; all of that at once.
    """
    links = hardware.get("links") or {}
    nodes, workers = int(hardware.get("nodes", 1)), int(hardware["workers"])
    on_host = hardware.get("device") == "cpu" or not links.get("h2d")
    between = links.get("network") if nodes > 1 or on_host else links.get("d2d") or links.get("h2d")
    said = {f"hardware.{key}": hardware.get(key) for key in _FIGURES}
    if nodes * workers > 1:
        said |= {"hardware.latency": hardware.get("latency"),
                 f"hardware.links.{'network' if nodes > 1 or on_host else 'd2d'}": between}
    missing = [Problem(key, value, f"an estimate of {name} needs it: must be a positive number",
                       f"set {key}=<per second>, from a data sheet or a measurement, or choose another profile")
               for key, value in said.items() if not isinstance(value, int | float) or value <= 0]
    if missing:
        raise ConfigError(missing)
    gather, link = float(hardware["gather"]), float(between or math.inf)
    host = gather if on_host else float(links["h2d"])
    return Machine(
        name=name, nodes=nodes, workers=workers, flops=float(hardware["flops"]), gather=gather,
        # A data sheet has one figure for a device's memory.
        stream=float(hardware.get("stream") or gather),
        sampling=float(hardware.get("sampling") or gather / _BYTES_PER_DRAW), host=host,
        link=link / workers if nodes > 1 else link, latency=float(hardware.get("latency") or 0),
        step_s=float(hardware.get("step_s") or 0), concurrent=not on_host or nodes > 1,
        device_memory=hardware.get("device_memory"), source=str(hardware.get("source") or "not said"),
    )
