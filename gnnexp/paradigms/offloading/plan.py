"""The plan of offloaded training, made once: chunks, their order, kept sums, and rows that move."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.components.facts import GraphFacts
from gnnexp.graph.block import Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.sparse import SparseRows
from gnnexp.measure.memory import give_back_heap
from gnnexp.models.layer import BlockLayer, Layer
from gnnexp.models.local import has_constant_mix, has_constant_sums
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.chunking import Chunking
from gnnexp.paradigms.loops.local_chunks import edge_kind
from gnnexp.paradigms.offloading.memory import (
    LayerWork,
    chunk_bytes,
    fewest_chunks,
    largest,
    layer_works,
    least_chunks,
    max_over_ranks,
)
from gnnexp.paradigms.offloading.rows import RowWidths, SlotPlan
from gnnexp.paradigms.offloading.start import ReadRows, Widths, ends_with_own_rows, projects_rows, widths_of
from gnnexp.placement.halo import levels
from gnnexp.placement.reorganise import ChunkOrder, Rates, Volumes, choose_order, ranges, volumes_by_batch
from gnnexp.placement.transitions import Dedup, Readings, Transitions, empty_chunk, readings, transitions

# What the host keeps of a layer for the backward pass, see `Offload`.
Keep = Literal["cheapest", "paper", "outputs", "sums"]


@dataclass(frozen=True, eq=False)
class OffloadPlan:
    """The plan of one rank.

    Attributes:
        transitions: visits of the rank's chunks.
        volumes: number of rows that a sweep moves, on all ranks.
        keeps_sums: for each layer, see `OffloadLayer`.
        mixes: for each layer, see `OffloadLayer`.
        projects: for each layer, see `LayerStart`.
        slots: arrays in which the host keeps rows.
        facts: recorded values, the same on every rank.
    """

    transitions: Transitions
    volumes: Volumes
    keeps_sums: tuple[bool, ...]
    mixes: tuple[bool, ...]
    projects: tuple[bool, ...]
    slots: SlotPlan
    facts: Mapping[str, Any]

    @property
    def num_edges(self) -> int:
        """Number of in-edges of the own vertices, with added self loops."""
        return sum(it.chunk.block.num_edges for it in self.transitions.visits)

    @property
    def topology_bytes(self) -> int:
        """Bytes of the chunks, and of the indices of rows that move."""
        return sum(
            it.chunk.block.nbytes() + it.forward.nbytes() + (0 if it.back is None else it.back.nbytes())
            for it in self.transitions.visits
        )

    @staticmethod
    def of(
        job: Job, own: Tensor, chunking: Chunking, dedup: Dedup, *, rows: ReadRows, keep: Keep, reorganise: bool
    ) -> OffloadPlan:
        """Make the plan for a rank's `own` vertices `[n]`. All ranks call. `Offload` explains the options."""
        start = time.perf_counter()
        comm, budget = job.batch_comm, chunking.budget
        (level,) = levels(job.shard, own, 1, lambda _, ids: torch.zeros(ids.shape, dtype=torch.bool))
        layers = job.model.stack
        projects, reads = planned_reads(layers, rows, job.graph)
        rates = Rates.of(job.experiment.hardware, sum(read.rows for read in reads) // len(reads) * job.dtype.itemsize)
        constant, mixes = constant_layers(layers, empty_chunk(level).block.to(job.device))
        known = sums_known(constant, keep)
        # Chunks are sized as if sums were kept wherever possible: this needs less memory and is the usual result.
        hoped = [kept is not False for kept in known]

        def works_of(sums: Sequence[bool]) -> list[LayerWork]:
            return layer_works(
                layers,
                projects,
                reads,
                sums,
                trained=job.graph.trains_features,
                sparse=has_sparse_features(job.graph),
                edges=edge_kind(job),
            )

        def needed(read: Readings, chunks: np.ndarray | None = None, sums: Sequence[bool] = hoped) -> int:
            size = largest(read, ranges(comm.size, len(read.chunks)) if chunks is None else chunks, dedup, comm.rank)
            return max_over_ranks(chunk_bytes(works_of(sums), job.dtype, size) or 0, comm)

        if budget is not None:
            most = max(1, max_over_ranks(own.numel(), comm))
            least = max_over_ranks(least_chunks(works_of(hoped), job.dtype, level.block, budget), comm)
            read = fewest_chunks(lambda count: readings(level, own, count, comm), needed, most, budget, least)
        else:
            assert chunking.count is not None
            read = readings(level, own, chunking.count, comm)
        order = choose_order(read, comm, rates, reorganise=reorganise)
        if budget is not None and needed(read, order.chunks) > budget:
            order = order.undone("order of ranges: Algorithm 4's batches are above the budget")
        cheaper = cheaper_sums(layers, projects, mixes, order.volumes.from_host(dedup), job.graph.num_nodes)
        keeps = [less if kept is None else kept for kept, less in zip(known, cheaper, strict=True)]
        if budget is not None and needed(read, order.chunks, keeps) > budget:
            keeps = hoped  # running a layer again is cheaper, but does not fit
        give_back_heap()  # counting overlaps of millions of rows took memory, which is free now
        moved = transitions(read, order.chunks, dedup, comm.rank, again=not all(keeps))
        facts = {
            "keeps": words_of_kept(keeps, mixes),
            "rows": ["projected" if on else "raw" for on in projects],
            "chunk_bytes_bound": needed(read, order.chunks, keeps) or None,
            # Bytes of a row that each layer reads, and of a row of logits: they convert rows to bytes.
            "row_bytes": [width * job.dtype.itemsize for width in (*(it.rows for it in reads), job.model.widths[-1])],
            **facts_of_order(read, order, comm),
        }
        dense = 0 if has_sparse_features(job.graph) else job.model.in_dim
        slots = SlotPlan.of(row_widths(reads, projects, keeps), dense)
        facts["setup_s"] = time.perf_counter() - start
        return OffloadPlan(moved, order.volumes, tuple(keeps), mixes, projects, slots, facts)


def words_of_kept(keeps: Sequence[bool], mixes: Sequence[bool]) -> list[str]:
    """For each layer, what the host keeps, in words."""
    return [
        ("mixed sums" if mixed else "sums") if kept else "outputs" for kept, mixed in zip(keeps, mixes, strict=True)
    ]


def facts_of_order(read: Readings, order: ChunkOrder, comm: Communicator) -> dict[str, Any]:
    """Recorded values of the chunks and their order."""
    return {
        "chunks": len(read.chunks),
        "order": order.note,
        "rows_initial": asdict(order.initial),
        "rows_reorganised": None if order.reorganised is None else asdict(order.reorganised),
        "cost_initial": order.initial_cost,
        "cost_reorganised": order.reorganised_cost,
        "order_s": order.seconds,
        "batches": volumes_by_batch(read, order.chunks, comm),
    }


def planned_reads(
    layers: Sequence[Layer | BlockLayer], rows: ReadRows, graph: Graph | GraphFacts
) -> tuple[tuple[bool, ...], list[Widths]]:
    """`(whether each layer's chunks read projected rows, columns that they read)`.

    Sparse and trained features are always projected, once for each vertex.
    """
    once = graph.trains_features or has_sparse_features(graph)
    projects = tuple(
        (index == 0 and once) or projects_rows(layer, index, rows, graph.num_edges, graph.num_nodes)
        for index, layer in enumerate(layers)
    )
    return projects, [
        widths_of(layer, index, projects=on) for index, (layer, on) in enumerate(zip(layers, projects, strict=True))
    ]


def has_sparse_features(graph: Graph | GraphFacts) -> bool:
    """Whether features are sparse rows."""
    return graph.sparse if isinstance(graph, GraphFacts) else isinstance(graph.features, SparseRows)


def row_widths(reads: Sequence[Widths], projects: Sequence[bool], keeps: Sequence[bool]) -> list[RowWidths]:
    """Columns that the host keeps for every layer."""
    return [
        RowWidths(read, read.summed if kept else 0, index > 0 or on)
        for index, (read, on, kept) in enumerate(zip(reads, projects, keeps, strict=True))
    ]


def constant_layers(layers: Sequence[Layer | BlockLayer], block: Block) -> tuple[list[bool], tuple[bool, ...]]:
    """For each layer, whether kept sums are exact, and whether they may be mixed with own rows before they are kept.

    With learned weights sums are not exact. `block` is any block on the layers' device, also an empty one.
    """
    constant = [isinstance(layer, Layer) and has_constant_sums(layer, block) for layer in layers]
    return constant, tuple(
        can and isinstance(layer, Layer) and has_constant_mix(layer, block)
        for layer, can in zip(layers, constant, strict=True)
    )


def sums_known(constant: Sequence[bool], keep: Keep) -> list[bool | None]:
    """For each layer, whether sums are kept; None if the number of rows that cross decides it later."""
    if keep == "outputs":
        return [False] * len(constant)
    return [(None if keep == "cheapest" else True) if can else False for can in constant]


def may_keep_sums(layers: Sequence[Layer | BlockLayer], keep: Keep) -> list[bool]:
    """For each layer, whether its sums may be kept. Blocks decide it later, when there are some."""
    return [keep != "outputs" and isinstance(layer, Layer) and layer.traits.kind == "static" for layer in layers]


def cheaper_sums(
    layers: Sequence[Layer | BlockLayer],
    projects: Sequence[bool],
    mixes: Sequence[bool],
    from_host: int,
    num_vertices: int,
) -> list[bool]:
    """For each layer, whether keeping sums moves fewer rows than running it again, which moves `from_host` rows again.

    Sums go out and come back: 2 rows per vertex. The own row is a third one, if the layer's end needs it
    (layer_contract.md).
    """
    return [
        from_host > (2 + ends_with_own_rows(layer, index, projects=on, mixes=mixed)) * num_vertices
        for index, (layer, on, mixed) in enumerate(zip(layers, projects, mixes, strict=True))
    ]
