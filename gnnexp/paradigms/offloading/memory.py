"""What a chunk of offloaded training takes of the device tier, and how many chunks a budget wants (HongTu, 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from gnnexp.comm.communicator import Communicator
from gnnexp.errors import DataError, Problem
from gnnexp.experiment.plan import GraphFacts
from gnnexp.graph.block import Block
from gnnexp.models.layer import BlockLayer, Layer
from gnnexp.paradigms.chunks.chunking import itemsize
from gnnexp.paradigms.offloading.start import Widths
from gnnexp.placement.chunks import BY_RELATION, ChunkCost
from gnnexp.placement.transitions import Dedup, Readings, held_rows


@dataclass(frozen=True)
class ChunkSize:
    """A rank's chunks.

    Attributes:
        rows: of its buffer.
        destinations, edges: `[n]` of every chunk.
    """

    rows: int
    destinations: np.ndarray
    edges: np.ndarray


@dataclass(frozen=True)
class LayerWork:
    """How a layer is worked on, as far as its memory depends on it.

    Attributes:
        layer: any.
        read: columns that its chunks read.
        projects: whether those are projected.
        sums: whether sums are kept.
        following: columns that it hands on per vertex.
        parameters: values of its parameters, and of those that start the next layer.
        inputs_trained: whether the features that its start projects take a gradient.
    """

    layer: Layer | BlockLayer
    read: Widths
    projects: bool
    sums: bool
    following: int
    parameters: int
    inputs_trained: bool = False


def layer_works(
    layers: Sequence[Layer | BlockLayer], projects: Sequence[bool], reads: Sequence[Widths],
    sums: Sequence[bool], *, trained: bool,
) -> list[LayerWork]:
    """Of all layers of a model; `trained` are its features."""
    following = [read.rows + read.own for read in reads[1:]]
    following.append(2 * layers[-1].out_dim)  # logits and all their gradients
    sizes = [sum(parameter.numel() for parameter in layer.parameters()) for layer in layers]
    parameters = [here + after for here, after in zip(sizes, [*sizes[1:], 0], strict=True)]
    works = [LayerWork(*work) for work in zip(layers, reads, projects, sums, following, parameters, strict=True)]
    return [replace(works[0], inputs_trained=trained), *works[1:]]


# Of a parameter, made in a chunk: what is added up, a chunk's share, and one more where a product needs it turned.
_GRADIENTS = 3


def chunk_bytes(works: Sequence[LayerWork], dtype: torch.dtype, size: ChunkSize) -> int | None:
    """Bytes that no chunk exceeds, in any layer, forward or backward; None where a layer's are not known.

    Parameters lie outside of it, but their gradients are made in chunks.

    The first layer's features, when their projection is handed on, come in the same ranges of destinations.
    """
    found = []
    for index, work in enumerate(works):
        cost = _cost(work, index, itemsize(dtype))
        if cost is None:
            return None
        chunks = size.destinations * cost.per_dst + size.edges * cost.per_edge
        gradients = _GRADIENTS * work.parameters * itemsize(dtype)
        found.append(size.rows * cost.per_src + int(chunks.max(initial=0)) + gradients)
        if index == 0 and work.projects:
            columns = (5 if work.inputs_trained else 3) * work.layer.in_dim + 3 * (work.read.rows + work.read.own)
            found.append(int(size.destinations.max(initial=0)) * (16 + columns * itemsize(dtype)) + gradients)
    return max(found)


def _cost(work: LayerWork, index: int, size: int) -> ChunkCost | None:
    """Of a layer's chunks, values of `size` bytes.

    Per row of the buffer: ids, transposed topology, a static weight with what it is made from (48 bytes); the rows
    themselves, in backward their gradients and a chunk's share of these. From kept sums they are not read again.
    Projecting raw rows adds projections, keys and their gradients. Per edge: topology and its transpose (16 bytes),
    its identity (12), weights with gradients and scores, what projected edges take. Per destination: positions and
    degrees (32), what was read and kept, four copies of the layer's end, and what is handed on with its gradient.
    Measured: 41 to 90 % of it is used.
    """
    layer, read = work.layer, work.read
    if not isinstance(layer, Layer):
        return None
    keyed = layer.kind == "projected"
    weights = 0 if type(layer).edge_weight is Layer.edge_weight else 3 * layer.num_weights * size
    if layer.kind == "learned":  # counted and divided beside
        weights += 2 * (layer.num_weights + 1) * size
    if layer.projects_edges:
        weights += layer.edge_columns * size + BY_RELATION
    values = (2 if index == 0 and not work.projects else 3) * read.rows
    if work.sums:
        values = 2 * read.rows
    elif work.projects:
        values += 6 * layer.num_weights if keyed else 0
    else:
        values += 3 * layer.width + 6 * layer.num_weights
    outer = layer.in_dim * layer.num_weights if layer.kind != "static" and not work.projects else 0
    widest = max(layer.width, layer.out_dim, outer)
    ends = read.rows + 2 * (read.own + read.summed) + 4 * widest + 2 * work.following
    return ChunkCost(per_dst=32 + ends * size, per_edge=28 + weights, per_src=48 + values * size)


def least_chunks(works: Sequence[LayerWork], dtype: torch.dtype, block: Block, budget: int) -> int:
    """With fewer chunks of `block` the average one is above the budget, if it read no more than its destinations."""
    works = [replace(work, parameters=0) for work in works]  # they do not shrink with chunks
    whole = ChunkSize(block.num_dst, np.array([block.num_dst]), np.array([block.num_edges]))
    return max(1, -(-(chunk_bytes(works, dtype, whole) or 0) // budget))


def largest(found: Readings, chunks: np.ndarray, dedup: Dedup, rank: int) -> ChunkSize:
    """Of one rank, for an order of the chunks."""
    rows = max(held_rows(found, chunks, dedup, rank, batch).size for batch in range(chunks.shape[1]))
    blocks = [chunk.block for chunk in found.chunks]
    return ChunkSize(rows, np.array([it.num_dst for it in blocks]), np.array([it.num_edges for it in blocks]))


def smallest_budget(
    facts: GraphFacts, works: Sequence[LayerWork], dtype: torch.dtype, ranks: int, self_loops: bool
) -> int | None:
    """Bytes with which single vertices always work as chunks: the largest ones, one per rank at a time."""
    degrees = [degree + self_loops for degree in facts.top_degrees]
    top = (degrees + degrees[-1:] * ranks)[: min(ranks, facts.num_nodes)]
    rows = min(facts.num_nodes, sum(degree + 1 for degree in top))
    return chunk_bytes(works, dtype, ChunkSize(rows, np.ones(1, np.int64), np.array(degrees[:1])))


def fewest_chunks(
    cut: Callable[[int], Readings], needed: Callable[[Readings], int], most: int, budget: int, least: int = 1
) -> Readings:
    """The fewest chunks per rank that fit: doubled until they do, then halved towards the last that did not.

    Args:
        cut: into n chunks per rank; called by all ranks.
        needed: bytes of the largest chunk of all ranks.
        most: the largest part's vertices: more chunks there are not.
        budget: bytes.
        least: with fewer chunks even the average one is too large.

    Raises:
        DataError: if single vertices are too large.
    """
    count, last = min(least, most), min(least, most) - 1
    fitting = cut(count)
    while needed(fitting) > budget:
        if count >= most:
            bytes_ = needed(fitting)
            raise DataError(Problem("paradigm.device_memory", budget, f"a single vertex takes {bytes_} bytes",
                                    f"set paradigm.device_memory={bytes_} or more"))
        last, count = count, min(2 * count, most)
        fitting = cut(count)
    while count - last > 1:
        middle = (count + last) // 2
        found = cut(middle)
        if needed(found) <= budget:
            fitting, count = found, middle
        else:
            last = middle
    return fitting


def max_over_ranks(value: int, comm: Communicator) -> int:
    """The largest of all ranks' values."""
    told: Any = comm.gather_objects(value)
    return int(max(told))
