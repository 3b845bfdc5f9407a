"""Chunks: ranges of destinations with all their in-edges, worked on one after another (NeutronTP, section 4.2.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.kernels.graph.cut import compact, cut_by_cost


@dataclass(frozen=True, eq=False)
class Chunk:
    """One range of a block's destinations.

    Attributes:
        block: its destinations first among its own sources.
        rows: `[S]` int64, which rows of the whole block its sources are; None where it is the whole block.
        first, last: the range.
        edges: where its edges lie in the whole block.
    """

    block: Block
    rows: Tensor | None
    first: int
    last: int
    edges: slice


@dataclass(frozen=True)
class ChunkCost:
    """Device bytes of a chunk's destinations, edges and distinct sources.

    What is worked with at once: topology with its transpose, weights and their gradients, rows in, rows out.
    """

    per_dst: int
    per_edge: int
    per_src: int

    @staticmethod
    def of(width: int, out_width: int, num_weights: int, itemsize: int, edge_columns: int = 0) -> ChunkCost:
        """For rows of `width` columns in and `out_width` out: values, gradients, and one spare of either.

        Per edge: sources, transposed destinations and positions (4 + 4 + 8 bytes), weights with gradients and scores;
        `edge_columns` of values, then with the same topology by relation.
        """
        return ChunkCost(
            per_dst=8 + _COPIES_OUT * out_width * itemsize,
            per_edge=16 + 4 * num_weights * itemsize + edge_columns * itemsize + BY_RELATION * (edge_columns > 0),
            per_src=4 + 8 + _COPIES_IN * width * itemsize,
        )


_COPIES_IN, _COPIES_OUT = 3, 6
# Bytes per edge of `Block.relations`, as many pairs as edges, with both transposes and what they are made from.
BY_RELATION = 128


def even_ranges(block: Block, count: int) -> list[int]:
    """Bounds of at most `count` ranges of destinations with about equally many edges and vertices."""
    return sorted(set(rank_bounds(block, count)))


def rank_bounds(block: Block, count: int) -> list[int]:
    """`[count + 1]` bounds of exactly `count` such ranges, some of them empty where there is too little to share."""
    cost = block.indptr[1:] - block.indptr[:-1] + 1
    total = torch.cumsum(cost, 0)
    whole = int(total[-1]) if total.numel() else 0
    marks = torch.tensor([whole * number // count for number in range(1, count)], dtype=torch.int64)
    inner = torch.searchsorted(total, marks, right=True).tolist()  # as many as stay at or below their mark
    return [0, *inner, block.num_dst]


def ranges_in_budget(block: Block, cost: ChunkCost, budget: int) -> tuple[list[int], int]:
    """`(bounds, bytes of the dearest destination)`: ranges as large as the budget allows."""
    bounds, dearest = cut_by_cost(
        block.indptr.numpy(), block.sources.numpy(), block.num_src, cost.per_dst, cost.per_edge, cost.per_src, budget
    )
    return sorted(set(bounds.tolist())), int(dearest)


def cut(block: Block, bounds: Sequence[int]) -> tuple[Chunk, ...]:
    """The chunks of a block whose destinations are its first sources.

    Args:
        block: on the host.
        bounds: `[n + 1]` of the ranges.
    """
    if block.num_dst == 0 or list(bounds) == [0, block.num_dst]:
        return (Chunk(block, None, 0, block.num_dst, slice(0, block.num_edges)),)
    place = np.full(block.num_src, -1, np.int32)
    return tuple(_chunk(block, first, last, place) for first, last in pairwise(bounds))


def _chunk(block: Block, first: int, last: int, place: np.ndarray) -> Chunk:
    start, stop = int(block.indptr[first]), int(block.indptr[last])
    room = np.empty(min(block.num_src, last - first + stop - start), np.int64)
    sources = np.empty(stop - start, np.int32)
    count = compact(block.sources[start:stop].numpy(), first, last - first, place, sources, room)
    rows = torch.from_numpy(room[:count].copy())
    degree = block.degree[first:last].clone()

    def of_edges(values: Tensor | None) -> Tensor | None:
        return None if values is None else values[start:stop].clone()

    cut_block = replace(
        block, indptr=block.indptr[first : last + 1] - start, sources=torch.from_numpy(sources),
        src_ids=block.src_ids[rows], num_dst=last - first, in_degree=degree, edge_ids=of_edges(block.edge_ids),
        occurrence=of_edges(block.occurrence), edge_types=of_edges(block.edge_types),
        in_relation_degree=of_edges(block.in_relation_degree),
    )
    return Chunk(cut_block, rows, first, last, slice(start, stop))
