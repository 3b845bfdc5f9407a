"""Samplers that go hop by hop: the seam at which paradigms and partitioned topologies cut in (GSplit, Algorithm 1)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.shard import BlockNeeds, Shard
from gnnexp.kernels.samplers.sample import append_self_loops, place_seeds, relabel, take_or_missing
from gnnexp.samplers.base import Sampler
from gnnexp.samplers.vertex_map import VertexMap, VertexMaps


class Neighbours(NamedTuple):
    """The edges that a frontier drew, by original ids; self loops that a model adds are not among them.

    Attributes:
        indptr: `[D + 1]` int64, edges of frontier vertex i are `indptr[i]:indptr[i + 1]`.
        ids: `[E]` source of each edge, dtype of the graph's `indices`.
        occurrence: `[E]` int32, the how-manieth parallel edge; None when the graph has none or nobody needs it.
        edge_types: `[E]` int32 or None.
    """

    indptr: Tensor
    ids: Tensor
    occurrence: Tensor | None = None
    edge_types: Tensor | None = None


class LayerSampler(Sampler):
    """A sampler whose hops can be drawn one by one; all others follow from `sample_layer`.

    It runs wherever a frontier vertex's in-edges are: on all of the graph, on a part of it
    (`sampler.topology=partitioned`), and split over ranks (`paradigm=split_parallel`).
    """

    @abstractmethod
    def sample_layer(self, frontier: Tensor, hop: int, key: BatchKey) -> Neighbours:
        """What each vertex of the frontier draws.

        Args:
            frontier: `[D]` original ids, whose in-edges are here; may be empty.
            hop: number of the hop, target hop first.
            key: what the draws are keyed by; the same vertex in the same hop must draw the same, whoever else is there.
        """

    def setup(self, shard: Shard, num_layers: int) -> None:
        """Take the graph of this rank (`topology_of`); subclasses build on this."""
        self._num_hops = len(self.hops(num_layers))
        self._needs, ids = shard.needs, np.empty(0, shard.graph.indices.numpy().dtype)
        self._maps = VertexMaps(lambda: VertexMap(np.zeros(shard.graph.num_nodes, np.int32), ids))

    def sample(self, seeds: Tensor, key: BatchKey, global_count: int = 0) -> Batch:
        """The blocks of one batch, hop by hop."""
        with self.relabelling(seeds) as vertices:
            blocks = [
                vertices.block(self.sample_layer(vertices.ids, hop, key), self._needs) for hop in range(self._num_hops)
            ]
        return Batch(seeds, tuple(reversed(blocks)), key, global_count)

    @contextmanager
    def relabelling(self, seeds: Tensor) -> Iterator[Relabelling]:
        """From drawn edges to the blocks of a batch, for batches that are sampled hop by hop."""
        with self._maps.lent() as current:
            made = MappedRelabelling(seeds, current)
            yield made
            current.base = made.end


class Relabelling(Protocol):
    """The vertices of a batch in order of first appearance, of which every hop's sources are a prefix."""

    @property
    def ids(self) -> Tensor:
        """`[S]` original ids so far."""

    def block(self, found: Neighbours, needs: BlockNeeds) -> Block:
        """The block of the edges that `ids` drew; their sources join."""


class MappedRelabelling:
    """Relabelling through a map of all vertices (second loop of FastSample's Algorithm 1)."""

    def __init__(self, seeds: Tensor, lent: VertexMap) -> None:
        self._lent, self._table, self._base = lent, lent.table, lent.base
        self._ids = seeds.clone().contiguous()
        count = seeds.numel()
        placed = place_seeds(seeds.contiguous().numpy(), self._table, self._base, self._ids.numpy())
        if placed < count:
            outside = f"is repeated or not in 0..{self._table.size - 1}"
            raise ValueError(f"seed {int(seeds[placed])} (number {placed}) {outside}")

    @property
    def ids(self) -> Tensor:
        """`[S]` original ids so far."""
        return self._ids

    @property
    def end(self) -> int:
        """Above every entry of the map."""
        return self._base + self._ids.numel()

    def block(self, found: Neighbours, needs: BlockNeeds) -> Block:
        """The block of the edges that `ids` drew; their sources join."""
        count, total = self._ids.numel(), found.ids.numel()
        most = min(self._table.size, count + total)
        self._lent.check_room(most)
        room = np.empty(most + 1, found.ids.numpy().dtype)
        room[:count] = self._ids.numpy()
        sources = np.empty(total, np.int32)
        known = relabel(found.ids.numpy(), self._table, self._base, room, count, sources)
        self._ids = torch.from_numpy(room[:known])
        return make_block(found, torch.from_numpy(sources), self._ids, count, needs)


def make_block(found: Neighbours, sources: Tensor, src_ids: Tensor, num_dst: int, needs: BlockNeeds) -> Block:
    """A block of drawn edges whose sources are relabelled, with the self loops that the model adds.

    Args:
        found: the edges, complete for every destination.
        sources: `[E]` int32, position of each edge's source in `src_ids`.
        src_ids: `[S]` original ids, destinations first.
        num_dst: D.
        needs: of the model.
    """
    occurrence, edge_types, indptr = found.occurrence, found.edge_types, found.indptr
    if needs.self_loops:
        places = np.arange(sources.numel())
        looped = append_self_loops(indptr.numpy(), sources.numpy(), places)
        indptr, sources = torch.from_numpy(looped[0]), torch.from_numpy(looped[1])
        occurrence, edge_types = (
            None if kind is None else torch.from_numpy(take_or_missing(kind.numpy(), looped[2]))
            for kind in (occurrence, edge_types)
        )
    return Block(
        indptr, sources, src_ids, num_dst, occurrence=occurrence, edge_types=edge_types, self_loops=needs.self_loops
    )

