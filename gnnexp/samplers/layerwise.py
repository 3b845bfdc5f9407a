"""Samplers that work hop by hop, so that ranks can exchange vertices between two hops (GSplit, Algorithm 1)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.shard import BlockNeeds, Shard
from gnnexp.kernels.samplers.ordered import SecondLoop
from gnnexp.kernels.samplers.sample import append_self_loops, place_seeds, relabel_sources, take_or_missing
from gnnexp.samplers.base import Sampler, SamplerOptions
from gnnexp.samplers.vertex_map import VertexMap, VertexMaps

if TYPE_CHECKING:
    from gnnexp.samplers.device_hops import DeviceTopology

OF_EDGES = ("occurrence", "edge_types", "weight", "scale")


class Neighbours(NamedTuple):
    """The edges that a frontier drew, by original ids, without added self loops.

    Attributes:
        indptr: `[D + 1]` int64, edges of frontier vertex i are `indptr[i]:indptr[i + 1]`.
        ids: `[E]` source of each edge, in the dtype of the graph's `indices`.
        occurrence: `[E]` int32 0-based index among parallel edges; None if the graph has none or no model needs it.
        edge_types: `[E]` int32 or None.
        weight: `[E]` float32, or None if the graph has no weights.
        scale: `[E]` float32 (`Block.scale`) from samplers whose `scales` is True, else None.
    """

    indptr: Tensor
    ids: Tensor
    occurrence: Tensor | None = None
    edge_types: Tensor | None = None
    weight: Tensor | None = None
    scale: Tensor | None = None

    @property
    def of_edges(self) -> dict[str, Any]:
        """Data of the edges without their ends, by field; fields that are None are left out."""
        return {name: values for name, values in self._asdict().items() if name in OF_EDGES and values is not None}


class LayerSamplerOptions(SamplerOptions):
    """The options of a sampler that draws one hop at a time."""

    @abstractmethod
    def make(self) -> LayerSampler:
        """The sampler of a rank."""


class LayerSampler(Sampler):
    """A sampler that draws one hop at a time: a subclass implements `sample_layer`, and `sample` calls it.

    A frontier vertex is sampled on a rank that has its in-edges. So this works on the whole graph, on a part of it
    (`sampler.topology=partitioned`), and split over ranks (`paradigm=split_parallel`).

    Attributes:
        options: the options that were chosen.
        device_topology: the topology of this rank on its GPU, if batches are made there, else None; set by `setup`.
    """

    options: LayerSamplerOptions
    device_topology: DeviceTopology | None = None

    @abstractmethod
    def sample_layer(self, frontier: Tensor, hop: int, key: BatchKey) -> Neighbours:
        """The edges that each vertex of the frontier draws.

        Args:
            frontier: `[D]` original ids of vertices whose in-edges are on this rank; may be empty.
            hop: number of the hop, target hop first.
            key: key of the draws. The draws of a vertex in a hop must not depend on other vertices of the frontier.
        """

    def sample_placed(
        self, frontier: Tensor, hop: int, key: BatchKey, second_loop: Callable[[np.ndarray], SecondLoop]
    ) -> tuple[Neighbours, tuple[int, int]]:
        """The edges that each vertex of the frontier draws, with places instead of ids; and the loop's numbers.

        A sampler may draw and place at the same time, with several threads (`inside`).

        Args:
            frontier, hop, key: see `sample_layer`.
            second_loop: function that takes memory `[E]` int32 for the places of sources, and returns the loop that
                finds them.
        """
        drawn = self.sample_layer(frontier, hop, key)
        places = self.pool.empty((drawn.ids.numel(),), np.int32)
        counts = second_loop(places).run(drawn.ids.numpy())
        return drawn._replace(ids=torch.from_numpy(places)), counts

    def setup(self, shard: Shard, num_layers: int) -> None:
        """Store the graph of this rank (`topology_of`); a subclass that overrides this method must call it."""
        self._num_hops = len(self.options.hops(num_layers))
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
        """Context with the `Relabelling` of a batch, which turns the edges drawn in each hop into a block."""
        with self._maps.lent() as current:
            relabelled = MappedRelabelling(seeds, current)
            yield relabelled
            current.base = relabelled.end


class Relabelling(Protocol):
    """The vertices of a batch in order of first appearance; the sources of every hop are a prefix of them."""

    @property
    def ids(self) -> Tensor:
        """`[S]` original ids of the vertices so far."""

    def block(self, drawn: Neighbours, needs: BlockNeeds) -> Block:
        """The block of the edges that `ids` drew; adds their sources to `ids`."""


class MappedRelabelling:
    """Relabelling by a map of all vertices (second loop of FastSample's Algorithm 1)."""

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
        """`[S]` original ids of the vertices so far."""
        return self._ids

    @property
    def end(self) -> int:
        """A base that is larger than every entry of the map."""
        return self._base + self._ids.numel()

    def block(self, drawn: Neighbours, needs: BlockNeeds) -> Block:
        """The block of the edges that `ids` drew; adds their sources to `ids`."""
        count, total = self._ids.numel(), drawn.ids.numel()
        most = min(self._table.size, count + total)
        self._lent.check_room(most)
        room = np.empty(most + 1, drawn.ids.numpy().dtype)
        room[:count] = self._ids.numpy()
        sources = np.empty(total, np.int32)
        known = relabel_sources(drawn.ids.numpy(), self._table, self._base, room, count, sources)
        self._ids = torch.from_numpy(room[:known])
        return relabelled_block(drawn, torch.from_numpy(sources), self._ids, count, needs)


def relabelled_block(drawn: Neighbours, sources: Tensor, src_ids: Tensor, num_dst: int, needs: BlockNeeds) -> Block:
    """A block of drawn edges with relabelled sources, and with the self loops that the model adds.

    Args:
        drawn: all drawn edges of every destination.
        sources: `[E]` int32, position of each edge's source in `src_ids`.
        src_ids: `[S]` original ids, destinations first.
        num_dst: D.
        needs: data that the model needs in blocks.
    """
    indptr, of_edges = drawn.indptr, drawn.of_edges
    if needs.self_loops:
        places = np.arange(sources.numel())
        looped = append_self_loops(indptr.numpy(), sources.numpy(), places)
        indptr, sources = torch.from_numpy(looped[0]), torch.from_numpy(looped[1])
        of_edges = {name: values_of_edges(values, torch.from_numpy(looped[2])) for name, values in of_edges.items()}
    return replace(Block(indptr, sources, src_ids, num_dst, self_loops=needs.self_loops), **of_edges)


def values_of_edges(values: Tensor, positions: Tensor) -> Tensor:
    """`values[positions]`; at position -1 (an added self loop) the result is -1, for weights and scales 1."""
    if not values.is_floating_point():
        return torch.from_numpy(take_or_missing(values.numpy(), positions.numpy()))
    taken, is_edge = values.new_ones(positions.shape), positions >= 0
    taken[is_edge] = values[positions[is_edge]]
    return taken
