"""Memory that a chunk of offloaded training takes on the device tier, and chunks for a budget (HongTu, 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from gnnexp.comm.communicator import Communicator
from gnnexp.components.facts import GraphFacts
from gnnexp.errors import DataError, Problem
from gnnexp.graph.block import Block
from gnnexp.models.layer import BlockLayer, Layer
from gnnexp.ops.edge_bytes import PARALLEL, EdgeKind
from gnnexp.paradigms.loops.local_chunks import attention_bytes
from gnnexp.paradigms.offloading.start import Widths
from gnnexp.placement.chunks import BY_RELATION, SOURCE, ChunkCost
from gnnexp.placement.transitions import Dedup, Readings, held_rows


@dataclass(frozen=True)
class ChunkSize:
    """Sizes of a rank's chunks.

    Attributes:
        rows: number of rows of the rank's buffer.
        destinations, edges: `[n]` numbers of destinations and edges of every chunk.
    """

    rows: int
    destinations: np.ndarray
    edges: np.ndarray


@dataclass(frozen=True)
class LayerWork:
    """How a layer is computed, as far as its memory depends on it.

    Attributes:
        layer: contract layer or block layer.
        read: columns that its chunks read.
        projects: whether its chunks read projected rows.
        sums: whether sums are kept.
        following: columns that it makes for the next layer, for each vertex.
        parameters: number of values in its parameters, and in those of the next layer, whose start runs here.
        edges: how the run computes with edges.
        inputs_trained: whether its start projects features that take a gradient.
        inputs_sparse: whether its start projects sparse features.
    """

    layer: Layer | BlockLayer
    read: Widths
    projects: bool
    sums: bool
    following: int
    parameters: int
    edges: EdgeKind
    inputs_trained: bool = False
    inputs_sparse: bool = False


def layer_works(
    layers: Sequence[Layer | BlockLayer],
    projects: Sequence[bool],
    reads: Sequence[Widths],
    sums: Sequence[bool],
    *,
    trained: bool,
    sparse: bool,
    edges: EdgeKind,
) -> list[LayerWork]:
    """The work of all layers: whether features are `trained` or `sparse`, and the kind of `edges`."""
    following = [read.rows + read.own for read in reads[1:]]
    following.append(2 * layers[-1].out_dim)  # logits and all their gradients
    sizes = [sum(parameter.numel() for parameter in layer.parameters()) for layer in layers]
    parameters = [here + after for here, after in zip(sizes, [*sizes[1:], 0], strict=True)]
    works = [
        LayerWork(layer, reads[index], projects[index], sums[index], following[index], parameters[index], edges)
        for index, layer in enumerate(layers)
    ]
    return [replace(works[0], inputs_trained=trained, inputs_sparse=sparse), *works[1:]]


# Copies of a parameter's gradient in a chunk: the sum, the chunk's share, and a transposed copy for some products.
_GRADIENTS = 3
# Bytes per edge of a block's transpose: a destination, and the edge's position.
_TRANSPOSE = 4 + 8


def chunk_bytes(works: Sequence[LayerWork], dtype: torch.dtype, size: ChunkSize) -> int | None:
    """Upper bound of the bytes of a chunk, in any layer, forward or backward; None if a layer's memory is not known.

    It does not include parameters, but gradients of parameters, which chunks make. If the first layer reads projected
    features, features visit the device in the same ranges of destinations.
    """
    bounds = []
    for index, work in enumerate(works):
        cost = _cost(work, index, dtype.itemsize)
        if cost is None:
            return None
        chunks = size.destinations * cost.per_dst + size.edges * cost.per_edge
        gradients = _GRADIENTS * work.parameters * dtype.itemsize
        bounds.append(size.rows * cost.per_src + int(chunks.max(initial=0)) + gradients)
        if index == 0 and work.projects:
            # A sparse value has a column number of 4 bytes; full sparse rows take twice as much as dense ones.
            copies = 5 if work.inputs_trained else 3 * (1 + work.inputs_sparse)
            columns = copies * work.layer.in_dim + 3 * (work.read.rows + work.read.own)
            bounds.append(int(size.destinations.max(initial=0)) * (16 + columns * dtype.itemsize) + gradients)
    return max(bounds)


def _cost(work: LayerWork, index: int, size: int) -> ChunkCost | None:
    """Memory of a layer's chunks, with values of `size` bytes.

    For each row of the buffer: ids, transposed topology, a static weight and its inputs (48 bytes); the row, and in
    backward its gradient and a chunk's share of the gradient. With kept sums, backward does not read rows. Projecting
    raw rows adds projections, keys and their gradients.

    For each edge (`_edge_bytes`): topology and its transpose (16 bytes), numbers of parallel edges (12 bytes), weights
    with gradients and scores, and memory of projected edges. Attention of torch's kernels is counted exactly instead.

    For each destination: positions and degrees (32 bytes), values that were read and kept, four copies of the layer's
    end, and rows for the next layer with their gradient. Sums that are kept with own rows in them take the same: the
    own rows are read in forward, and their gradient is made in backward.

    Measured: 28 to 90 % of it is used, and up to 98 % where edges of torch's attention decide.
    """
    layer, read = work.layer, work.read
    if not isinstance(layer, Layer):
        return None
    keyed = layer.traits.kind == "projected"
    values = (2 if index == 0 and not work.projects else 3) * read.rows
    if work.sums:
        values = 2 * read.rows
    elif work.projects:
        values += 6 * layer.num_weights if keyed else 0
    else:
        values += 3 * layer.width + 6 * layer.num_weights
    outer = layer.in_dim * layer.num_weights if layer.traits.kind != "static" and not work.projects else 0
    widest = max(layer.width, layer.out_dim, outer)
    ends = read.rows + 2 * (read.own + read.summed) + 4 * widest + 2 * work.following
    return ChunkCost(per_dst=32 + ends * size, per_edge=_edge_bytes(work, layer, size), per_src=48 + values * size)


def _edge_bytes(work: LayerWork, layer: Layer, size: int) -> int:
    """Bytes per edge of `_cost`, with the topology; torch's kernels do not read the transpose."""
    keyed = layer.traits.kind == "projected"
    if keyed and work.edges.kernel == "torch":
        weights = attention_bytes(layer, size) + work.edges.identity
    else:
        copies = 5 if keyed else 3  # attention: scores, weights, dropped weights, and the gradients of two of them
        weights = 0 if type(layer).edge_weight is Layer.edge_weight else copies * layer.num_weights * size
        weights += SOURCE + _TRANSPOSE + PARALLEL
    if work.edges.weighted:  # the weight as a value, its product with the source's weight, and sums in float64
        weights += 12 + 3 * size
        if layer.traits.kind != "static" and layer.traits.edge_projection is None:  # products, and their gradients
            weights += 2 * layer.num_weights * size
    if layer.traits.kind == "learned":  # counts of edges, and quotients
        weights += 2 * (layer.num_weights + 1) * size
    if layer.traits.edge_projection is not None:
        weights += layer.traits.edge_columns * size + BY_RELATION
    return weights


def least_chunks(works: Sequence[LayerWork], dtype: torch.dtype, block: Block, budget: int) -> int:
    """Lower bound of the number of chunks of `block`: with fewer, the average chunk is above the budget."""
    works = [replace(work, parameters=0) for work in works]  # their size does not depend on chunks
    whole = ChunkSize(block.num_dst, np.array([block.num_dst]), np.array([block.num_edges]))
    return max(1, -(-(chunk_bytes(works, dtype, whole) or 0) // budget))


def largest(found: Readings, chunks: np.ndarray, dedup: Dedup, rank: int) -> ChunkSize:
    """Sizes of one rank's chunks, for an order of the chunks."""
    rows = max(held_rows(found, chunks, dedup, rank, batch).size for batch in range(chunks.shape[1]))
    blocks = [chunk.block for chunk in found.chunks]
    return ChunkSize(rows, np.array([it.num_dst for it in blocks]), np.array([it.num_edges for it in blocks]))


def smallest_budget(
    facts: GraphFacts, works: Sequence[LayerWork], dtype: torch.dtype, ranks: int, self_loops: bool
) -> int | None:
    """Bytes that always suffice for chunks of single vertices: the largest ones, one on each rank at a time."""
    degrees = [degree + self_loops for degree in facts.top_degrees]
    top = (degrees + degrees[-1:] * ranks)[: min(ranks, facts.num_nodes)]
    rows = min(facts.num_nodes, sum(degree + 1 for degree in top))
    return chunk_bytes(works, dtype, ChunkSize(rows, np.ones(1, np.int64), np.array(degrees[:1])))


def fewest_chunks(
    cut: Callable[[int], Readings], needed: Callable[[Readings], int], most: int, budget: int, least: int = 1
) -> Readings:
    """The fewest chunks per rank that fit: double the number until they fit, then bisect.

    Args:
        cut: function that cuts into n chunks per rank; all ranks call.
        needed: function that returns the bytes of the largest chunk of all ranks.
        most: number of vertices of the largest part, the most possible chunks.
        budget: bytes that a chunk may take.
        least: lower bound; with fewer chunks, the average chunk is too large.

    Raises:
        DataError: if a single vertex needs more than the budget.
    """
    count, last = min(least, most), min(least, most) - 1
    fitting = cut(count)
    while needed(fitting) > budget:
        if count >= most:
            bytes_ = needed(fitting)
            raise DataError(
                Problem(
                    "paradigm.device_memory",
                    budget,
                    f"a single vertex takes {bytes_} bytes",
                    f"set paradigm.device_memory={bytes_} or more",
                )
            )
        last, count = count, min(2 * count, most)
        fitting = cut(count)
    while count - last > 1:
        middle = (count + last) // 2
        fewer = cut(middle)
        if needed(fewer) <= budget:
            fitting, count = fewer, middle
        else:
            last = middle
    return fitting


def max_over_ranks(value: int, comm: Communicator) -> int:
    """The largest of all ranks' values."""
    values: Any = comm.gather_objects(value)
    return int(max(values))
