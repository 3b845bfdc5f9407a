"""The edges of a rank in a vertex-cut: other ranks may own their sources and destinations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.graph.shard import Shard
from gnnexp.kernels.graph.edges import count_alike


@dataclass(frozen=True, eq=False)
class CutGraph:
    """The graph of a rank, the same for every layer.

    Attributes:
        block: edges of the rank. Sources are the rank's own vertices, then foreign vertices by owner. Destinations have
            the same order, but are not the first sources (`Block.other_dst_ids`). Degrees are those of the whole graph.
        own: `[n]` vertices of which this rank is the master, ascending.
        sources, destinations: ids of the foreign sources and of the foreign destinations, by owner.
        source_counts, destination_counts: number of foreign sources and destinations that each rank owns.
    """

    block: Block
    own: Tensor
    sources: Tensor
    destinations: Tensor
    source_counts: tuple[int, ...]
    destination_counts: tuple[int, ...]

    @property
    def cross_edges(self) -> int:
        """Number of edges with at least one foreign end."""
        count = self.own.numel()
        ends = torch.repeat_interleave(self.block.indptr[1:] - self.block.indptr[:-1])
        return int(((self.block.sources >= count) | (ends >= count)).sum())


def cut_graph(shard: Shard) -> CutGraph:
    """The graph of the edges that this rank's part owns; the master of a vertex also gets its added self loop.

    Takes 40 bytes per edge of the part temporarily, and 4 bytes per edge of the graph if relations are counted.
    """
    partition, graph = shard.partition, shard.graph
    assert partition is not None and partition.edge_owner is not None, "a vertex-cut"
    own = partition.vertices_of(shard.part).numpy()
    edges = np.flatnonzero(partition.edge_owner.numpy() == shard.part)
    src = graph.indices.numpy()[edges]
    dst = np.searchsorted(graph.indptr.numpy(), edges, side="right").astype(src.dtype) - 1
    loops = own.astype(src.dtype) if shard.needs.self_loops else own[:0].astype(src.dtype)
    src, dst = np.concatenate((src, loops)), np.concatenate((dst, loops))

    src_ids, source_counts = _numbered(src, own, shard)
    dst_ids, destination_counts = _numbered(dst, own, shard)
    place = np.empty(graph.num_nodes, np.int32)
    place[dst_ids] = np.arange(dst_ids.size, dtype=np.int32)
    order = np.argsort(place[dst], kind="stable")  # a destination's edges stay in canonical order, its own loop last
    lengths = np.bincount(place[dst], minlength=dst_ids.size)
    place[src_ids] = np.arange(src_ids.size, dtype=np.int32)
    count = own.size
    block = Block(
        torch.from_numpy(np.concatenate(([0], np.cumsum(lengths)))),
        torch.from_numpy(place[src[order]]),
        torch.from_numpy(src_ids.astype(src.dtype)),
        int(dst_ids.size),
        in_degree=graph.in_degree[torch.from_numpy(dst_ids)] + int(shard.needs.self_loops),
        occurrence=_of_edges(graph.occurrence, edges, loops.size, order, needed=shard.needs.self_loops),
        edge_types=_of_edges(graph.edge_types, edges, loops.size, order, needed=False),
        in_relation_degree=_of_edges(_relation_degree(shard), edges, loops.size, order, needed=False),
        weight=_of_edges(graph.edge_weights, edges, loops.size, order, needed=False, loop=1),
        in_weight=None
        if graph.in_weight is None
        else graph.in_weight[torch.from_numpy(dst_ids)] + int(shard.needs.self_loops),
        other_dst_ids=torch.from_numpy(dst_ids.astype(src.dtype)),
    )
    return CutGraph(
        block,
        torch.from_numpy(own),
        block.src_ids[count:],
        torch.from_numpy(dst_ids[count:].astype(src.dtype)),
        source_counts,
        destination_counts,
    )


def _relation_degree(shard: Shard) -> Tensor | None:
    """Relation degrees `[E]` int32 from the whole graph, because a part does not hold all edges of a destination."""
    graph = shard.graph
    if not shard.needs.edge_types or graph.edge_types is None:
        return None
    return torch.from_numpy(count_alike(graph.indptr.numpy(), graph.edge_types.numpy()))


def _numbered(ends: np.ndarray, own: np.ndarray, shard: Shard) -> tuple[np.ndarray, tuple[int, ...]]:
    """`(ids, counts)`: own vertices, then the foreign vertices among `ends` by owner; and how many each rank owns.

    Foreign vertices of one owner are ascending.
    """
    owner, seen = shard.owner.numpy(), np.zeros(shard.graph.num_nodes, np.bool_)
    seen[ends] = True
    seen[own] = False
    foreign = np.flatnonzero(seen)
    foreign = foreign[np.argsort(owner[foreign], kind="stable")]
    return np.concatenate((own, foreign)), tuple(np.bincount(owner[foreign], minlength=shard.num_parts).tolist())


def _of_edges(
    values: Tensor | None, edges: np.ndarray, num_loops: int, order: np.ndarray, *, needed: bool, loop: int = -1
) -> Tensor | None:
    """The `values` of the block's edges, `loop` for added self loops.

    Without `values` it is None, or zeros if `needed`: then `loop` marks the added self loops.
    """
    if values is None and not needed:
        return None
    of_edges = np.zeros(edges.size, np.int32) if values is None else values.numpy()[edges]
    loops = np.full(num_loops, loop, of_edges.dtype)
    return torch.from_numpy(np.concatenate((of_edges, loops))[order])
