"""Compares training and exchanges on GPUs with the CPU, case by case and without pytest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import read_environment
from gnnexp.graph.graph import Graph
from gnnexp.measure.phases import PhaseTimer
from gnnexp.testing.exactness import Comparison, compare, ranks_steps
from gnnexp.testing.graphs import nasty_graph, typed_graph, weighted_graph
from gnnexp.testing.ranks import RankPools
from gnnexp.testing.steps import MODELS, Curve, worst
from gnnexp.testing.ways import MINI_BATCH, WAYS, config_in, placed, way_problems

RELATIONAL: dict[str, dict[str, Any]] = {
    "rgcn": {"_target_": "gnnexp.models.rgcn.RGCNOptions"},
    "rgcn_blocks": {"_target_": "gnnexp.models.rgcn.RGCNOptions", "decomposition": "block"},
}
ALL_MODELS = {**MODELS, **RELATIONAL}
SAMPLED_THERE = ("data", "projections", "aggregates")  # ways whose batches a GPU may make
BOUND = 1e-10  # relative, in float64


@dataclass(frozen=True)
class GpuCase:
    """A model that is trained in one of the `WAYS`, by ranks that may share GPUs.

    Attributes:
        size: number of ranks.
        model: name in `ALL_MODELS`.
        way: name in `WAYS`.
        ahead: whether batches are prepared ahead, by another thread and on another stream.
        weighted: whether edges have weights.
        samples: `sampler.device` of mini-batches: `cpu`, or `auto`, which is the GPU where it is allowed.
    """

    size: int
    model: str
    way: str
    ahead: bool = False
    weighted: bool = False
    samples: str = "cpu"

    @property
    def name(self) -> str:
        """Name of the case in a report."""
        weighted = ", weighted" if self.weighted else ""
        there = " sampled there" if self.samples == "auto" else ""
        return f"{self.size} x {self.way}{' ahead' if self.ahead else ''}{there}, {self.model}{weighted}"

    def config(self, device: str, kernel: str = "auto") -> dict[str, Any]:
        """The resolved configuration of the case."""
        changes: dict[str, Any] = {
            "train": {"overlap": self.ahead},
            "hardware": {"workers": self.size, "device": device},
        }
        if self.way in MINI_BATCH:
            changes["sampler"] = {"device": self.samples}
        return config_in(self.way, {**ALL_MODELS[self.model], "kernel": kernel}, **changes)

    @property
    def make(self) -> Callable[[], Graph]:
        """The function that makes the graph of the case."""
        if self.weighted:
            return weighted_graph
        return typed_graph if self.model in RELATIONAL else nasty_graph


@dataclass(frozen=True)
class Found:
    """The result of a case on GPUs.

    Attributes:
        comparison: comparison with one CPU worker.
        unlike_counts: ranks whose bytes, rounds or counted work differ from the same rank on CPU.
    """

    comparison: Comparison
    unlike_counts: list[int]

    @property
    def error(self) -> float:
        """The larger of the relative errors of losses and gradients."""
        return worst([self.comparison.loss_error, self.comparison.gradient_error])

    @property
    def problems(self) -> list[str]:
        """Differences from the CPU; empty if there are none."""
        found = []
        if not self.comparison.loss_error <= BOUND:
            found.append(f"loss differs by {self.comparison.loss_error:.3g}")
        if not self.comparison.gradient_error <= BOUND:
            found.append(f"a gradient differs by {self.comparison.gradient_error:.3g}")
        found += [f"rank {rank} has another gradient of {name}" for rank, name in self.comparison.unlike]
        found += [f"rank {rank} counts other bytes, rounds or work" for rank in self.unlike_counts]
        return found


def cases(
    sizes: Sequence[int], models: Sequence[str] = tuple(ALL_MODELS), ways: Sequence[str] = tuple(WAYS)
) -> Iterator[GpuCase]:
    """All combinations that can be trained, ordered by number of ranks, then model, then way."""
    for size in sizes:
        for model in models:
            for way in ways:
                candidates = [GpuCase(size, model, way)]
                if way in MINI_BATCH:
                    candidates.append(GpuCase(size, model, way, ahead=True))
                if way in SAMPLED_THERE:
                    candidates.append(GpuCase(size, model, way, samples="auto"))
                yield from (case for case in candidates if not way_problems(case.config("cuda")))


def train_on_gpu(ranks: RankPools, case: GpuCase, steps: int) -> Found:
    """Train on GPUs, by one CPU worker, and on the same number of CPU ranks with the kernels of a GPU.

    Raises:
        RankError: a rank failed.
    """
    partition = placed(case.way, case.make(), case.size)
    comparison = compare(ranks, case.size, case.make, case.config("cuda"), partition=partition, steps=steps)
    on_cpu = ranks(case.size).run(ranks_steps, case.make, case.config("cpu", "torch"), steps, None, "random", partition)
    unlike = [
        rank
        for rank, (curve, other) in enumerate(zip(comparison.curves, on_cpu, strict=True))
        if _counts(curve, case.samples) != _counts(other, case.samples)
    ]
    return Found(comparison, unlike)


def _counts(curve: Curve, samples: str) -> tuple[Mapping[str, int], ...]:
    """Bytes, rounds and work. Blocks that are made on a GPU are not copied to it, so these copies differ from a CPU."""
    work = {name: amount for name, amount in curve.work.items() if samples == "cpu" or name != "tier/h2d_bytes"}
    return curve.rounds, curve.sent_bytes, work


def exchange(num_rows: int, width: int) -> Mapping[str, float]:
    """Runs on a rank: sends rows of this rank's GPU to every other rank, and gets them back.

    Returns:
        `wrong`: number of rows that came back changed; `bytes` and `seconds` of the first exchange.
    """
    environment = read_environment()
    device = torch.device("cuda", environment.local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    comm = Communicator(environment, PhaseTimer(), device)
    peers = [0 if rank == comm.rank else num_rows for rank in range(comm.size)]
    rows = torch.arange(sum(peers) * width, device=device, dtype=torch.float32).view(-1, width) + comm.rank
    received = comm.all_to_all(rows, peers, peers, "features")
    traffic = comm.ledger.take()["features"]
    back = comm.all_to_all(received, peers, peers, "features")
    return {"wrong": float((back != rows).any(1).sum()), "bytes": traffic.sent_bytes, "seconds": traffic.seconds}
