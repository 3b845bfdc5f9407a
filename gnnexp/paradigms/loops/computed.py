"""What a rank computes in a step, in edges and vertices: a value that trainers record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gnnexp.graph.block import Batch, Block

# What layers in chunks count in addition: edges that backward runs forward again, added at the end of an epoch.
AGAIN: Mapping[str, int] = MappingProxyType({"edges_computed_again": 0})


@dataclass(frozen=True)
class Computed:
    """Edges and vertices that a rank computes in one step, one number for each layer.

    Attributes:
        edges: edges of every layer.
        vertices: destinations of every layer.
        work: further counts of the step by name (`edges_computed`).
        cross_edges: edges of every layer that have a foreign source; empty if a rank has all sources.
    """

    edges: Sequence[int]
    vertices: Sequence[int]
    work: Mapping[str, int]
    cross_edges: Sequence[int] = ()

    @classmethod
    def of_sampled(cls, batch: Batch, cross_edges: Sequence[int] = ()) -> Computed:
        """A sampled batch. Self loops that the model adds are computed, but not sampled."""
        blocks = batch.blocks
        edges = [block.num_edges - block.num_dst * block.self_loops for block in blocks]
        work = {"edges_sampled": sum(edges), "edges_computed": sum(block.num_edges for block in blocks)}
        return cls(edges, [block.num_dst for block in blocks], work, cross_edges)

    @classmethod
    def of_whole(cls, blocks: Sequence[Block], num_own: int | None, cross_edges: Sequence[int] = ()) -> Computed:
        """Blocks of the whole graph. Edges into destinations that other ranks own are redundant.

        Args:
            blocks: block of every layer, whose first destinations are the own vertices.
            num_own: number of vertices that this rank owns; None: every edge belongs to one rank.
            cross_edges: see the attribute.
        """
        edges = [block.num_edges for block in blocks]
        redundant = 0 if num_own is None else sum(block.num_edges - int(block.indptr[num_own]) for block in blocks)
        work = {"edges_computed": sum(edges), "edges_redundant": redundant}
        return cls(edges, [block.num_dst for block in blocks], work, cross_edges)
