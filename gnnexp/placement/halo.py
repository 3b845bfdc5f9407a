"""The graph of a rank in full-graph training: for every layer, all in-edges of its vertices, and foreign sources last.

    layer L:  destinations = own vertices
    layer l:  sources = destinations | vertices that are computed here for layer l (cached) | fetched from their owners

If no vertex is cached, this is NeutronStar's DepComm. If all are cached, it is DepCache (the L-hop halo). Any choice in
between is NeutronStar's hybrid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.shuffle import ShuffleIndex
from gnnexp.graph.block import Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import Shard
from gnnexp.samplers.expansion import Expansion

Cached = Callable[[int, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class RankLayer:
    """One layer of one rank.

    Attributes:
        block: block of the layer. Destinations are the first sources. The first `num_local` sources are on this rank;
            fetched sources follow, by owner and ascending.
        num_local: number of source rows that are on this rank before an exchange.
        fetched: number of rows that come from each rank.
    """

    block: Block
    num_local: int
    fetched: tuple[int, ...]

    @property
    def wanted(self) -> Tensor:
        """`[n]` original ids of the fetched vertices."""
        return self.block.src_ids[self.num_local :]


def levels(shard: Shard, own: Tensor, num_layers: int, cached: Cached) -> tuple[RankLayer, ...]:
    """The layers of a rank, input side first; equal layers are the same object.

    Args:
        shard: topology and owners, and the data that blocks need.
        own: `[n]` vertices that this rank owns, ascending.
        num_layers: L.
        cached: function from `(layer from 0, ids [m])` of foreign sources to `[m]` bool: whether the rank has the row
            without an exchange.
    """
    graph = shard.graph
    expansion = Expansion(graph, shard.needs, (-1,))
    layers: list[RankLayer] = []
    destinations = own
    for layer in reversed(range(num_layers)):
        if layers and layers[-1].num_local == layers[-1].block.num_dst and _is_same(cached, layer, layers[-1]):
            layers.append(layers[-1])
            continue
        layers.append(_level(expansion, graph, shard, destinations, partial(cached, layer)))
        destinations = layers[-1].block.src_ids[: layers[-1].num_local]
    return tuple(reversed(layers))


def _is_same(cached: Cached, layer: int, above: RankLayer) -> bool:
    """Whether a layer caches no vertex. Then it equals the layer `above`, which caches no vertex either."""
    return not bool(cached(layer, above.wanted).any())


def _level(
    expansion: Expansion, graph: Graph, shard: Shard, destinations: Tensor, cached: Callable[[Tensor], Tensor]
) -> RankLayer:
    (block,) = expansion.blocks(destinations, (0,))
    count = block.num_dst
    new = block.src_ids[count:]
    owner = shard.owner[new.long()].long()
    local = cached(new)
    # Order of new sources: cached vertices, then fetched vertices by owner; ids ascend within each group.
    group = torch.where(local, -1, owner)
    order = torch.argsort(group * graph.num_nodes + new.long())
    place = torch.empty(block.num_src, dtype=torch.int32)
    place[:count] = torch.arange(count, dtype=torch.int32)
    place[count + order] = torch.arange(count, block.num_src, dtype=torch.int32)
    counts = torch.bincount(owner[~local], minlength=shard.num_parts).tolist()
    ordered = replace(block, sources=place[block.sources], src_ids=torch.cat((block.src_ids[:count], new[order])))
    return RankLayer(ordered, count + int(local.sum()), tuple(counts))


def everyone(level: RankLayer, shard: Shard) -> RankLayer:
    """The level with *all* foreign vertices fetched, read or not: a broadcast of whole parts brings all of them."""
    block, count = level.block, level.num_local
    owner = shard.owner.long()
    ids = torch.arange(shard.graph.num_nodes, dtype=block.src_ids.dtype)
    foreign = ids[owner != shard.part]
    foreign = foreign[torch.argsort(owner[foreign.long()], stable=True)]
    position = torch.empty(shard.graph.num_nodes, dtype=torch.int32)
    src_ids = torch.cat((block.src_ids[:count], foreign))
    position[src_ids.long()] = torch.arange(src_ids.numel(), dtype=torch.int32)
    counts = torch.bincount(owner[foreign.long()], minlength=shard.num_parts).tolist()
    sources = position[block.src_ids.long()][block.sources]
    return RankLayer(replace(block, sources=sources, src_ids=src_ids), count, tuple(counts))


def shuffle_index(
    wanted: Tensor, counts: Sequence[int], num_local: int, own: Tensor, comm: Communicator
) -> ShuffleIndex:
    """Send every owner the ids of the rows that this rank reads; all ranks call this once.

    Args:
        wanted: `[n]` ids of foreign vertices, by owner.
        counts: number of these vertices that each rank owns.
        num_local: number of rows on this rank.
        own: ids of the vertices that this rank owns, ascending; they are its first rows.
        comm: communicator of all ranks.
    """
    requests, asked = comm.counted_all_to_all(wanted, counts, "frontier")
    return ShuffleIndex(torch.searchsorted(own, requests.long()), tuple(asked), tuple(counts), num_local)
