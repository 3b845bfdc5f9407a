"""Offloaded full-graph training (HongTu, Algorithm 1): vertex data in host memory, chunks visit the device.

    for every layer:        for every batch of chunks: rows in, one layer forward, its outputs back to the host
    loss                    with the last layer, chunk by chunk
    for every layer, last first:  for every batch, last first: what is needed to run the layer again in, backward,
                            gradients of the rows back to the host, where they are added up

Exact: each destination has all its in-edges in its chunk, and every vertex's gradient is the sum over its chunks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

import torch
from torch import Tensor

from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.needs import Need, Resident
from gnnexp.graph.block import BatchKey, Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.parts import Parts
from gnnexp.graph.sparse import Rows
from gnnexp.job import Job
from gnnexp.measure.memory import give_back_heap
from gnnexp.paradigms.checks import block_degrees, num_ranks, one_part_per_rank, pairs
from gnnexp.paradigms.loops.full_graph import FullGraph, Whole
from gnnexp.paradigms.loops.share import Share
from gnnexp.paradigms.offloading.checks import check_offload, host_bytes
from gnnexp.paradigms.offloading.options import Keep, OffloadOptions
from gnnexp.paradigms.offloading.plan import OffloadPlan
from gnnexp.paradigms.offloading.start import ReadRows
from gnnexp.paradigms.offloading.sweep import Sweeps
from gnnexp.tiers.host_tier import Place


class Offload(FullGraph):
    """Full-graph training beyond device memory.

    Args:
        chunks: n, ranges of a rank's destinations, balanced by edges; `auto`: as few as `device_memory` allows.
        device_memory: bytes that the rank's chunks may take of the device tier.
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

    exact = True
    needs_partition = True

    def __init__(
        self, chunks: int | Literal["auto"] = 8, device_memory: int | None = None, keep: Keep = "cheapest",
        rows: ReadRows = "cheapest", host: Place = "ram", dedup: Mapping[str, Any] | None = None,
        reorganise: bool = True, prefetch: bool = True,
    ) -> None:
        chosen = {"inter": True, "intra": True} if dedup is None else dedup
        self.options = OffloadOptions(chunks, device_memory, keep, rows, host, chosen, reorganise, prefetch)
        if problems := self.options.problems():
            raise ConfigError(problems)

    @property
    def updates_on_host(self) -> bool:
        """Features stay in host memory and cross with the chunks that read them."""
        return True

    def check(self, config: Mapping[str, Any]) -> list[Problem]:
        """A part per rank, and options that fit the other groups."""
        problems = [*super().check(config), *one_part_per_rank(config), *block_degrees(config, "offload")]
        return [*problems, *self.options.check(config)]

    def check_data(self, config: Mapping[str, Any], graph: Graph) -> list[Problem]:
        """Dense features, a budget for the largest vertices."""
        return check_offload(config, graph, self.options)

    def needs(self, config: Mapping[str, Any], graph: Graph, parts: Parts | None = None) -> list[Need]:
        """Vertex data of all layers, in RAM or in files; topology with its transpose; what chunks may take."""
        in_ram = self.options.host == "ram"
        rows, sums = host_bytes(config, graph, self.options)
        return [
            Need("vertex data of all layers", "host" if in_ram else "disk", rows),
            *([] if in_ram else [Need("gradients of a layer, while they are added up", "host", sums)]),
            Need("outputs of links' ends, and their gradients", "host",
                 4 * -(-graph.num_nodes // num_ranks(config)) * graph.num_classes * 4 if pairs(config) else 0),
            Need("topology of all chunks, with its transpose", "host", 16 * -(-graph.num_edges // num_ranks(config))),
            Need("chunks (paradigm.device_memory)", "device", self.options.device_memory or 0),
        ]

    def resident_share(self, config: Mapping[str, Any], graph: Graph) -> Resident:
        """Of the device tier: the share of one chunk, no more than its edges lead to; a budget is one of `needs`."""
        chunks = self.options.chunks
        if chunks == "auto":
            return Resident(0, 0, 0)
        edges = -(-graph.num_edges // (num_ranks(config) * chunks))
        rows = min(graph.num_nodes, edges + -(-graph.num_nodes // (num_ranks(config) * chunks)))
        return Resident(edges, rows, rows)

    # --- setup -----------------------------------------------------------------------------------------------------
    def setup(self, job: Job) -> None:
        """Cut the rank's part into chunks, and plan what moves between them."""
        super().setup(job)
        assert job.shard.partition is not None
        self._own = job.shard.partition.vertices_of(job.shard.part)
        self.plan = OffloadPlan.of(job, self._own, self.options)
        give_back_heap()  # who reads what was known row by row
        if self.options.device_memory is not None and job.model.backend is not None:
            job.model.backend.keep_at_most(self.options.device_memory)
        self.sweeps = Sweeps(job, self._own, self.plan, self.options)

    @property
    def own(self) -> Tensor:
        """What the part owns."""
        return self._own

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Nothing is on the device between chunks."""
        return ()

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
        assert batch.share is not None
        with timer.phase("forward"):
            self.count_computed(batch)
            sweeps.project_features(key)
            for index in range(layers - 1):
                sweeps.forward(index, key)
            if not self.job.task.pairs:  # chunk by chunk: no loss reads another chunk's outputs
                loss = sweeps.forward_last(key, max(1, batch.share.global_count))
        if self.job.task.pairs:
            loss = self._loss_of_links(batch.share, key)
        with timer.phase("backward"):
            for index in reversed(range(layers)):
                sweeps.backward(index, key)
            sweeps.project_features_back(key)
        return loss, batch.share.examples.count

    def _loss_of_links(self, own: Share, key: BatchKey) -> Tensor:
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
        edges, vertices = self.plan.num_edges, self._own.numel()
        keeps = self.plan.keeps_sums
        self.count("edges_computed", edges * len(keeps))
        self.count("edges_computed_again", edges * keeps.count(False))
        self.count("edges_redundant", 0)  # every destination has one chunk
        self.count("vertices_computed", vertices * len(keeps))
        self._batches.setdefault("edges", []).append([edges] * len(keeps))
        self._batches.setdefault("vertices", []).append([vertices] * len(keeps))

    def end_epoch(self) -> dict[str, int]:
        """A sweep's volumes (section 5.3) beside the rest; rank 0 tells those of all ranks."""
        counts = super().end_epoch()
        if self.job.comm.rank == 0:
            counts |= {f"tier/rows_{name}": rows for name, rows in asdict(self.plan.volumes).items()}
        return counts

    def memory(self) -> dict[str, int]:
        """Topology and vertex data are the host's; the rest of the device's memory is measured."""
        held = super().memory()
        trained = 0 if self.job.trained_rows is None else self.job.trained_rows.nbytes()
        vertices = self.sweeps.host.num_bytes + trained
        return {**held, "topology_bytes": self.plan.topology_bytes, "vertex_bytes": vertices}

    def facts(self) -> Mapping[str, Any]:
        """The plan's."""
        return self.plan.facts
