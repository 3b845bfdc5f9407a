"""Vertex parallelism: full-graph training in which each rank computes its own vertices (NeutronTP, section 2.2).

The option `dependency` says how a rank gets rows of foreign vertices:

- `communicate`: fetch the rows before every layer, and send gradients back (NeutronStar's DepComm).
- `cache`: hold the L-hop halo and compute it here too (NeutronStar's DepCache).
- `hybrid`: the cheaper of both, for every vertex and layer, within `hardware.device_memory` (NeutronStar).
- `stale`: as `communicate`, but use fetched rows for several epochs, or until they have moved (Sancus).

Over a vertex-cut (DistGNN), ranks own edges and take sums over them, see `vertices/vertex_cut.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from gnnexp.comm.arrival import Arrival
from gnnexp.comm.variation import Variation
from gnnexp.components.facts import GraphFacts, Need
from gnnexp.components.locate import choice_of
from gnnexp.components.plan import Plan, Resident, Sizes
from gnnexp.errors import ConfigError, Problem, Refusal
from gnnexp.experiment.experiment import Experiment
from gnnexp.paradigms.base import Paradigm, drawn_from_graph
from gnnexp.paradigms.checks import uncountable_problems
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.background import background_of
from gnnexp.paradigms.loops.chunking import UNCUT, Chunking, ResidentMemory
from gnnexp.paradigms.loops.local_chunks import chunk_problems
from gnnexp.paradigms.loops.stay import resident_problems
from gnnexp.paradigms.trainer import Trainer
from gnnexp.paradigms.vertices.checks import (
    budget_problems,
    held_graph,
    kept_rows,
    part_and_halo,
    sent_rows_problems,
    vertex_cut_problems,
    vertex_problems,
)
from gnnexp.paradigms.vertices.edge_cut import EdgeCutTrainer, all_held, inputs_held, none_held
from gnnexp.paradigms.vertices.held_memory import held_memory, held_need
from gnnexp.paradigms.vertices.hybrid_dependency import Costs, Fetched, cheapest, profile_problems
from gnnexp.paradigms.vertices.lateness import lateness_problems
from gnnexp.paradigms.vertices.option_rules import age_problems, exchange_problems, variation_problems
from gnnexp.paradigms.vertices.sent_rows import FeatureRows, SentRows, sent_projected
from gnnexp.paradigms.vertices.vertex_cut import VertexCutTrainer
from gnnexp.placement.halo import Cached

Dependency = Literal["communicate", "cache", "hybrid", "stale"]
Exchange = Literal["halo", "broadcast"]
StalenessMetric = Literal["epochs", "variation"]


@dataclass(frozen=True)
class VertexParallel(Paradigm):
    """Full-graph training in which ranks share vertices.

    Attributes:
        dependency: how a rank gets foreign rows, see above.
        exchange: `halo`: send only the rows that are needed; `broadcast`: send whole parts to all ranks (Sancus).
        rows: what owners send of a row, see `vertices/sent_rows.py`: `raw` rows, `projected` rows with source keys, or
            `cheapest`: for each layer the kind with fewer bytes. Rows that are held here are not sent at all.
        cache_input_halo: whether to hold features of layer 1's halo instead of fetching them in every epoch.
        staleness: for `stale`: age of fetched rows in epochs, at most; 0 is exact.
        staleness_metric: for `stale`: what is bounded: the age of rows in `epochs` (by `staleness`), or the `variation`
            of their owner's embeddings (by `variation_bound`), see `gnnexp/comm/variation.py`.
        variation_bound: a rank sends its rows again if they have moved by this share of their norm; 0 is exact.
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
    rows: SentRows = "raw"
    cache_input_halo: bool = False
    staleness: int = 0
    staleness_metric: StalenessMetric = "epochs"
    variation_bound: float = 0.0
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
        late = lateness_problems(
            self.delay,
            self.bins,
            {"smooth_features": self.smooth_features, "smooth_gradients": self.smooth_gradients},
            pipeline=self.pipeline,
            whole_parts=self.exchange == "broadcast",
        )
        ConfigError.raise_all(
            [
                *self.chunking.problems(),
                *self.chunking.whole_problems(),
                *age_problems(self.dependency, self.staleness, self.delay),
                *variation_problems(self.dependency, self.staleness, self.staleness_metric, self.variation_bound),
                *exchange_problems(self.dependency, self.exchange, self.rows, is_fresh=self.arrival.is_fresh),
                *late,
            ]
        )

    @property
    def chunking(self) -> Chunking:
        """How layers are cut into chunks: `chunks`, `device_memory` and `resident_memory`."""
        return Chunking(self.chunks, self.device_memory, self.resident_memory)

    @property
    def arrival(self) -> Arrival:
        """When other ranks' rows are used: `staleness`, or `delay` with its options."""
        if self.staleness_metric == "variation":
            return Variation("stale", bound=self.variation_bound)
        if self.dependency == "stale":
            return Arrival("stale", self.staleness)
        if not self.delay:
            return Arrival()
        return Arrival("late", self.delay, self.bins, self.smooth_features, self.smooth_gradients)

    def refuses_rounded_rows(self, experiment: Experiment) -> Refusal | None:
        """Rows of an edge-cut may be in bfloat16 if they are fresh."""
        if experiment.partitioner.vertex_cut:
            return Refusal("over a vertex-cut, ranks exchange sums")
        if self.rows != "raw":
            return Refusal("rows are rounded before they are projected, and projected rows are sent in full precision")
        if self.dependency in ("communicate", "cache") and not self.delay:
            return None
        return Refusal("old and late rows are kept in float32, and hybrid dependencies have costs of float32 rows")

    def refuses_capture(self, experiment: Experiment) -> Refusal | None:
        """A step can be captured if the graph stays on the GPU and all rows are fresh."""
        if self.chunking != UNCUT:
            return Refusal("chunks are copied to the GPU in every step (paradigm.chunks, paradigm.device_memory)")
        return (
            None if self.arrival.is_fresh else Refusal("what it does changes from epoch to epoch: rows are old or late")
        )

    def check(self, experiment: Experiment) -> list[Problem]:
        """Conflicts. Hybrid needs costs of the machine, a budget known layers, and a vertex-cut needs communication."""
        key = "paradigm.delay" if self.delay else "paradigm.staleness"
        problems = [
            *vertex_problems(experiment, "vertex_parallel", self.arrival, key),
            *budget_problems(experiment, self.chunking),
            *resident_problems(experiment, self.chunking),
            *sent_rows_problems(experiment, self.rows),
        ]
        if self.dependency == "hybrid":
            problems += profile_problems(experiment.hardware)
        if self.staleness_metric == "variation":
            problems += uncountable_problems(experiment, "which rows are sent depends on their values")
        if not experiment.partitioner.vertex_cut:
            return problems
        problems += vertex_cut_problems(experiment, self.chunking)
        if self.staleness_metric == "variation":
            problems.append(
                Problem(
                    "paradigm.staleness_metric",
                    self.staleness_metric,
                    f"over the vertex-cut of {choice_of(experiment.partitioner)} ranks exchange sums, not embeddings",
                    "choose partitioner=range or metis, or set paradigm.staleness_metric=epochs",
                )
            )
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
        resident, needs = self._resident(experiment, facts)
        return Plan(
            experiment.num_ranks,
            drawn_from_graph(experiment, facts),
            approximates=self.arrival.approximates,
            resident=resident,
            needs=(kept, *needs),
            checkpoint_bytes=experiment.num_ranks * kept.num_bytes,
            problems=tuple(chunk_problems(experiment, facts, self.chunking)),
        )

    def _resident(self, experiment: Experiment, facts: GraphFacts) -> tuple[Resident, tuple[Need, ...]]:
        """Data of a rank: a part and its halo, or the graph. Hybrid stays within a limit that is given."""
        least = part_and_halo(experiment, facts, whole_parts=self.exchange == "broadcast")
        if self.dependency not in ("cache", "hybrid"):
            return least, ()
        most = held_graph(experiment, facts)
        if self.dependency == "cache" or experiment.hardware.device_memory is None:
            return most, ()
        return least, (held_need(experiment, facts, least, most),)

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
            projects=self._projects(job),
            background=background,
        )

    def _held(self, job: Job) -> Cached:
        """Which foreign inputs of a layer are here without an exchange: `(layer from 0, ids [m])` to `[m]` bool."""
        if self.dependency == "hybrid":
            assert job.shard.partition is not None
            own = job.shard.partition.vertices_of(job.shard.part)
            rows = [
                Fetched.of(layer, projects=projects)
                for layer, projects in zip(job.model.stack, self._projects(job), strict=True)
            ]
            costs = Costs.of(job.experiment.hardware, job.dtype.itemsize)
            return cheapest(job.shard, own, job.model.widths, costs, rows, held_memory(job))
        if self.dependency == "cache":
            return all_held
        return inputs_held if self.cache_input_halo else none_held

    def _projects(self, job: Job) -> tuple[bool, ...]:
        """For each layer, whether fetched rows come projected."""
        return sent_projected(job.model.stack, self.rows, FeatureRows.of(job.graph), job.dtype.itemsize)
