"""Offloaded full-graph training (HongTu, Algorithm 1): vertex data in host memory, chunks visit the device.

    for every layer:        for every batch of chunks: rows in, one layer forward, its outputs back to the host
    loss                    with the last layer, chunk by chunk
    for every layer, last first:  for every batch, last first: what is needed to run the layer again in, backward,
                            gradients of the rows back to the host, where they are added up

Exact: each destination has all its in-edges in its chunk, and every vertex's gradient is the sum over its chunks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.plan import GraphFacts, Need, Plan, Resident, Sizes
from gnnexp.graph.block import BatchKey
from gnnexp.graph.sparse import Rows
from gnnexp.job import Job
from gnnexp.measure.memory import give_back_heap
from gnnexp.paradigms.base import Paradigm, drawn_from_graph
from gnnexp.paradigms.checks import block_degrees, one_part_per_rank, pairs
from gnnexp.paradigms.chunks.chunking import Chunking
from gnnexp.paradigms.loops.full_graph import FullGraphTrainer, Whole, check_full_graph
from gnnexp.paradigms.loops.rank_batch import RankBatch
from gnnexp.paradigms.offloading.checks import check_offload, host_bytes
from gnnexp.paradigms.offloading.options import Keep, check_layers, option_problems
from gnnexp.paradigms.offloading.plan import OffloadPlan
from gnnexp.paradigms.offloading.start import ReadRows
from gnnexp.paradigms.offloading.sweep import Sweeps
from gnnexp.paradigms.trainer import EpochCounts, Trainer
from gnnexp.placement.transitions import BOTH, Dedup
from gnnexp.tiers.host_tier import HostMemory


@dataclass(frozen=True)
class Offload(Paradigm):
    """Full-graph training beyond device memory.

    Attributes:
        chunks: n, ranges of a rank's destinations, balanced by edges; None: as few as `device_memory` allows.
        device_memory: bytes that the rank's chunks may take of the device tier, None for any.
        keep: what the host keeps of a layer for its backward pass: `outputs` (the layer is run again from its inputs),
            `sums` (its aggregated rows; only the rest is run again), `paper` (sums wherever that is exact), or
            `cheapest`: whichever brings fewer rows across.
        rows: what chunks read of a layer's sources: `raw` rows, `projected` ones, or per layer whichever makes for
            fewer floats to gather.
        host: `ram`, or `file`s in the run directory.
        dedup: `{inter, intra}`, see `placement/transitions.py`.
        reorganise: chunks in the order of Algorithm 4, where Equation 4 says that it costs less.
        prefetch: on a GPU, bring a batch's own rows while the batch before is worked on.
    """

    chunks: int | None = 8
    device_memory: int | None = None
    keep: Keep = "cheapest"
    rows: ReadRows = "cheapest"
    host: HostMemory = "ram"
    dedup: Dedup = BOTH
    reorganise: bool = True
    prefetch: bool = True
    always_partitioned: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if problems := option_problems(self):
            raise ConfigError(problems)

    @property
    def chunking(self) -> Chunking:
        """`chunks` and `device_memory`."""
        return Chunking(self.chunks, self.device_memory)

    def check(self, experiment: Experiment) -> list[Problem]:
        """A part per rank, and options that fit the model."""
        return [*check_full_graph(experiment, "offload"), *one_part_per_rank(experiment),
                *block_degrees(experiment, "offload"), *check_layers(experiment, self)]

    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        """A part for every rank; features stay in host memory and cross with the chunks that read them."""
        problems = check_offload(experiment, facts, self)
        return Plan(
            experiment.num_ranks, drawn_from_graph(experiment, facts), resident=self._resident(experiment, facts),
            needs=() if problems else tuple(self._needs(experiment, facts)), features_on_host=True,
            problems=tuple(problems),
        )

    def _needs(self, experiment: Experiment, facts: GraphFacts) -> list[Need]:
        """Vertex data of all layers, in RAM or in files; topology with its transpose; what chunks may take."""
        in_ram = self.host == "ram"
        rows, sums = host_bytes(experiment, facts, self)
        return [
            Need("vertex data of all layers", "host" if in_ram else "disk", rows),
            *([] if in_ram else [Need("gradients of a layer, while they are added up", "host", sums)]),
            Need("outputs of links' ends, and their gradients", "host",
                 4 * -(-facts.num_nodes // experiment.num_ranks) * facts.num_classes * 4 if pairs(experiment) else 0),
            Need("topology of all chunks, with its transpose", "host",
                 16 * -(-facts.num_edges // experiment.num_ranks)),
            Need("chunks (paradigm.device_memory)", "device", self.device_memory or 0),
        ]

    def _resident(self, experiment: Experiment, facts: GraphFacts) -> Resident:
        """Of the device tier: the share of one chunk, no more than its edges lead to; a budget is one of the needs."""
        if self.device_memory is not None:
            return Resident(0, 0, 0)
        assert self.chunks is not None
        chunks = experiment.num_ranks * self.chunks
        edges = -(-facts.num_edges // chunks)
        rows = min(facts.num_nodes, edges + -(-facts.num_nodes // chunks))
        return Resident(edges, rows, rows)

    def trainer(self, job: Job) -> Trainer[Any]:
        """Chunk by chunk."""
        return OffloadTrainer(job, self)


class OffloadTrainer(FullGraphTrainer):
    """A rank's part in chunks, and a plan of what moves between them."""

    def __init__(self, job: Job, options: Offload) -> None:
        super().__init__(job)
        assert job.shard.partition is not None
        self.own = job.shard.partition.vertices_of(job.shard.part)
        self.planned = job.once.of("plan", lambda: OffloadPlan.of(job, self.own, options))
        give_back_heap()  # who reads what was known row by row
        if options.device_memory is not None and job.model.backend is not None:
            job.model.backend.keep_at_most(options.device_memory)
        self.blocks = ()  # nothing is on the device between chunks
        self.sweeps = job.once.of("sweeps", lambda: Sweeps(job, self.own, self.planned, options))

    def load(self) -> Rows:
        """Features of the own vertices, into the host tier."""
        return self.sweeps.load()

    # --- the iteration ---------------------------------------------------------------------------------------------
    @property
    def outputs_device(self) -> torch.device:
        """The host tier."""
        return torch.device("cpu")

    def forward_backward(self, batch: Whole) -> tuple[Tensor, int]:
        """Algorithm 1."""
        timer, key, sweeps, layers = self.job.timer, batch.batch.key, self.sweeps, self.job.model.num_layers
        assert batch.own is not None
        with timer.phase("forward"):
            self.count_computed(batch)
            sweeps.project_features(key)
            for index in range(layers - 1):
                sweeps.forward(index, key)
            if not self.job.task.pairs:  # chunk by chunk: no loss reads another chunk's outputs
                loss = sweeps.forward_last(key, max(1, batch.own.global_count))
        if self.job.task.pairs:
            loss = self._loss_of_links(batch.own, key)
        with timer.phase("backward"):
            for index in reversed(range(layers)):
                sweeps.backward(index, key)
            sweeps.project_features_back(key)
        return loss, batch.own.examples.count

    def _loss_of_links(self, own: RankBatch, key: BatchKey) -> Tensor:
        """Outputs of both ends come from their owners' host tiers, and are decoded on the device, beside the chunks."""
        job, comm = self.job, self.job.batch_comm
        with job.timer.phase("forward"):
            last = self.sweeps.last_outputs(key).requires_grad_()
            outputs = own.outputs(last, comm)
            there = job.tier.enter(outputs.detach(), counted="tier/h2d_rows_endpoints")
        loss, given = self.task_loss(there, own)
        with job.timer.phase("backward"):
            back = torch.empty_like(outputs)
            job.tier.leave(given, back, "tier/d2h_rows_endpoints")
            outputs.backward(back)  # type: ignore[no-untyped-call]
            last.requires_grad_(False)
            assert last.grad is not None
            gradient, last.grad = last.grad, None
            last.copy_(gradient)
        return loss

    # --- counts ----------------------------------------------------------------------------------------------------
    def count_computed(self, ready: Whole) -> None:
        """Every layer's edges, and those of layers that backward runs again."""
        edges, vertices = self.planned.num_edges, self.own.numel()
        keeps = self.planned.keeps_sums
        self.count("edges_computed", edges * len(keeps))
        self.count("edges_computed_again", edges * keeps.count(False))
        self.count("edges_redundant", 0)  # every destination has one chunk
        self.count("vertices_computed", vertices * len(keeps))
        self._batches.setdefault("edges", []).append([edges] * len(keeps))
        self._batches.setdefault("vertices", []).append([vertices] * len(keeps))

    def end_epoch(self) -> EpochCounts:
        """A sweep's volumes (section 5.3) beside the rest; rank 0 tells those of all ranks."""
        found = super().end_epoch()
        if self.job.comm.rank == 0:
            found.work.update({f"tier/rows_{name}": rows for name, rows in asdict(self.planned.volumes).items()})
        return found

    def memory(self) -> dict[str, int]:
        """Topology and vertex data are the host's; the rest of the device's memory is measured."""
        held = super().memory()
        trained = 0 if self.job.trained_rows is None else self.job.trained_rows.nbytes()
        vertices = self.sweeps.host.num_bytes + trained
        return {**held, "topology_bytes": self.planned.topology_bytes, "vertex_bytes": vertices}

    def facts(self) -> Mapping[str, Any]:
        """The plan's."""
        return self.planned.facts
