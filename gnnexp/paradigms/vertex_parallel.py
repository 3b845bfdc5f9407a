"""Vertex parallelism: full-graph training in which each rank computes its own vertices (NeutronTP, section 2.2).

The option `dependency` says how a rank gets rows of foreign vertices:

- `communicate`: fetch the rows before every layer, and send gradients back (NeutronStar's DepComm).
- `cache`: hold the L-hop halo and compute it here too (NeutronStar's DepCache).
- `hybrid`: the cheaper of both, for every vertex and layer (NeutronStar).
- `stale`: as `communicate`, but use fetched rows for several epochs (Sancus).

Over a vertex-cut (DistGNN), ranks own edges and take sums over them, see `vertices/vertex_cut.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from gnnexp.comm.arrival import Arrival
from gnnexp.components.facts import GraphFacts
from gnnexp.components.locate import choice_of
from gnnexp.components.options import rule_problems
from gnnexp.components.plan import Plan, Sizes
from gnnexp.errors import ConfigError, Problem, Refusal
from gnnexp.experiment.experiment import Experiment
from gnnexp.paradigms.base import Paradigm, drawn_from_graph
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.chunking import UNCUT, Chunking, ResidentMemory
from gnnexp.paradigms.loops.local_chunks import chunk_problems
from gnnexp.paradigms.loops.stay import resident_problems
from gnnexp.paradigms.trainer import Trainer
from gnnexp.paradigms.vertices.checks import (
    budget_problems,
    held_graph,
    kept_rows,
    part_and_halo,
    vertex_cut_problems,
    vertex_problems,
)
from gnnexp.paradigms.vertices.edge_cut import EdgeCutTrainer, all_held, inputs_held, none_held
from gnnexp.paradigms.vertices.hybrid_dependency import Costs, cheapest, profile_problems
from gnnexp.paradigms.vertices.lateness import background_of, lateness_problems
from gnnexp.paradigms.vertices.vertex_cut import VertexCutTrainer
from gnnexp.placement.halo import Cached

Dependency = Literal["communicate", "cache", "hybrid", "stale"]
Exchange = Literal["halo", "broadcast"]


@dataclass(frozen=True)
class VertexParallel(Paradigm):
    """Full-graph training in which ranks share vertices.

    Attributes:
        dependency: how a rank gets foreign rows, see above.
        exchange: `halo`: send only the rows that are needed; `broadcast`: send whole parts to all ranks (Sancus).
        cache_input_halo: whether to hold features of layer 1's halo instead of fetching them in every epoch.
        staleness: for `stale`: age of fetched rows in epochs, at most; 0 is exact.
        delay: delay of other ranks' rows and sums, in epochs (DistGNN's cd-r, PipeGCN); 0 is exact.
        bins: number of bins of vertices for `delay`, of which an epoch exchanges one (cd-r has r), see `comm/late.py`.
        smooth_features, smooth_gradients: gamma of averages over epochs, for `delay`: of rows and sums, and of their
            gradients (PipeGCN-F and -G); 0: the last values.
        pipeline: whether late rows are exchanged while a rank computes, up to the epoch that uses them.
        chunks, device_memory: number or size of the ranges of destinations that a layer computes one after another,
            see `loops/chunking.py`.
        resident_memory: bytes of the device in which chunks stay, see `loops/stay.py`; null: all cross in every visit.
    """

    dependency: Dependency = "communicate"
    exchange: Exchange = "halo"
    cache_input_halo: bool = False
    staleness: int = 0
    delay: int = 0
    bins: int = 1
    smooth_features: float = 0.0
    smooth_gradients: float = 0.0
    pipeline: bool = False
    chunks: int | None = 1
    device_memory: int | None = None
    resident_memory: ResidentMemory = None
    always_partitioned: ClassVar[bool] = True
    takes_vertex_cut: ClassVar[bool] = True
    reads_narrow_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        stale, is_late = self.dependency == "stale", self.delay > 0
        rules = rule_problems(
            (
                self.staleness >= 0,
                "staleness",
                self.staleness,
                "must be 0 (always fresh) or more epochs",
                "set paradigm.staleness=0",
            ),
            (
                self.staleness <= 0 or stale,
                "staleness",
                self.staleness,
                f"dependency={self.dependency} has no old rows",
                "set paradigm.dependency=stale, or paradigm.staleness=0",
            ),
            (
                self.exchange != "broadcast" or self.dependency not in ("cache", "hybrid"),
                "exchange",
                self.exchange,
                f"dependency={self.dependency} fetches single rows",
                "set paradigm.exchange=halo",
            ),
            (self.delay >= 0, "delay", self.delay, "must be 0 (at once) or more epochs", "set paradigm.delay=0"),
            (
                not is_late or self.dependency == "communicate",
                "delay",
                self.delay,
                f"rows of dependency={self.dependency} are not late",
                "set paradigm.dependency=communicate, or paradigm.delay=0",
            ),
        )
        late = lateness_problems(
            self.delay,
            self.bins,
            {"smooth_features": self.smooth_features, "smooth_gradients": self.smooth_gradients},
            pipeline=self.pipeline,
            whole_parts=self.exchange == "broadcast",
        )
        ConfigError.raise_all([*self.chunking.problems(), *self.chunking.whole_problems(), *rules, *late])

    @property
    def chunking(self) -> Chunking:
        """How layers are cut into chunks: `chunks`, `device_memory` and `resident_memory`."""
        return Chunking(self.chunks, self.device_memory, self.resident_memory)

    @property
    def arrival(self) -> Arrival:
        """When other ranks' rows are used: `staleness`, or `delay` with its options."""
        if self.dependency == "stale":
            return Arrival("stale", self.staleness)
        if not self.delay:
            return Arrival()
        return Arrival("late", self.delay, self.bins, self.smooth_features, self.smooth_gradients)

    def refuses_rounded_rows(self, experiment: Experiment) -> Refusal | None:
        """Rows of an edge-cut may be in bfloat16 if they are fresh."""
        if experiment.partitioner.vertex_cut:
            return Refusal("over a vertex-cut, ranks exchange sums")
        if self.dependency in ("communicate", "cache") and not self.delay:
            return None
        return Refusal("old and late rows are kept in float32, and hybrid dependencies have costs of float32 rows")

    def refuses_capture(self, experiment: Experiment) -> Refusal | None:
        """A step can be captured if the graph stays on the GPU and all rows are fresh."""
        if self.chunking != UNCUT:
            return Refusal("chunks are copied to the GPU in every step (paradigm.chunks, paradigm.device_memory)")
        return (
            Refusal("what it does changes from epoch to epoch: rows are old or late") if self.arrival.epochs else None
        )

    def check(self, experiment: Experiment) -> list[Problem]:
        """Conflicts. Hybrid needs costs of the machine, a budget known layers, and a vertex-cut needs communication."""
        key = "paradigm.delay" if self.delay else "paradigm.staleness"
        problems = [
            *vertex_problems(experiment, "vertex_parallel", self.arrival, key),
            *budget_problems(experiment, self.chunking),
            *resident_problems(experiment, self.chunking),
        ]
        if self.dependency == "hybrid":
            problems += profile_problems(experiment.hardware)
        if not experiment.partitioner.vertex_cut:
            return problems
        problems += vertex_cut_problems(experiment, self.chunking)
        if self.dependency in ("cache", "hybrid") or self.exchange != "halo":
            held = self.dependency in ("cache", "hybrid")
            key, value = ("dependency", self.dependency) if held else ("exchange", self.exchange)
            problems.append(
                Problem(
                    f"paradigm.{key}",
                    value,
                    f"over the vertex-cut of {choice_of(experiment.partitioner)} rows and sums are communicated",
                    "choose partitioner=range or metis, or set paradigm.dependency=communicate and "
                    "paradigm.exchange=halo",
                )
            )
        return problems

    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        """The plan: a rank holds a part and its halo, or the graph, and rows that are old or late."""
        whole = self.exchange == "broadcast"
        kept = kept_rows(experiment, facts, self.arrival, whole_parts=whole, holds_inputs=self.cache_input_halo)
        held = self.dependency in ("cache", "hybrid")
        return Plan(
            experiment.num_ranks,
            drawn_from_graph(experiment, facts),
            approximates=self.arrival.approximates,
            resident=held_graph(experiment, facts) if held else part_and_halo(experiment, facts, whole_parts=whole),
            needs=(kept,),
            checkpoint_bytes=experiment.num_ranks * kept.num_bytes,
            problems=tuple(chunk_problems(experiment, facts, self.chunking)),
        )

    def trainer(self, job: Job) -> Trainer[Any]:
        """The trainer over an edge-cut or over a vertex-cut."""
        assert job.shard.partition is not None
        background = background_of(job) if self.pipeline else None
        if job.shard.partition.edge_owner is not None:
            return VertexCutTrainer(job, self.arrival, holds_inputs=self.cache_input_halo, background=background)
        whole_parts_from = int(self.cache_input_halo) if self.exchange == "broadcast" else None
        return EdgeCutTrainer(
            job,
            self._held(job),
            self.arrival,
            whole_parts_from=whole_parts_from,
            chunking=self.chunking,
            background=background,
        )

    def _held(self, job: Job) -> Cached:
        """Which foreign inputs of a layer are here without an exchange: `(layer from 0, ids [m])` to `[m]` bool."""
        if self.dependency == "hybrid":
            assert job.shard.partition is not None
            own = job.shard.partition.vertices_of(job.shard.part)
            return cheapest(job.shard, own, job.model.widths, Costs.of(job.experiment.hardware, job.dtype.itemsize))
        if self.dependency == "cache":
            return all_held
        return inputs_held if self.cache_input_halo else none_held
