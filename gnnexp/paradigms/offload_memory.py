"""What a chunk of offloaded training takes of the device tier, and how many chunks a budget wants (HongTu, 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gnnexp.comm.communicator import Communicator
from gnnexp.errors import DataError, Problem
from gnnexp.graph.graph import Graph
from gnnexp.models.layer import BlockLayer, Layer
from gnnexp.paradigms.chunking import itemsize
from gnnexp.paradigms.local_chunks import cost_of
from gnnexp.samplers.transitions import Dedup, Readings, held_rows


@dataclass(frozen=True)
class ChunkSize:
    """The largest of a rank's chunks, each figure by itself: rows of the buffer, destinations, edges."""

    rows: int
    destinations: int
    edges: int


def chunk_bytes(layers: Sequence[Layer | BlockLayer], dtype: torch.dtype, size: ChunkSize) -> int | None:
    """Bytes that no chunk of that size exceeds, in any layer, forward or backward; None where a layer's are not known.

    Destinations and edges as `ChunkCost`. Rows of the buffer: themselves, their gradients and a chunk's share of these
    (of features: themselves and after dropout); twice more where dropout is the layer's own; then projections with
    their gradients, and with attention what its keys take of them. Ids and transposed topology are 12 bytes.
    """
    found = []
    for index, layer in enumerate(layers):
        if not isinstance(layer, Layer):
            return None
        cost, values = cost_of(layer, dtype), 2 if index == 0 else 5 if layer.residual else 3
        projections = 5 if layer.kind == "projected" else 3
        row = 12 + itemsize(dtype) * (values * layer.in_dim + projections * layer.width + 4 * layer.num_weights)
        found.append(size.rows * row + size.destinations * cost.per_dst + size.edges * cost.per_edge)
    return max(found)


def largest(found: Readings, chunks: np.ndarray, dedup: Dedup, rank: int) -> ChunkSize:
    """Of one rank, for an order of the chunks."""
    rows = max(held_rows(found, chunks, dedup, rank, batch).size for batch in range(chunks.shape[1]))
    blocks = [chunk.block for chunk in found.chunks]
    return ChunkSize(rows, max(block.num_dst for block in blocks), max(block.num_edges for block in blocks))


def smallest_budget(
    graph: Graph, layers: Sequence[Layer | BlockLayer], dtype: torch.dtype, ranks: int, self_loops: bool
) -> int | None:
    """Bytes with which single vertices always work as chunks: the largest ones, one per rank at a time."""
    degrees = graph.in_degree + int(self_loops)
    top = torch.topk(degrees, min(ranks, degrees.numel())).values
    rows = min(graph.num_nodes, int((top + 1).sum()))
    return chunk_bytes(layers, dtype, ChunkSize(rows, 1, int(degrees.max())))


def fewest_chunks(
    cut: Callable[[int], Readings], needed: Callable[[Readings], int], most: int, budget: int
) -> Readings:
    """The fewest chunks per rank that fit: doubled until they do, then halved towards the last that did not.

    Args:
        cut: into n chunks per rank; called by all ranks.
        needed: bytes of the largest chunk of all ranks.
        most: the largest part's vertices: more chunks there are not.
        budget: bytes.

    Raises:
        DataError: if single vertices are too large.
    """
    count, last = 1, 0
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


def over_ranks(value: int, comm: Communicator) -> int:
    """The largest of all ranks' values."""
    told: Any = comm.gather_objects(value)
    return int(max(told))
