"""What is decided once, before offloaded training begins: chunks, their order, what is kept, what moves."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnexp.job import Job
from gnnexp.measure.memory import give_back_heap
from gnnexp.models.layer import BlockLayer, Layer
from gnnexp.models.local import has_constant_sums
from gnnexp.paradigms.chunking import itemsize
from gnnexp.paradigms.offload_memory import chunk_bytes, fewest_chunks, largest, over_ranks
from gnnexp.paradigms.offload_options import OffloadOptions
from gnnexp.samplers.halo import levels
from gnnexp.samplers.reorganise import Rates, Volumes, choose_order, ranges, volumes_by_batch
from gnnexp.samplers.transitions import Readings, Transitions, readings, transitions


@dataclass(frozen=True, eq=False)
class OffloadPlan:
    """Of one rank.

    Attributes:
        transitions: its visits.
        volumes: rows that a sweep moves, over all ranks.
        keeps_sums: per layer, see `OffloadLayer`.
        facts: what is recorded of it, the same on every rank.
    """

    transitions: Transitions
    volumes: Volumes
    keeps_sums: tuple[bool, ...]
    facts: Mapping[str, Any]

    @property
    def num_edges(self) -> int:
        """In-edges of the own vertices, added self loops included."""
        return sum(it.chunk.block.num_edges for it in self.transitions.visits)

    @property
    def topology_bytes(self) -> int:
        """Of the chunks, and of the indices of what moves."""
        return sum(it.chunk.block.nbytes() + it.forward.nbytes() + (0 if it.back is None else it.back.nbytes())
                   for it in self.transitions.visits)

    @staticmethod
    def of(job: Job, own: Tensor, options: OffloadOptions) -> OffloadPlan:
        """Plan for a rank's `own` vertices `[n]`; called by all ranks."""
        start = time.perf_counter()
        comm, dedup = job.batch_comm, options.duplicates
        (level,) = levels(job.shard, own, 1, lambda _, ids: torch.zeros(ids.shape, dtype=torch.bool))
        width = sum(job.model.widths[:-1]) // job.model.num_layers
        rates = Rates.of(job.run.hardware, width * itemsize(job.dtype))

        layers = [layer for layer in job.model.layers if isinstance(layer, Layer | BlockLayer)]

        def needed(found: Readings, chunks: np.ndarray | None = None) -> int:
            size = largest(found, ranges(comm.size, len(found.chunks)) if chunks is None else chunks, dedup, comm.rank)
            return over_ranks(chunk_bytes(layers, job.dtype, size) or 0, comm)

        if options.chunks == "auto":
            assert options.device_memory is not None
            most = max(1, over_ranks(own.numel(), comm))
            found = fewest_chunks(lambda count: readings(level, own, count, comm), needed, most, options.device_memory)
        else:
            found = readings(level, own, options.chunks, comm)
        order = choose_order(found, comm, rates, reorganise=options.reorganise)
        if options.device_memory is not None and needed(found, order.chunks) > options.device_memory:
            order = order.undone("order of ranges: Algorithm 4's batches are above the budget")
        keeps = keeps_sums(job, found, options, order.volumes.from_host(dedup))
        give_back_heap()  # overlaps of millions of rows were counted
        moved = transitions(found, order.chunks, dedup, comm.rank, again=not all(keeps))
        facts = {
            "chunks": len(found.chunks), "keeps": ["sums" if kept else "outputs" for kept in keeps],
            "order": order.note, "chunk_bytes_bound": needed(found, order.chunks) or None,
            "rows_initial": asdict(order.initial),
            "rows_reorganised": None if order.reorganised is None else asdict(order.reorganised),
            "cost_initial": order.initial_cost, "cost_reorganised": order.reorganised_cost,
            "order_s": order.seconds, "batches": volumes_by_batch(found, order.chunks, comm),
            # Of every layer's inputs and of the logits: rows mean nothing in bytes without.
            "row_bytes": [width * itemsize(job.dtype) for width in job.model.widths],
        }
        return OffloadPlan(moved, order.volumes, keeps, {**facts, "setup_s": time.perf_counter() - start})


def keeps_sums(job: Job, found: Readings, options: OffloadOptions, from_host: int) -> tuple[bool, ...]:
    """Per layer, whether the host keeps sums; never where weights are learned.

    Running a layer again brings the `from_host` rows of a sweep once more. Keeping its sums sends a row per vertex out
    and brings two back, its own among them (layer_contract.md: cheaper from 2K + 1 = 3 rows per vertex on).
    """
    blocks = [chunk.block for chunk in found.chunks]
    smallest = min(blocks, key=lambda block: block.num_edges)
    constant = [isinstance(layer, Layer) and has_constant_sums(layer, smallest) for layer in job.model.layers]
    told: Any = job.batch_comm.gather_objects(constant)
    possible = tuple(all(of_layer) for of_layer in zip(*told, strict=True))
    if options.keep == "outputs":
        return (False,) * len(possible)
    cheaper = options.keep != "cheapest" or from_host > 3 * job.graph.num_nodes
    return tuple(can and cheaper for can in possible)
