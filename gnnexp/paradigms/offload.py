"""Offloaded full-graph training (HongTu, Algorithm 1): vertex data in host memory, chunks visit the device.

Forward, layer by layer: rows of a batch of chunks enter the device, the layer runs, and its outputs go back to the
host. The last layer computes the loss chunk by chunk.

Backward, from the last layer: what the layer needs to run again enters the device. Gradients of the rows go back to
the host, which adds them up.

It is exact: a destination has all its in-edges in its chunk, and a vertex's gradient is the sum over its chunks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from gnnexp.components.facts import GraphFacts, Need
from gnnexp.components.locate import choice_of, target_of
from gnnexp.components.options import rule_problems
from gnnexp.components.plan import Plan, Resident, Sizes
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.graph.block import BatchKey
from gnnexp.graph.sparse import Rows
from gnnexp.measure.memory import give_back_heap
from gnnexp.paradigms.base import Paradigm, drawn_from_graph
from gnnexp.paradigms.checks import (
    after_layer_problems,
    block_degree_problems,
    has_block_layers,
    has_pairs,
    learns_weights,
    part_per_rank_problems,
)
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.chunking import Chunking, ResidentMemory
from gnnexp.paradigms.loops.computed import Computed
from gnnexp.paradigms.loops.full_graph import FullGraphTrainer, RankGraph, Whole, full_graph_problems
from gnnexp.paradigms.loops.local_chunks import layers_of, planned_edge_kind
from gnnexp.paradigms.loops.rank_batch import RankBatch
from gnnexp.paradigms.loops.stay import keep_resident, resident_needs, resident_problems
from gnnexp.paradigms.offloading.memory import layer_works, smallest_budget
from gnnexp.paradigms.offloading.plan import Keep, OffloadPlan, may_keep_sums, planned_reads, row_widths
from gnnexp.paradigms.offloading.rows import SlotPlan
from gnnexp.paradigms.offloading.start import ReadRows
from gnnexp.paradigms.offloading.sweep import Sweeps
from gnnexp.paradigms.trainer import EpochCounts, Trainer
from gnnexp.placement.transitions import BOTH, Dedup
from gnnexp.tiers.host_tier import HostMemory

_STAGED_CHUNKS = 5  # chunks whose rows are in pinned memory at the same time: 2 on their way to a GPU, 3 back


@dataclass(frozen=True)
class Offload(Paradigm):
    """Full-graph training of graphs that exceed device memory.

    Attributes:
        chunks: number of ranges of a rank's destinations, balanced by edges; None: as few as `device_memory` allows.
        device_memory: bytes of the device tier that the rank's chunks may take, None for no limit.
        resident_memory: bytes of the device in which chunks stay, see `loops/stay.py`; None: all cross in every visit.
        keep: what the host keeps of a layer for the backward pass. `outputs`: the layer runs again from its inputs.
            `sums`: aggregated rows are kept, and only the rest runs again. GCN's already contain its own row, and so
            do GIN's with `train_eps=false`. `paper`: sums if that is exact. `cheapest`: the choice that moves fewer
            rows.
        rows: what chunks read of a layer's sources: `raw` rows, `projected` rows, or `cheapest`: for each layer the
            choice that gathers fewer floats.
        host: where the host keeps rows: `ram`, or `file` for files in the run directory.
        dedup: `{inter, intra}`, see `placement/transitions.py`.
        reorganise: whether to order chunks by Algorithm 4 if this costs less by Equation 4.
        prefetch: whether a GPU fetches a batch's own rows while it computes the batch before.
    """

    chunks: int | None = 8
    device_memory: int | None = None
    resident_memory: ResidentMemory = None
    keep: Keep = "cheapest"
    rows: ReadRows = "cheapest"
    host: HostMemory = "ram"
    dedup: Dedup = BOTH
    reorganise: bool = True
    prefetch: bool = True
    version: ClassVar[int] = 1  # before: own rows of GCN came back with its kept sums
    always_partitioned: ClassVar[bool] = True

    def __post_init__(self) -> None:
        problems = self.chunking.problems()
        if self.reorganise and not (self.dedup.inter and self.dedup.intra):
            problems.append(
                Problem(
                    "reorganise",
                    True,
                    "puts chunks in an order for both kinds of dedup",
                    "set paradigm.reorganise=false, or paradigm.dedup={inter: true, intra: true}",
                )
            )
        ConfigError.raise_all(problems)

    @property
    def chunking(self) -> Chunking:
        """How layers are cut into chunks: `chunks`, `device_memory` and `resident_memory`."""
        return Chunking(self.chunks, self.device_memory, self.resident_memory)

    def check(self, experiment: Experiment) -> list[Problem]:
        """Conflicts: one part for each rank, and options that fit the model."""
        return [
            *full_graph_problems(experiment, "offload"),
            *part_per_rank_problems(experiment),
            *block_degree_problems(experiment, "offload"),
            *self._layer_problems(experiment),
            *resident_problems(experiment, self.chunking),
            *after_layer_problems(experiment, "offload", "computes them twice"),
        ]

    def _layer_problems(self, experiment: Experiment) -> list[Problem]:
        """Conflicts with the model: kept sums need constant weights, and a budget needs layers of known memory."""
        model, block_layers = choice_of(experiment.model), has_block_layers(experiment)
        return rule_problems(
            (
                self.keep != "sums" or not (block_layers or learns_weights(experiment)),
                "paradigm.keep",
                "sums",
                f"the aggregation of {model} has learned weights: its gradient needs what was aggregated",
                "set paradigm.keep=outputs",
            ),
            (
                self.rows != "projected" or not block_layers,
                "paradigm.rows",
                "projected",
                f"layers of {model} have no projection of their own",
                "set paradigm.rows=cheapest",
            ),
            (
                self.device_memory is None or not block_layers,
                "paradigm.device_memory",
                self.device_memory,
                f"what layers of {model} take is not known",
                "set paradigm.chunks=<number> and paradigm.device_memory=null",
            ),
        )

    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        """The plan, with one part for each rank. Features stay on the host and cross with chunks that read them."""
        problems = self._data_problems(experiment, facts)
        return Plan(
            experiment.num_ranks,
            drawn_from_graph(experiment, facts),
            resident=self._resident(experiment, facts),
            needs=() if problems else tuple(self._needs(experiment, facts)),
            features_on_host=True,
            problems=tuple(problems),
        )

    def _data_problems(self, experiment: Experiment, facts: GraphFacts) -> list[Problem]:
        """Problems: sparse or trained features that are not projected, or a budget below single vertices."""
        if (facts.trains_features or facts.sparse) and (self.rows == "raw" or has_block_layers(experiment)):
            key, value = ("paradigm.rows", "raw") if self.rows == "raw" else ("model", target_of(experiment.model))
            return [
                Problem(
                    key,
                    value,
                    "rows that are trained are read projected: their gradients are added up before they cross"
                    if facts.trains_features
                    else "sparse features are read projected: every vertex is projected once",
                    "set paradigm.rows=cheapest, and choose model=sage, gcn, gat, gin or rgcn",
                )
            ]
        if self.device_memory is None:
            return []
        model, dtype = experiment.model, getattr(torch, experiment.train.dtype)
        layers = layers_of(model, facts)
        projects, reads = planned_reads(layers, self.rows, facts)
        kept = ([False] * len(layers), may_keep_sums(layers, self.keep))
        works = [
            layer_works(
                layers,
                projects,
                reads,
                sums,
                trained=facts.trains_features,
                sparse=facts.sparse,
                edges=planned_edge_kind(experiment, facts),
            )
            for sums in kept
        ]
        needs = [smallest_budget(facts, work, dtype, experiment.num_ranks, model.needs.self_loops) for work in works]
        needed = max((bytes_ for bytes_ in needs if bytes_ is not None), default=0)
        if needed <= self.device_memory:
            return []
        return [
            Problem(
                "paradigm.device_memory",
                self.device_memory,
                f"the largest vertices as chunks of their own take {needed} bytes",
                f"set paradigm.device_memory={needed} or more",
            )
        ]

    def _needs(self, experiment: Experiment, facts: GraphFacts) -> list[Need]:
        """Memory for vertex data of all layers (RAM or files), topology with its transpose, and chunks."""
        in_ram = self.host == "ram"
        rows, sums = self._host_bytes(experiment, facts)
        return [
            Need("vertex data of all layers", "host" if in_ram else "disk", rows),
            *([] if in_ram else [Need("gradients of a layer, while they are added up", "host", sums)]),
            Need(
                "outputs of links' ends, and their gradients",
                "host",
                4 * -(-facts.num_nodes // experiment.num_ranks) * facts.num_classes * 4 if has_pairs(experiment) else 0,
            ),
            Need(
                "topology of all chunks, with its transpose", "host", 16 * -(-facts.num_edges // experiment.num_ranks)
            ),
            Need("chunks (paradigm.device_memory)", "device", self.device_memory or 0),
            *resident_needs(self.chunking),
            Need("pinned memory through which rows cross", "host", self._staged_bytes(experiment, facts)),
        ]

    def _host_bytes(self, experiment: Experiment, facts: GraphFacts) -> tuple[int, int]:
        """`(rows, sums)`: bytes that a rank keeps on the host at most.

        Rows include gradients of the targets' logits. Sums are the gradients of one layer, which stay in RAM while they
        are added up, if rows are in files (`HostTier.to_add_up`).
        """
        model, size = experiment.model, getattr(torch, experiment.train.dtype).itemsize
        layers = layers_of(model, facts)
        projects, reads = planned_reads(layers, self.rows, facts)
        widths = row_widths(reads, projects, may_keep_sums(layers, self.keep))
        slots = SlotPlan.of(widths, 0 if facts.sparse else facts.num_features)
        vertices = -(-facts.num_nodes // experiment.num_ranks)
        outputs = vertices if has_pairs(experiment) else facts.num_train
        rows = slots.num_bytes(vertices, size) + size * outputs * facts.num_classes
        rows += size * vertices * facts.num_features * facts.trains_features
        rows += vertices * facts.row_bytes(size) * facts.sparse
        return rows, vertices * size * max((it.read.rows for it in widths if it.gradients), default=0)

    def _staged_bytes(self, experiment: Experiment, facts: GraphFacts) -> int:
        """An upper bound of the pinned memory of rows on their way to a GPU and back (`DeviceTier`); 0 without a GPU.

        A chunk takes rows, and fetches rows of the next one. Rows of three chunks may be on their way back. torch keeps
        pinned memory, and rounds its size up to a power of 2.
        """
        if experiment.hardware.device != "cuda":
            return 0
        size: int = getattr(torch, experiment.train.dtype).itemsize
        widest = max(facts.num_features, experiment.model.hidden, facts.num_classes)
        rows = facts.num_nodes if self.device_memory is not None else self._resident(experiment, facts).rows
        of_chunk = size * widest * rows
        return 2 * _STAGED_CHUNKS * (of_chunk if self.device_memory is None else min(of_chunk, self.device_memory))

    def _resident(self, experiment: Experiment, facts: GraphFacts) -> Resident:
        """What one chunk holds on the device tier: edges, and rows at their ends. A budget is one of `_needs`."""
        if self.device_memory is not None:
            return Resident(0, 0, 0)
        assert self.chunks is not None
        chunks = experiment.num_ranks * self.chunks
        edges = -(-facts.num_edges // chunks)
        rows = min(facts.num_nodes, edges + -(-facts.num_nodes // chunks))
        return Resident(edges, rows, rows)

    def trainer(self, job: Job) -> Trainer[Any]:
        """A trainer that trains chunk by chunk."""
        return OffloadTrainer(job, self)

    def planned(self, job: Job, own: Tensor) -> OffloadPlan:
        """The plan for a rank's `own` vertices `[n]`. All ranks call."""
        return OffloadPlan.of(
            job, own, self.chunking, self.dedup, rows=self.rows, keep=self.keep, reorganise=self.reorganise
        )

    def sweeps(self, job: Job, own: Tensor, plan: OffloadPlan) -> Sweeps:
        """The sweeps over a rank's chunks."""
        return Sweeps(job, own, plan, self.host, prefetch=self.prefetch, inter=self.dedup.inter)


class OffloadTrainer(FullGraphTrainer):
    """Trains a rank's part in chunks, with a plan of the rows that move between them."""

    def __init__(self, job: Job, options: Offload) -> None:
        super().__init__(job, outputs_device=torch.device("cpu"))  # the host tier has the outputs
        assert job.shard.partition is not None
        self.own = job.shard.partition.vertices_of(job.shard.part)
        self.planned = job.once.of("plan", lambda: options.planned(job, self.own))
        give_back_heap()  # the plan listed row by row which chunk reads what; this memory is free now
        pool = job.model.backend.pool
        if options.device_memory is not None and pool is not None:
            pool.idle_limit_bytes = options.device_memory
        self.held = RankGraph(self.own, (), self._computed())  # no block is on the device between chunks
        self.sweeps = job.once.of("sweeps", lambda: options.sweeps(job, self.own, self.planned))
        visited = [it.chunk for it in self.planned.transitions.visits if it.chunk.block.num_dst]
        keep_resident(job, options.chunking, visited, self.planned.facts["chunk_bytes_bound"] or 0)

    def _computed(self) -> Computed:
        """Edges of every layer, and those of layers that backward runs again. Every destination has one chunk."""
        edges, keeps = self.planned.num_edges, self.planned.keeps_sums
        work = {
            "edges_computed": edges * len(keeps),
            "edges_computed_again": edges * keeps.count(False),
            "edges_redundant": 0,
        }
        return Computed([edges] * len(keeps), [self.own.numel()] * len(keeps), work)

    def load(self) -> Rows:
        """Load features of the own vertices to the host tier."""
        return self.sweeps.load()

    # --- the iteration ---------------------------------------------------------------------------------------------
    def forward_backward(self, batch: Whole) -> tuple[Tensor, int]:
        """Run Algorithm 1: all layers forward, the loss, all layers backward."""
        timer, key, sweeps, layers = self.job.timer, batch.batch.key, self.sweeps, self.job.model.num_layers
        assert batch.own is not None
        with timer.phase("forward"):
            self.count_computed(batch.computed)
            sweeps.project_features(key)
            for index in range(layers - 1):
                sweeps.forward(index, key)
            if not self.job.task.options.pairs:  # chunk by chunk: no loss reads another chunk's outputs
                loss = sweeps.forward_last(key, max(1, batch.own.global_count))
        if self.job.task.options.pairs:
            loss = self._loss_of_links(batch.own, key)
        with timer.phase("backward"):
            for index in reversed(range(layers)):
                sweeps.backward(index, key)
            sweeps.project_features_back(key)
        return loss, batch.own.examples.count

    def _loss_of_links(self, own: RankBatch, key: BatchKey) -> Tensor:
        """The loss of links. Outputs of both ends come from host tiers of their owners; the device decodes them."""
        job, comm = self.job, self.job.batch_comm
        with job.timer.phase("forward"):
            last = self.sweeps.last_outputs(key).requires_grad_()
            outputs = own.outputs(last, comm)
            on_device = job.tier.enter(outputs.detach(), counted="tier/h2d_rows_endpoints")
        loss, gradient = self.task_loss(on_device, own)
        with job.timer.phase("backward"):
            back = torch.empty_like(outputs)
            job.tier.leave(gradient, back, "tier/d2h_rows_endpoints")
            job.tier.settle()
            outputs.backward(back)  # type: ignore[no-untyped-call]
            last.requires_grad_(False)
            assert last.grad is not None
            of_last, last.grad = last.grad, None
            last.copy_(of_last)
        return loss

    # --- counts ----------------------------------------------------------------------------------------------------
    def end_epoch(self) -> EpochCounts:
        """The counts of the epoch. Rank 0 adds the volumes of a sweep over all ranks (section 5.3)."""
        found = super().end_epoch()
        if self.job.comm.rank == 0:
            found.work.update({f"tier/rows_{name}": rows for name, rows in asdict(self.planned.volumes).items()})
        return found

    def memory(self) -> dict[str, int]:
        """Bytes of topology and vertex data on the host. Device memory is measured."""
        held = super().memory()
        trained = 0 if self.job.trained_rows is None else self.job.trained_rows.nbytes()
        vertices = self.sweeps.host.num_bytes + trained + self.sweeps.sparse_bytes
        return {**held, "topology_bytes": self.planned.topology_bytes, "vertex_bytes": vertices}

    def facts(self) -> Mapping[str, Any]:
        """The facts of the plan."""
        return self.planned.facts
