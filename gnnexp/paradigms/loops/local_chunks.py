"""Runs a layer chunk by chunk, if all in-edges and source rows of its destinations are on this rank.

This is the chunk scheduling of NeutronTP (section 4.2.1). With chunks, vertex parallelism is the
"baseline + CS" of Figure 11. Ranks exchange nothing inside of chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from gnnexp.components.facts import GraphFacts
from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.graph.block import BatchKey, Block
from gnnexp.graph.sparse import Rows
from gnnexp.models.layer import BlockLayer, Layer
from gnnexp.models.model import ModelOptions
from gnnexp.ops.backends import chosen_kernel
from gnnexp.ops.edge_bytes import EdgeKind, torch_attention_bytes
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.chunking import UNCUT, Chunking
from gnnexp.paradigms.loops.in_chunks import in_chunks
from gnnexp.paradigms.loops.stay import keep_resident
from gnnexp.placement.chunks import SOURCE, Chunk, ChunkCost

# Work of a layer on a block: `(block, rows [S, d] of its sources, own parts [D, o] of its destinations)` to `[D, out]`.
OwnedWork = Callable[[Block, Tensor, Tensor | None], Tensor]


class LocalChunks:
    """The chunks of a rank's layers.

    Args:
        job: job of the rank.
        blocks: block of every layer, on the host; destinations are the first sources.
        chunking: number of chunks, or a budget.
    """

    def __init__(self, job: Job, blocks: Sequence[Block], chunking: Chunking) -> None:
        self._job, self._edges = job, edge_kind(job)
        by_cost: dict[tuple[Block, ChunkCost | None], tuple[Chunk, ...]] = {}
        self.chunks: list[tuple[Chunk, ...]] = []
        for layer, block in zip(job.model.layers, blocks, strict=True):
            cost: ChunkCost | None = None  # a number of chunks is the same for all layers
            if chunking.budget is not None and isinstance(layer, Layer):
                cost = cost_of(layer, job.dtype, self._edges)
            if (block, cost) not in by_cost:
                by_cost[block, cost] = chunking.chunks(block, cost)
            self.chunks.append(by_cost[block, cost])

    def keep(self, chunking: Chunking) -> None:
        """Let chunks stay on the device as `paradigm.resident_memory` says. Each visit computes their weights."""
        visited = [
            (layer, chunks)
            for layer, chunks in zip(self._job.model.layers, self.chunks, strict=True)
            if len(chunks) > 1
        ]
        dearest = [
            cost_of(layer, self._job.dtype, self._edges).bytes_of(chunk.block)
            for layer, chunks in visited
            if isinstance(layer, Layer)
            for chunk in chunks
        ]
        keep_resident(
            self._job, chunking, [chunk for _, chunks in visited for chunk in chunks], max(dearest, default=0)
        )

    def preactivate(self, index: int, block: Block, dropped: Rows, key: BatchKey | None) -> Tensor:
        """`Model.preactivated`, one chunk after another. Arguments and result are the same."""
        model, chunks = self._job.model, self.chunks[index]
        layer: Any = model.layers[index]
        if len(chunks) == 1 and chunks[0].rows is None:
            return model.preactivated(index, block, dropped, key)

        def work(chunk: Chunk, rows: Rows, _: Tensor | None) -> Tensor:
            return model.preactivated(index, chunk.block, rows, key)

        return in_chunks(work, dropped, None, chunks, self._job.tier, width=layer.out_dim, layer=index)

    def in_pieces(self, index: int, block: Block, work: OwnedWork, rows: Tensor, own: Tensor | None) -> Tensor:
        """`[D, out]` of layer `index`, one chunk after another. Own parts enter with the one chunk that reads them.

        Args:
            index: number of the layer, from 0.
            block: the layer's whole block.
            work: what a chunk computes.
            rows: `[S, d]` rows of all sources.
            own: `[D, o]` parts of all destinations, or None.
        """
        chunks, layer = self.chunks[index], self._job.model.stack[index]
        if len(chunks) == 1 and chunks[0].rows is None:
            return work(block, rows, own)
        assert isinstance(layer, Layer)

        def of_chunk(chunk: Chunk, rows: Tensor, _: Tensor | None, own: Tensor | None = None) -> Tensor:
            return work(chunk.block, rows, own)

        return in_chunks(of_chunk, rows, None, chunks, self._job.tier, width=layer.out_dim, layer=index, own=own)


def edge_kind(job: Job) -> EdgeKind:
    """How a rank computes with edges."""
    graph, drops = job.graph, job.shard.needs.edge_identity
    return EdgeKind.of(
        job.model.backend.name,
        weighted=graph.edge_weights is not None,
        drops=drops,
        parallel=drops and graph.occurrence is not None,
        typed=graph.edge_types is not None,
    )


def planned_edge_kind(experiment: Experiment, facts: GraphFacts) -> EdgeKind:
    """The same, before ranks start."""
    return EdgeKind.of(
        chosen_kernel(experiment.model.kernel, experiment.hardware.device),
        weighted=facts.weighted,
        drops=experiment.model.needs.edge_identity,
        parallel=facts.parallel_edges,
        typed=facts.typed,
    )


def cost_of(layer: Layer, dtype: torch.dtype, edges: EdgeKind) -> ChunkCost:
    """Memory that a chunk of a layer takes: an upper bound, whether the layer projects or aggregates first."""
    cost = ChunkCost.of(
        layer.in_dim + layer.width,
        max(layer.in_dim * layer.num_weights, layer.width, layer.out_dim),
        layer.num_weights,
        dtype.itemsize,
        layer.traits.edge_columns,
    )
    cost = with_attention(cost, [layer], dtype, edges)
    static = layer.traits.kind == "static"
    return cost.with_products(layer.num_weights, dtype.itemsize) if edges.weighted and not static else cost


def with_attention(cost: ChunkCost, layers: Iterable[Layer], dtype: torch.dtype, edges: EdgeKind) -> ChunkCost:
    """The cost of a chunk in which edges have the weights of one of the layers, if some of them are attention."""
    weighing = [layer for layer in layers if layer.traits.kind == "projected"]
    if not weighing:
        return cost
    needed = [attention_bytes(layer, dtype.itemsize) for layer in weighing] if edges.kernel == "torch" else [0]
    return cost.with_attention(max(needed), edges.identity)


def attention_bytes(layer: Layer, itemsize: int) -> int:
    """Bytes per edge of an attention layer with `model.kernel=torch`, with the edge's source."""
    dropped = layer.traits.weight_dropout > 0
    return SOURCE + torch_attention_bytes(layer.num_weights, itemsize, dropped=dropped)


def chunk_problems(experiment: Experiment, facts: GraphFacts, chunking: Chunking) -> list[Problem]:
    """Problems with the data: a budget that is too small for the largest vertex."""
    if chunking == UNCUT:
        return []
    model, dtype = experiment.model, getattr(torch, experiment.train.dtype)
    layers = [layer for layer in layers_of(model, facts) if isinstance(layer, Layer)]
    if not layers:
        return []  # `check` refuses a budget
    edges = planned_edge_kind(experiment, facts)
    costs = [cost_of(layer, dtype, edges) for layer in layers]
    return chunking.data_problems(facts, costs, model.needs.self_loops)


def layers_of(model: ModelOptions, facts: GraphFacts) -> list[Layer | BlockLayer]:
    """The layers of a model on a graph, without memory for parameters, because sizes are not checked yet."""
    dims = [facts.num_features, *[model.hidden] * (model.layers - 1), facts.num_classes]
    with torch.device("meta"):
        return [model.make_layer(index, *pair, facts.num_relations) for index, pair in enumerate(pairwise(dims))]
