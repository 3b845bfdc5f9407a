"""Blocks without the links that are being predicted: a link must not be told by the edge that it is.

What is left out is counted as if it had never been drawn: the others are not drawn anew in its place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.kernels.graph.links import kept_edges

_NO_TYPES = np.empty(0, np.int32)


@dataclass(frozen=True, eq=False)
class Excluded:
    """Edges to leave out, ascending by (destination, source, type).

    Attributes:
        destinations, sources: `[m]` int64, original ids.
        types: `[m]` int32; empty: edges of any type.
    """

    destinations: np.ndarray
    sources: np.ndarray
    types: np.ndarray


def excluded(links: Tensor, num_relations_of_links: int, num_relations_of_graph: int) -> Excluded:
    """The edges that tell `links` `[t, 2 | 3]`: head to tail, and back.

    Back, a link of relation r is an edge of type r + R where the graph has more than the R relations of the links: its
    inverse relations; else of type r.
    """
    heads, tails = links[:, 0].numpy(), links[:, -1].numpy()
    destinations, sources = np.concatenate([tails, heads]), np.concatenate([heads, tails])
    if links.shape[1] == 2 or num_relations_of_graph == 0:
        order = np.lexsort((sources, destinations))
        return Excluded(destinations[order], sources[order], _NO_TYPES)
    relation = links[:, 1].numpy()
    inverse = relation + (num_relations_of_links if num_relations_of_graph > num_relations_of_links else 0)
    types = np.concatenate([relation, inverse]).astype(np.int32)
    order = np.lexsort((types, sources, destinations))
    return Excluded(destinations[order], sources[order], types[order])


def without(block: Block, pairs: Excluded) -> Block:
    """`block` without these edges, parallel ones included; its vertices stay where they are, and added self loops too.

    Args:
        block: on the host, with all edges of its destinations: degrees, of relations too, are those that are left. Of
            a block without types, edges of any type go.
        pairs: what to leave out.
    """
    types = _NO_TYPES if block.edge_types is None else block.edge_types.numpy()
    kept, indptr = np.empty(block.num_edges, np.bool_), np.empty(block.num_dst + 1, np.int64)
    count = kept_edges(
        block.indptr.numpy(), block.sources.numpy(), types, block.src_ids.numpy(), block.dst_ids.numpy(),
        block.self_loops, pairs.destinations, pairs.sources, pairs.types, kept, indptr,
    )
    if count == block.num_edges:
        return block
    assert block.in_degree is None or block.in_degree.equal(block.indptr.diff()), "edges of its vertices are elsewhere"
    edges = torch.from_numpy(kept)

    def of_edges(values: Tensor | None) -> Tensor | None:
        return None if values is None else values[edges]

    return replace(
        block, indptr=torch.from_numpy(indptr), sources=block.sources[edges], in_degree=None, in_relation_degree=None,
        edge_ids=of_edges(block.edge_ids), occurrence=of_edges(block.occurrence), edge_types=of_edges(block.edge_types),
    )
