"""Vertex parallelism: full-graph training, every rank computes the vertices that it owns (NeutronTP, section 2.2).

What a destination needs of other ranks' vertices is managed by `dependency`:

    communicate   their rows are fetched before every layer, gradients go back        (NeutronStar's DepComm)
    cache         the L-hop halo is held and computed here as well                    (NeutronStar's DepCache)
    hybrid        per vertex and layer whichever is cheaper                           (NeutronStar)
    stale         as communicate, but fetched rows are used for several epochs        (Sancus)

Over a vertex-cut (DistGNN) edges have owners of their own: sums are taken where they are, see `vertices/vertex_cut.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from gnnexp.comm.arrival import Arrival
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.experiment import Experiment, target_of
from gnnexp.experiment.plan import GraphFacts, Plan, Sizes
from gnnexp.job import Job
from gnnexp.paradigms.base import Paradigm, drawn_from_graph
from gnnexp.paradigms.chunks.chunking import Chunking
from gnnexp.paradigms.chunks.local_chunks import check_chunks
from gnnexp.paradigms.trainer import Trainer
from gnnexp.paradigms.vertices.checks import (
    check_budget,
    check_cut,
    check_vertices,
    held_graph,
    kept_rows,
    part_and_halo,
)
from gnnexp.paradigms.vertices.edge_cut import EdgeCutTrainer, all_held, inputs_held, none_held
from gnnexp.paradigms.vertices.hybrid_dependency import Costs, cheapest, check_profile
from gnnexp.paradigms.vertices.vertex_cut import VertexCutTrainer
from gnnexp.placement.halo import Cached

Dependency = Literal["communicate", "cache", "hybrid", "stale"]
Exchange = Literal["halo", "broadcast"]


@dataclass(frozen=True)
class VertexParallel(Paradigm):
    """Full-graph training by vertices.

    Attributes:
        dependency: how foreign rows come, see above.
        exchange: `halo`, only the rows that are needed; `broadcast`, whole parts to all ranks (Sancus).
        cache_input_halo: hold the features of layer 1's halo instead of fetching them in every epoch.
        staleness: of `stale`: epochs that a fetched row may be old; 0 is exact.
        delay: epochs by which other ranks' rows and sums are late (DistGNN's cd-r); 0 is exact.
        chunks, device_memory: ranges of destinations that a layer is worked on one after another, see
            `chunks/chunking.py`.
    """

    dependency: Dependency = "communicate"
    exchange: Exchange = "halo"
    cache_input_halo: bool = False
    staleness: int = 0
    delay: int = 0
    chunks: int | None = 1
    device_memory: int | None = None
    always_partitioned: ClassVar[bool] = True
    takes_vertex_cut: ClassVar[bool] = True

    def __post_init__(self) -> None:
        problems = self.chunking.problems()
        if self.staleness < 0:
            problems.append(Problem("staleness", self.staleness, "must be 0 (always fresh) or more epochs",
                                    "set paradigm.staleness=0"))
        if self.staleness > 0 and self.dependency != "stale":
            problems.append(Problem("staleness", self.staleness, f"dependency={self.dependency} has no old rows",
                                    "set paradigm.dependency=stale, or paradigm.staleness=0"))
        if self.exchange == "broadcast" and self.dependency in ("cache", "hybrid"):
            problems.append(Problem("exchange", self.exchange, f"dependency={self.dependency} fetches single rows",
                                    "set paradigm.exchange=halo"))
        if self.delay < 0:
            problems.append(Problem("delay", self.delay, "must be 0 (at once) or more epochs", "set paradigm.delay=0"))
        if self.delay > 0 and self.dependency != "communicate":
            problems.append(Problem("delay", self.delay, f"rows of dependency={self.dependency} are not late",
                                    "set paradigm.dependency=communicate, or paradigm.delay=0"))
        if problems:
            raise ConfigError(problems)

    @property
    def chunking(self) -> Chunking:
        """`chunks` and `device_memory`."""
        return Chunking(self.chunks, self.device_memory)

    @property
    def arrival(self) -> Arrival:
        """`staleness` and `delay`."""
        if self.dependency == "stale":
            return Arrival("stale", self.staleness)
        return Arrival("late", self.delay) if self.delay else Arrival()

    def check(self, experiment: Experiment) -> list[Problem]:
        """Hybrid wants to know the machine, a budget the layers; over a vertex-cut rows and sums are communicated."""
        key = "paradigm.delay" if self.delay else "paradigm.staleness"
        problems = [*check_vertices(experiment, "vertex_parallel", self.arrival, key),
                    *check_budget(experiment, self.chunking)]
        if self.dependency == "hybrid":
            problems += check_profile(experiment.hardware)
        if not experiment.partitioner.vertex_cut:
            return problems
        problems += check_cut(experiment, self.chunking)
        if self.dependency in ("cache", "hybrid") or self.exchange != "halo":
            held = self.dependency in ("cache", "hybrid")
            key, value = ("dependency", self.dependency) if held else ("exchange", self.exchange)
            problems.append(Problem(f"paradigm.{key}", value, f"over the vertex-cut of "
                                    f"{target_of(experiment.partitioner)} rows and sums are communicated",
                                    "choose partitioner=range or metis, or set paradigm.dependency=communicate and "
                                    "paradigm.exchange=halo"))
        return problems

    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        """A part and its halo; with held vertices, the graph; rows that are old or late."""
        whole = self.exchange == "broadcast"
        kept = kept_rows(experiment, facts, self.arrival, whole_parts=whole, holds_inputs=self.cache_input_halo)
        held = self.dependency in ("cache", "hybrid")
        return Plan(
            experiment.num_ranks, drawn_from_graph(experiment, facts), approximates=self.arrival.approximates,
            resident=held_graph(experiment, facts) if held else part_and_halo(experiment, facts, whole_parts=whole),
            needs=(kept,), checkpoint_bytes=experiment.num_ranks * kept.num_bytes,
            problems=tuple(check_chunks(experiment, facts, self.chunking)),
        )

    def trainer(self, job: Job) -> Trainer[Any]:
        """Over an edge-cut, or over a vertex-cut."""
        assert job.shard.partition is not None
        if job.shard.partition.edge_owner is not None:
            return VertexCutTrainer(job, self.arrival, holds_inputs=self.cache_input_halo)
        whole_parts_from = int(self.cache_input_halo) if self.exchange == "broadcast" else None
        return EdgeCutTrainer(job, self._held(job), self.arrival, whole_parts_from=whole_parts_from,
                              chunking=self.chunking)

    def _held(self, job: Job) -> Cached:
        """Which foreign inputs of a layer are here without an exchange."""
        if self.dependency == "hybrid":
            assert job.shard.partition is not None
            own = job.shard.partition.vertices_of(job.shard.part)
            dims = [job.model.in_dim, *(int(getattr(layer, "out_dim", 0)) for layer in job.model.layers)]
            costs = Costs.of(job.experiment.hardware, torch.empty(0, dtype=job.dtype).element_size())
            return cheapest(job.shard, own, dims, costs)
        if self.dependency == "cache":
            return all_held
        return inputs_held if self.cache_input_halo else none_held
