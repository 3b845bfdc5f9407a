"""Remove the edges of predicted links from blocks, because such an edge reveals that the link exists.

Removed edges are not replaced by new draws: degrees are those of the remaining edges.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.kernels.graph.links import mark_kept_edges

_NO_TYPES = np.empty(0, np.int32)


@dataclass(frozen=True, eq=False)
class ExcludedEdges:
    """Edges to remove, ascending by (destination, source, type).

    Attributes:
        destinations, sources: `[m]` int64, original ids.
        types: `[m]` int32; empty: edges of any type are removed.
    """

    destinations: np.ndarray
    sources: np.ndarray
    types: np.ndarray


def excluded(links: Tensor, num_relations_of_links: int, num_relations_of_graph: int) -> ExcludedEdges:
    """The edges that reveal `links` `[t, 2 | 3]`: from head to tail, and from tail to head.

    Let R be the number of relations of the links. If the graph has more than R relations, they include the inverse
    relations, and the edge from tail to head of a link with relation r has type r + R. Otherwise it has type r.
    """
    heads, tails = links[:, 0].numpy(), links[:, -1].numpy()
    destinations, sources = np.concatenate([tails, heads]), np.concatenate([heads, tails])
    if links.shape[1] == 2 or num_relations_of_graph == 0:
        order = np.lexsort((sources, destinations))
        return ExcludedEdges(destinations[order], sources[order], _NO_TYPES)
    relation = links[:, 1].numpy()
    inverse = relation + (num_relations_of_links if num_relations_of_graph > num_relations_of_links else 0)
    types = np.concatenate([relation, inverse]).astype(np.int32)
    order = np.lexsort((types, sources, destinations))
    return ExcludedEdges(destinations[order], sources[order], types[order])


def without(block: Block, pairs: ExcludedEdges) -> Block:
    """`block` without the edges `pairs` and their parallel edges; all vertices and added self loops stay.

    Degrees and relation degrees are those of the remaining edges.

    Args:
        block: a block on the host with all edges of its destinations; if it has no types, edges of any type are
            removed.
        pairs: the edges to remove.
    """
    types = _NO_TYPES if block.edge_types is None else block.edge_types.numpy()
    kept, indptr = np.empty(block.num_edges, np.bool_), np.empty(block.num_dst + 1, np.int64)
    count = mark_kept_edges(
        block.indptr.numpy(),
        block.sources.numpy(),
        types,
        block.src_ids.numpy(),
        block.dst_ids.numpy(),
        block.self_loops,
        pairs.destinations,
        pairs.sources,
        pairs.types,
        kept,
        indptr,
    )
    if count == block.num_edges:
        return block
    assert block.in_degree is None or block.in_degree.equal(block.indptr.diff()), "the block lacks in-edges"
    edges = torch.from_numpy(kept)
    return replace(
        block,
        indptr=torch.from_numpy(indptr),
        sources=block.sources[edges],
        in_degree=None,
        in_weight=None,
        **{**block.of_edges(edges), "in_relation_degree": None},
    )
