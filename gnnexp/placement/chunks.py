"""Chunks: ranges of destinations with all their in-edges, computed one after another (NeutronTP, section 4.2.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.kernels.graph.cut import compact, cut_by_cost


@dataclass(frozen=True, eq=False)
class Chunk:
    """One range of a block's destinations.

    Attributes:
        block: the block of the range; its destinations are its first sources.
        rows: `[S]` int64, positions of its sources in the whole block; None if the chunk is the whole block.
        first, last: first destination of the range, and one past the last.
        edges: positions of its edges in the whole block.
    """

    block: Block
    rows: Tensor | None
    first: int
    last: int
    edges: slice


@dataclass(frozen=True)
class ChunkCost:
    """Device bytes of a chunk per destination, per edge and per distinct source.

    They include all memory in use at the same time: topology and its transpose, weights and their gradients, input rows
    and output rows.
    """

    per_dst: int
    per_edge: int
    per_src: int

    def bytes_of(self, block: Block) -> int:
        """Device bytes of a chunk with this block."""
        return self.per_dst * block.num_dst + self.per_edge * block.num_edges + self.per_src * block.num_src

    @staticmethod
    def of(width: int, out_width: int, num_weights: int, itemsize: int, edge_columns: int = 0) -> ChunkCost:
        """The cost for input rows of `width` columns and output rows of `out_width` columns.

        Rows: values, gradients, and working copies. Edges: sources, transposed destinations and positions
        (4 + 4 + 8 bytes), and weights with gradients and scores. With `edge_columns` values per edge, the topology by
        relation is added.
        """
        return ChunkCost(
            per_dst=8 + _COPIES_OUT * out_width * itemsize,
            per_edge=16 + 4 * num_weights * itemsize + edge_columns * itemsize + BY_RELATION * (edge_columns > 0),
            per_src=4 + 8 + _COPIES_IN * width * itemsize,
        )

    def with_attention(self, num_bytes: int, identity: int) -> ChunkCost:
        """The cost if an edge takes at least `num_bytes`, and its identity in the block takes more."""
        return replace(self, per_edge=max(self.per_edge, num_bytes) + identity)

    def with_keys(self, num_weights: int, itemsize: int) -> ChunkCost:
        """The cost if rows have keys, and edges have scores, peaks and weights of their own."""
        keys, scores = 6 * num_weights * itemsize, 3 * num_weights * itemsize
        return replace(self, per_dst=self.per_dst + keys, per_edge=self.per_edge + scores, per_src=self.per_src + keys)

    def with_products(self, num_weights: int, itemsize: int) -> ChunkCost:
        """The cost if weights that are not static are multiplied with weights of the graph.

        Every edge has its weight as a value of the graph and of the run, and the products with their gradients.
        """
        return replace(self, per_edge=self.per_edge + 4 + (1 + 2 * num_weights) * itemsize)


_COPIES_IN, _COPIES_OUT = 3, 6
# Bytes per edge of `Block.relations`, with as many pairs as edges, both transposes, and the memory to build them.
BY_RELATION = 128
SOURCE = 4  # bytes per edge of its source in a block


def even_ranges(block: Block, count: int) -> list[int]:
    """Bounds of at most `count` ranges of destinations with about equal numbers of edges plus vertices."""
    return sorted(set(rank_bounds(block, count)))


def rank_bounds(block: Block, count: int) -> list[int]:
    """Bounds `[count + 1]` of exactly `count` ranges as in `even_ranges`; ranges may be empty in small blocks."""
    cost = block.indptr[1:] - block.indptr[:-1] + 1
    total = torch.cumsum(cost, 0)
    whole = int(total[-1]) if total.numel() else 0
    marks = torch.tensor([whole * number // count for number in range(1, count)], dtype=torch.int64)
    inner = torch.searchsorted(total, marks, right=True).tolist()  # as many as stay at or below their mark
    return [0, *inner, block.num_dst]


def ranges_in_budget(block: Block, cost: ChunkCost, budget: int) -> tuple[list[int], int]:
    """Ranges as large as the budget allows: `(bounds, bytes of the most expensive destination)`."""
    bounds, dearest = cut_by_cost(
        block.indptr.numpy(), block.sources.numpy(), block.num_src, cost.per_dst, cost.per_edge, cost.per_src, budget
    )
    return sorted(set(bounds.tolist())), int(dearest)


def cut(block: Block, bounds: Sequence[int]) -> tuple[Chunk, ...]:
    """Cut a block into chunks; the destinations of the block must be its first sources.

    Args:
        block: the block, on the host.
        bounds: `[n + 1]` bounds of the ranges of destinations.
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
    of_edges: dict[str, Any] = {
        name: None if values is None else values.clone() for name, values in block.of_edges(slice(start, stop)).items()
    }
    cut_block = replace(
        block,
        indptr=block.indptr[first : last + 1] - start,
        sources=torch.from_numpy(sources),
        src_ids=block.src_ids[rows],
        num_dst=last - first,
        in_degree=degree,
        in_weight=None if block.in_weight is None else block.in_weight[first:last].clone(),
        **of_edges,
    )
    return Chunk(cut_block, rows, first, last, slice(start, stop))
