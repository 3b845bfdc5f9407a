"""The bipartite graph of one layer, and the batch that a sampler makes for a paradigm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gnnexp.graph.graph import weight_sums
from gnnexp.kernels.crossing import crossed
from gnnexp.kernels.graph.edges import count_alike
from gnnexp.kernels.graph.transpose import transpose_csc


@dataclass(frozen=True, eq=False)
class Block:
    """One layer's graph in CSC form: the positions of the sources of every destination.

    Destinations are the first `num_dst` sources, as in DGL's blocks, unless `dst_positions` gives other positions.

    Attributes:
        indptr: `[D + 1]` int64, edges of destination d are `indptr[d]:indptr[d + 1]`.
        sources: `[E]` int32, position of each edge's source in `src_ids`.
        src_ids: `[S]` original vertex ids (dtype of `Graph.indices`), unique.
        num_dst: D.
        in_degree: `[D]` int64, *complete* number of edges of the hop per destination, of which the block may have only
            some. None if it has all: then the differences of `indptr` are these numbers.
        edge_ids: `[E]` int64, position of each edge in the graph's canonical order, -1 for an added self loop. None if
            no component needs it: no parallel edges, types or edge features.
        occurrence: `[E]` int32, 0-based index among parallel edges with the same (src, dst, type), -1 for an added self
            loop; None if the graph has no parallel edges.
        edge_types: `[E]` int32 or None.
        in_relation_degree: `[E]` int32, *complete* number of the hop's edges with the destination and type of the edge;
            None if the block has all edges of its destinations.
        weight: `[E]` float32 weights of the graph, 1 for an added self loop; None if the graph has no weights.
        in_weight: `[D]` float64, *complete* sum of the weights of the hop's edges per destination; None if the block
            has all edges of its destinations.
        scale: `[E]` float32 factors by which a sampler multiplies messages (GraphSAINT, BNS-GCN), 1 for an added self
            loop, or None. Factors do not change degrees, weighted sums of edges, or masses.
        dst_positions: `[D]` int64 positions of the destinations in `src_ids`, None if destinations are first.
        self_loops: whether the last edge of every destination is an added self loop (`add_self_loops`).
        other_dst_ids: `[D]` original ids of the destinations if they are not the sources' own (vertex-cut), else None.
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
    weight: Tensor | None = None
    in_weight: Tensor | None = None
    scale: Tensor | None = None
    dst_positions: Tensor | None = None
    self_loops: bool = False
    other_dst_ids: Tensor | None = None

    @property
    def num_src(self) -> int:
        """S: number of source vertices, including destinations."""
        return int(self.src_ids.numel())

    @property
    def num_edges(self) -> int:
        """E: number of edges of the block."""
        return int(self.sources.numel())

    @cached_property
    def dst_ids(self) -> Tensor:
        """`[D]` original ids of the destinations."""
        if self.other_dst_ids is not None:
            return self.other_dst_ids
        return self.src_ids[: self.num_dst] if self.dst_positions is None else self.src_ids[self.dst_positions]

    @property
    def dst_places(self) -> slice | Tensor:
        """Positions of the destinations in `src_ids`."""
        return slice(self.num_dst) if self.dst_positions is None else self.dst_positions

    @cached_property
    def degree(self) -> Tensor:
        """`[D]` int64, complete number of edges per destination, including added self loops."""
        return self.in_degree if self.in_degree is not None else self.indptr[1:] - self.indptr[:-1]

    @cached_property
    def total_weight(self) -> Tensor | None:
        """`[D]` float64, complete sum of weights per destination; None without weights."""
        if self.weight is None or self.in_weight is not None:
            return self.in_weight
        return weight_sums(self.indptr, self.weight)

    @property
    def relation_degree(self) -> Tensor:
        """`[E]` int32, complete number of edges with the destination and type of each edge; counted in every call."""
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
        """The same edges by relation; built once per block, when a layer first needs it."""
        return by_relation(self)

    @cached_property
    def transpose(self) -> Transpose:
        """The same edges by source, in block order for each source; built once per block, where the block is.

        On a GPU the edges are sorted. No operation waits for the GPU, as counting would.
        """
        if self.sources.is_cuda:
            ordered, edges = torch.sort(self.sources, stable=True)
            rows = torch.arange(self.num_src + 1, dtype=ordered.dtype, device=ordered.device)
            indptr = torch.searchsorted(ordered, rows)
            following = torch.searchsorted(self.indptr, edges, right=True, out_int32=True)  # the destination after
            return Transpose(indptr, following.sub_(1), edges)
        arrays = transpose_csc(self.indptr.numpy(), self.sources.numpy(), self.num_src)
        return Transpose(*(torch.from_numpy(array) for array in arrays))

    def of_edges(self, edges: Tensor | slice) -> dict[str, Any]:
        """The data of some edges, without their ends, by field of `Block`: for a block of these edges."""
        held = {name: getattr(self, name) for name in _OF_EDGES}
        return {name: None if values is None else values[edges] for name, values in held.items()}

    def arrays(self) -> list[Tensor]:
        """The arrays of the block, without its transpose."""
        held = (getattr(self, name) for name in _ARRAYS)
        return [array for array in held if array is not None]

    def nbytes(self) -> int:
        """Bytes of the block's arrays, without its transpose: its part of a batch's topology."""
        return sum(array.nbytes for array in self.arrays())

    def to(self, device: torch.device) -> Block:
        """The same block on another device; the block itself if it is on that device."""
        return _moved([self], device)[0]


def _moved(blocks: Sequence[Block], device: torch.device) -> list[Block]:
    """Blocks on another device; those that are on it stay as they are. To a GPU, one copy carries all of them."""
    named = {
        (place, name): array
        for place, block in enumerate(blocks)
        if not _is_on(block, device)
        for name in _ARRAYS
        if (array := getattr(block, name)) is not None
    }
    arrays = list(named.values())
    moved = crossed(arrays, device) if device.type == "cuda" else [array.to(device) for array in arrays]
    replaced: list[dict[str, Any]] = [{} for _ in blocks]
    for (place, name), array in zip(named, moved, strict=True):
        replaced[place][name] = array
    return [replace(block, **new) if new else block for block, new in zip(blocks, replaced, strict=True)]


def _is_on(block: Block, device: torch.device) -> bool:
    """Whether a block is on a device; `cuda` without a number is any GPU."""
    there = block.sources.device
    return there.type == device.type and device.index in (None, there.index)


def without_edges(ids: Tensor) -> Block:
    """A block of the vertices `ids` `[n]` without edges."""
    indptr = torch.zeros(ids.numel() + 1, dtype=torch.int64)
    return Block(indptr, torch.empty(0, dtype=torch.int32), ids, ids.numel())


_OF_EDGES = ("edge_ids", "occurrence", "edge_types", "in_relation_degree", "weight", "scale")
_ARRAYS = ("indptr", "sources", "src_ids", "in_degree", *_OF_EDGES, "in_weight", "dst_positions", "other_dst_ids")


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
        edges: `[E]` int32 or int64, position of each edge in the block's order (to look up its weight).
    """

    indptr: Tensor
    destinations: Tensor
    edges: Tensor

    def arrays(self) -> list[Tensor]:
        """The arrays of the transpose."""
        return [self.indptr, self.destinations, self.edges]


@dataclass(frozen=True, eq=False)
class Relations:
    """A block's edges by *pair*: a relation and a destination that has edges of this relation; P pairs, by relation.

    Attributes:
        counts: number of pairs of every relation, up to the last relation with edges.
        destinations: `[P]` int32 destination of each pair.
        degree: `[P]` int32, complete number of edges of each pair.
        incoming: edges from the block's sources to the pairs.
        outgoing: edges from the pairs to the block's destinations; the edges of a destination are ordered by relation.
    """

    counts: tuple[int, ...]
    destinations: Tensor
    degree: Tensor
    incoming: Block
    outgoing: Block


def by_relation(block: Block) -> Relations:
    """Sort the edges of a typed block by type, so that a pair is contiguous; then sort the pairs by destination."""
    assert block.edge_types is not None and not block.self_loops, "added self loops have no type"
    num_relations = int(block.edge_types.max()) + 1 if block.num_edges else 0
    by_type = _plain(block.indptr, block.edge_types, num_relations).transpose
    first = torch.ones(block.num_edges, dtype=torch.bool, device=block.sources.device)
    torch.ne(by_type.destinations[1:], by_type.destinations[:-1], out=first[1:])
    first[by_type.indptr[:-1][by_type.indptr[:-1] < block.num_edges]] = True
    starts = torch.nonzero(first).flatten()
    indptr = torch.cat((starts, starts.new_tensor([block.num_edges])))
    bounds = torch.searchsorted(starts, by_type.indptr)
    dst = by_type.destinations[starts]
    back = _plain(bounds, dst, block.num_dst).transpose
    return Relations(
        tuple((bounds[1:] - bounds[:-1]).tolist()),
        dst,
        (indptr[1:] - indptr[:-1]).int()
        if block.in_relation_degree is None
        else block.in_relation_degree[by_type.edges[starts]],
        Block(
            indptr,
            block.sources[by_type.edges],
            block.src_ids,
            dst.numel(),
            weight=None if block.weight is None else block.weight[by_type.edges],
            scale=None if block.scale is None else block.scale[by_type.edges],
        ),
        _plain(back.indptr, back.edges.int(), dst.numel()),
    )


def _plain(indptr: Tensor, sources: Tensor, num_src: int) -> Block:
    """A block whose vertices are numbered from 0."""
    return Block(indptr, sources, torch.arange(num_src, device=sources.device), indptr.numel() - 1)


@dataclass(frozen=True)
class BatchKey:
    """The key of a batch's random draws. It contains no rank, except with `sampler.key=micro`.

    Attributes:
        seed: `seed` of the run.
        epoch: number of the epoch, from 0.
        step: number of the global batch in the epoch, from 0.
        micro: -1 if the global batch shares its draws (`sampler.key=global`), else the number of the micro-batch.
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
        blocks: blocks of all layers, layer 1 (input side) first; the targets are the destinations of `blocks[-1]`.
        key: key of all draws, also of dropout.
        global_count: number of targets of the whole global batch, over all ranks.
        host_ids: the input vertices that the rank reads, on the host, if the blocks were made on a GPU; else None.
        received_bytes: bytes that other ranks sent for blocks that were made on a GPU, and that were copied there.
        far_bytes: bytes of topology that kernels of a GPU read in host memory; None if no topology is there for them.
    """

    targets: Tensor
    blocks: tuple[Block, ...]
    key: BatchKey
    global_count: int = field(default=0)
    host_ids: Tensor | None = field(default=None, kw_only=True)
    received_bytes: int = field(default=0, kw_only=True)
    far_bytes: int | None = field(default=None, kw_only=True)

    @property
    def input_ids(self) -> Tensor:
        """`[S]` original ids, on the host, of the vertices whose features the batch reads."""
        return self.blocks[0].src_ids if self.host_ids is None else self.host_ids

    @property
    def crossing_bytes(self) -> int:
        """Bytes that are copied to the device before the blocks are there: the blocks, or what they are made from.

        For a batch that is made on a GPU, these are 8 bytes for each target and for the key of each hop, and what
        other ranks sent. Topology that kernels read in host memory is added.
        """
        if self.host_ids is None:
            return sum(block.nbytes() for block in self.blocks)
        return 8 * (self.targets.numel() + len(self.blocks)) + self.received_bytes + (self.far_bytes or 0)

    def to(self, device: torch.device) -> Batch:
        """The same batch with its blocks on another device; the batch itself if they are on that device."""
        if all(block.sources.device == device for block in self.blocks):
            return self
        return replace(self, blocks=tuple(_moved(self.blocks, device)))
