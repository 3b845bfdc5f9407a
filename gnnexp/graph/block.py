"""The bipartite graph of one layer, and the batch that a sampler hands to a paradigm."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from gnnexp.kernels.graph.edges import count_alike
from gnnexp.kernels.graph.transpose import transpose_csc


@dataclass(frozen=True, eq=False)
class Block:
    """One layer's graph in CSC form: for every destination the positions of its sources.

    Destinations are the first `num_dst` sources (as in DGL's blocks), unless `dst_positions` says where they are.

    Attributes:
        indptr: `[D + 1]` int64, edges of destination d are `indptr[d]:indptr[d + 1]`.
        sources: `[E]` int32, position of each edge's source in `src_ids`.
        src_ids: `[S]` original vertex ids (dtype of `Graph.indices`), unique.
        num_dst: D.
        in_degree: `[D]` int64, *complete* number of edges of the hop per destination, whatever part of them is here;
            None when all are here (then it is the difference of `indptr`).
        edge_ids: `[E]` int64, position of each edge in the graph's canonical order, -1 for a self loop that the
            sampler added; None when nothing needs it (no parallel edges, types or edge features).
        occurrence: `[E]` int32, the how-manieth parallel edge (src, dst, type) this is, -1 for an added self loop;
            None when the graph has no parallel edges.
        edge_types: `[E]` int32 or None.
        in_relation_degree: `[E]` int32, how many edges of the hop lead to the edge's destination with its type,
            *complete* as `in_degree` is; None when all are here.
        dst_positions: `[D]` int64, or None when the destinations come first.
        self_loops: whether the last edge of every destination is an added self loop (`add_self_loops`).
        other_dst_ids: `[D]` original ids of destinations that are not among the sources (vertex-cut), else None.
        static_weights: weights of its edges that depend on nothing else, kept by layers for as long as the block is.
    """

    indptr: Tensor
    sources: Tensor
    src_ids: Tensor
    num_dst: int
    in_degree: Tensor | None = None
    edge_ids: Tensor | None = None
    occurrence: Tensor | None = None
    edge_types: Tensor | None = None
    in_relation_degree: Tensor | None = None
    dst_positions: Tensor | None = None
    self_loops: bool = False
    other_dst_ids: Tensor | None = None
    static_weights: dict[Hashable, tuple[Tensor | None, Tensor | None]] = field(default_factory=dict, init=False)

    @property
    def num_src(self) -> int:
        """S: number of source vertices, destinations included."""
        return int(self.src_ids.numel())

    @property
    def num_edges(self) -> int:
        """E: number of edges held here."""
        return int(self.sources.numel())

    @cached_property
    def dst_ids(self) -> Tensor:
        """`[D]` original ids of the destinations."""
        if self.other_dst_ids is not None:
            return self.other_dst_ids
        return self.src_ids[: self.num_dst] if self.dst_positions is None else self.src_ids[self.dst_positions]

    @cached_property
    def degree(self) -> Tensor:
        """`[D]` int64, complete number of edges per destination (added self loops included)."""
        return self.in_degree if self.in_degree is not None else self.indptr[1:] - self.indptr[:-1]

    @property
    def relation_degree(self) -> Tensor:
        """`[E]` int32, complete number of edges to the destination of each edge that have its type; counted anew."""
        if self.in_relation_degree is not None:
            return self.in_relation_degree
        assert self.edge_types is not None and not self.self_loops, "added self loops have no type"
        if self.sources.is_cuda:
            kinds = destinations(self) * (1 << 32) + self.edge_types
            _, places, counts = torch.unique(kinds, return_inverse=True, return_counts=True)
            return torch.index_select(counts, 0, places).int()
        return torch.from_numpy(count_alike(self.indptr.numpy(), self.edge_types.numpy()))

    @cached_property
    def relations(self) -> Relations:
        """The same edges by relation; built once per block, and only for layers that ask."""
        return by_relation(self)

    @cached_property
    def transpose(self) -> Transpose:
        """The same edges by source; built once per block, and only where a backward pass needs it."""
        return transpose(self)

    def arrays(self) -> list[Tensor]:
        """What the block is made of, without its transpose."""
        held = (getattr(self, name) for name in _ARRAYS)
        return [array for array in held if array is not None]

    def nbytes(self) -> int:
        """Bytes of the block's own arrays (the topology share of a batch)."""
        return sum(array.numel() * array.element_size() for array in self.arrays())

    def to(self, device: torch.device) -> Block:
        """The same block on another device (itself where it is there already)."""
        if self.sources.device == device:
            return self
        moved = {name: getattr(self, name) for name in _ARRAYS}
        return replace(
            self, **{name: array.to(device, non_blocking=True) for name, array in moved.items() if array is not None}
        )


def without_edges(ids: Tensor) -> Block:
    """The vertices `ids` `[n]` alone."""
    indptr = torch.zeros(ids.numel() + 1, dtype=torch.int64)
    return Block(indptr, torch.empty(0, dtype=torch.int32), ids, ids.numel())


_ARRAYS = (
    "indptr", "sources", "src_ids", "in_degree", "edge_ids", "occurrence", "edge_types", "in_relation_degree",
    "dst_positions", "other_dst_ids",
)


def destinations(block: Block) -> Tensor:
    """`[E]` int64, the destination of each edge."""
    lengths = block.indptr[1:] - block.indptr[:-1]
    rows = torch.arange(block.num_dst, device=lengths.device)
    return torch.repeat_interleave(rows, lengths, output_size=block.num_edges)


@dataclass(frozen=True, eq=False)
class Transpose:
    """A block's edges sorted by source.

    Attributes:
        indptr: `[S + 1]` int64.
        destinations: `[E]` int32, the destination of each edge.
        edges: `[E]` int32 or int64, position of each edge in the block's own order (to look up its weight).
    """

    indptr: Tensor
    destinations: Tensor
    edges: Tensor

    def arrays(self) -> list[Tensor]:
        """What it is made of."""
        return [self.indptr, self.destinations, self.edges]


def transpose(block: Block) -> Transpose:
    """Sort the edges of `block` by source, ties in block order (deterministic), by counting."""
    if block.sources.is_cuda:
        edges = torch.argsort(block.sources, stable=True)
        counts = torch.bincount(block.sources, minlength=block.num_src)
        indptr = torch.cat((counts.new_zeros(1), counts.cumsum(0)))
        return Transpose(indptr, destinations(block)[edges].int(), edges)
    arrays = transpose_csc(block.indptr.numpy(), block.sources.numpy(), block.num_src)
    return Transpose(*(torch.from_numpy(array) for array in arrays))


@dataclass(frozen=True, eq=False)
class Relations:
    """A block's edges by *pair* of a relation and a destination with edges of it; P of them, by relation.

    Attributes:
        counts: pairs of every relation, up to the last one that has any.
        destinations: `[P]` int32.
        degree: `[P]` int32, complete number of edges.
        incoming: from the block's sources to the pairs.
        outgoing: from the pairs to the block's destinations; of each by relation.
    """

    counts: tuple[int, ...]
    destinations: Tensor
    degree: Tensor
    incoming: Block
    outgoing: Block


def by_relation(block: Block) -> Relations:
    """Sort the edges of a typed block twice by counting: by type, so that pairs lie together, then these back."""
    assert block.edge_types is not None and not block.self_loops, "added self loops have no type"
    num_relations = int(block.edge_types.max()) + 1 if block.num_edges else 0
    by_type = transpose(_plain(block.indptr, block.edge_types, num_relations))
    first = torch.ones(block.num_edges, dtype=torch.bool, device=block.sources.device)
    torch.ne(by_type.destinations[1:], by_type.destinations[:-1], out=first[1:])
    first[by_type.indptr[:-1][by_type.indptr[:-1] < block.num_edges]] = True
    starts = torch.nonzero(first).flatten()
    indptr = torch.cat((starts, starts.new_tensor([block.num_edges])))
    bounds = torch.searchsorted(starts, by_type.indptr)
    dst = by_type.destinations[starts]
    back = transpose(_plain(bounds, dst, block.num_dst))
    return Relations(
        tuple((bounds[1:] - bounds[:-1]).tolist()), dst,
        (indptr[1:] - indptr[:-1]).int() if block.in_relation_degree is None
        else block.in_relation_degree[by_type.edges[starts]],
        Block(indptr, block.sources[by_type.edges], block.src_ids, dst.numel()),
        _plain(back.indptr, back.edges.int(), dst.numel()),
    )


def _plain(indptr: Tensor, sources: Tensor, num_src: int) -> Block:
    """Topology whose vertices have no ids of their own."""
    return Block(indptr, sources, torch.arange(num_src, device=sources.device), indptr.numel() - 1)


@dataclass(frozen=True)
class BatchKey:
    """What a batch's randomness is keyed by: never a rank, unless `sampler.key=micro` asks for it.

    Attributes:
        seed: `seed` of the run.
        epoch: counted from 0.
        step: global batch of the epoch, counted from 0.
        micro: -1 when draws are shared in the global batch (`sampler.key=global`), else the micro-batch's number.
    """

    seed: int
    epoch: int
    step: int
    micro: int = -1


@dataclass(frozen=True, eq=False)
class Batch:
    """A sampled micro-batch.

    Attributes:
        targets: `[T]` original ids of this rank's targets; the first T sources of the last block.
        blocks: layer 1 (input side) first; `blocks[-1]` has the targets as destinations.
        key: key of the draws, dropout included.
        global_count: number of targets of the whole global batch, over all ranks.
    """

    targets: Tensor
    blocks: tuple[Block, ...]
    key: BatchKey
    global_count: int = field(default=0)

    @property
    def input_ids(self) -> Tensor:
        """`[S]` original ids of the vertices whose features the batch reads."""
        return self.blocks[0].src_ids

    def to(self, device: torch.device) -> Batch:
        """The same batch with its blocks on another device (itself where they are there already)."""
        if all(block.sources.device == device for block in self.blocks):
            return self
        return replace(self, blocks=tuple(block.to(device) for block in self.blocks))
