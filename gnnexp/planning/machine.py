"""What a described machine does per second, from its hardware profile: data sheets, or a measurement."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.schema import HardwareConfig, Links

# What drawing one edge reads at random where a profile does not say how many edges it draws: the neighbour's id, and
# its place in the table that numbers a batch's vertices; a device fetches 32 bytes for either.
_BYTES_PER_DRAW = 64


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


def machine_of(name: str, hardware: HardwareConfig) -> Machine:
    """From a hardware profile.

    Raises:
        ConfigError: it does not say what an estimate needs; all of that at once.
    """
    links, nodes, workers = hardware.links or Links(), hardware.nodes, hardware.workers
    on_host = hardware.device == "cpu" or not links.h2d
    between = links.network if nodes > 1 or on_host else links.d2d or links.h2d
    said = {"hardware.flops": hardware.flops, "hardware.gather": hardware.gather}
    if nodes * workers > 1:
        said |= {"hardware.latency": hardware.latency,
                 f"hardware.links.{'network' if nodes > 1 or on_host else 'd2d'}": between}
    missing = [Problem(key, value, f"an estimate of {name} needs it: must be a positive number",
                       f"set {key}=<per second>, from a data sheet or a measurement, or choose another profile")
               for key, value in said.items() if not isinstance(value, int | float) or value <= 0]
    ConfigError.raise_all(missing)
    gather, link = float(hardware.gather or 0), float(between or math.inf)
    host = gather if on_host else float(links.h2d or 0)
    return Machine(
        name=name, nodes=nodes, workers=workers, flops=float(hardware.flops or 0), gather=gather,
        # A data sheet has one figure for a device's memory.
        stream=float(hardware.stream or gather),
        sampling=float(hardware.sampling or gather / _BYTES_PER_DRAW), host=host,
        link=link / workers if nodes > 1 else link, latency=float(hardware.latency or 0),
        step_s=float(hardware.step_s or 0), concurrent=not on_host or nodes > 1,
        device_memory=hardware.device_memory, source=hardware.source or "not said",
    )
