"""The rates of a machine, from its hardware profile (`conf/hardware/`): a data sheet's, or measured ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from gnnexp.components.schema import HardwareConfig, Links
from gnnexp.components.signature import unknown
from gnnexp.config.compose import compose
from gnnexp.config.folders import find_folders
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.build import hardware_of

# Bytes read at random per drawn edge, for profiles without a sampling rate: the neighbour's id, and its place in the
# table that numbers a batch's vertices. A device fetches 32 bytes for each of them.
_BYTES_PER_DRAW = 64


@dataclass(frozen=True)
class Machine:
    """Rates of one rank, in bytes, operations, edges or exchanges per second.

    Attributes:
        name: name of the profile.
        nodes, workers: number of machines, and of ranks on each.
        flops: float32 operations of dense products.
        flops_tf32: the same operations, with factors rounded to TF32; None if not given.
        gather: bytes of rows that aggregation reads.
        stream: bytes that elementwise work reads and writes.
        sampling: edges drawn.
        host: bytes from host memory into the device.
        link: bytes to other ranks, placed as in the profile; the ranks of a node share its network. A rank that is
            alone sends nothing: infinite if the profile has no link.
        latency: seconds of an exchange in addition to its bytes; 0 for a rank that is alone, if not given.
        step_s: seconds of a training step in addition to its work; 0 if not given.
        concurrent: whether exchanges and the preparation of batches do not slow training down. They do on a host
            whose ranks communicate through its own memory: the same cores do everything.
        device_memory: bytes of a rank's device; None if not given.
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
    flops_tf32: float | None = None

    def product_rate(self, matmul: str) -> float | None:
        """Operations of products per second with `train.matmul`; None if unknown, as for bf16 in every profile."""
        return {"float32": self.flops, "tf32": self.flops_tf32}.get(matmul)

    def is_filled_by(self, ranks: int) -> bool:
        """Whether this number of ranks fills the machine or several whole nodes of it: then its rates apply."""
        # One of several nodes is not enough: its ranks do not use the network, whose rate `link` is.
        several_nodes = self.workers < ranks < self.nodes * self.workers and ranks % self.workers == 0
        return several_nodes or ranks == self.nodes * self.workers

    def can_run(self, ranks: int) -> bool:
        """Whether this number of ranks can have the machine's rates: `is_filled_by`, or some devices of a single node.

        Every device has its own memory and link, also if others are idle. Ranks on cores share them: if there are
        fewer ranks, each has more.
        """
        return self.is_filled_by(ranks) or (self.nodes == 1 and self.concurrent and 0 < ranks < self.workers)


def machine_of_profile(name: str, hardware: HardwareConfig) -> Machine:
    """The machine of a hardware profile.

    Raises:
        ConfigError: the profile lacks values that an estimate needs; all of them are reported.
    """
    links, nodes, workers = hardware.links or Links(), hardware.nodes, hardware.workers
    # Without a link to a device, the ranks are taken for ranks on cores.
    on_host = hardware.device == "cpu" or not links.h2d
    link_rate = links.network if nodes > 1 or on_host else links.d2d or links.h2d
    required = {"hardware.flops": hardware.flops, "hardware.gather": hardware.gather}
    if nodes * workers > 1:
        required |= {
            "hardware.latency": hardware.latency,
            f"hardware.links.{'network' if nodes > 1 or on_host else 'd2d'}": link_rate,
        }
    missing = [
        Problem(
            key,
            value,
            f"an estimate of {name} needs it: must be a positive number",
            f"set {key}=<{'seconds' if key == 'hardware.latency' else 'per second'}>, from a data sheet or a "
            "measurement, or choose another profile",
        )
        for key, value in required.items()
        if not isinstance(value, int | float) or value <= 0
    ]
    ConfigError.raise_all(missing)
    gather, link = float(hardware.gather or 0), float(link_rate or math.inf)
    host = gather if on_host else float(links.h2d or 0)
    return Machine(
        name=name,
        nodes=nodes,
        workers=workers,
        flops=float(hardware.flops or 0),
        gather=gather,
        # A data sheet has only one rate for a device's memory.
        stream=float(hardware.stream or gather),
        sampling=float(hardware.sampling or gather / _BYTES_PER_DRAW),
        host=host,
        link=link / workers if nodes > 1 else link,
        latency=float(hardware.latency or 0),
        step_s=float(hardware.step_s or 0),
        concurrent=not on_host or nodes > 1,
        device_memory=hardware.device_memory,
        source=hardware.source or "unknown",
        flops_tf32=hardware.flops_tf32,
    )


ALL = "all"  # `--hardware all`: every complete profile


@cache
def machine_named(name: str, config_dir: str | None = None) -> Machine:
    """The machine of `hardware=<name>`; the user's own config folder is searched, too.

    Raises:
        ConfigError: there is no such profile, or it lacks values that an estimate needs.
    """
    known = sorted(find_folders(config_dir).choices("hardware"))
    if name not in known:
        raise ConfigError(unknown("--hardware", name, name, [*known, ALL]))
    return machine_of_profile(name, hardware_of(compose([f"hardware={name}"], config_dir).config))


def machines_named(names: Sequence[str], config_dir: str | None = None) -> list[Machine]:
    """The machines of all names; problems of several profiles are raised together.

    Raises:
        ConfigError: see `machine_named`.
    """
    machines: list[Machine] = []
    problems: list[Problem] = []
    for name in names:
        try:
            machines.append(machine_named(name, config_dir))
        except ConfigError as error:
            problems += error.problems
    ConfigError.raise_all(problems)
    return machines


def all_machines(config_dir: str | None = None) -> tuple[list[Machine], list[str]]:
    """The machines of all complete profiles, and the names of the incomplete ones."""
    machines, incomplete = [], []
    for name in sorted(find_folders(config_dir).choices("hardware")):
        try:
            machines.append(machine_named(name, config_dir))
        except ConfigError:
            incomplete.append(name)
    return machines, incomplete
