"""The graph of a rank in full-graph training: for its vertices all in-edges, for every layer; foreign sources last.

    layer L:  destinations = own vertices
    layer l:  sources = destinations | vertices that are computed here for layer l (cached) | fetched from their owners

With nothing cached that is NeutronStar's DepComm, with everything cached its DepCache (the L-hop halo), and any choice
in between its hybrid.
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
        block: destinations are the first sources; the first `num_local` sources are here, then come those fetched, by
            owner, ascending.
        num_local: rows that are here before an exchange.
        fetched: per rank, how many rows come from it.
    """

    block: Block
    num_local: int
    fetched: tuple[int, ...]

    @property
    def wanted(self) -> Tensor:
        """`[n]` original ids of the fetched vertices."""
        return self.block.src_ids[self.num_local :]


def levels(shard: Shard, own: Tensor, num_layers: int, cached: Cached) -> tuple[RankLayer, ...]:
    """The layers of a rank, input side first; layers that are alike are the same object.

    Args:
        shard: topology, what blocks must carry, and who owns what.
        own: `[n]` vertices that this rank owns, ascending.
        num_layers: L.
        cached: which foreign sources of a layer are here without an exchange: `(layer from 0, ids [m])` to `[m]` bool.
    """
    graph = shard.graph
    expansion = Expansion(graph, shard.needs, (-1,))
    found: list[RankLayer] = []
    destinations = own
    for layer in reversed(range(num_layers)):
        if found and found[-1].num_local == found[-1].block.num_dst and _same(cached, layer, found[-1]):
            found.append(found[-1])
            continue
        found.append(_level(expansion, graph, shard, destinations, partial(cached, layer)))
        destinations = found[-1].block.src_ids[: found[-1].num_local]
    return tuple(reversed(found))


def _same(cached: Cached, layer: int, above: RankLayer) -> bool:
    """Whether the layer below one that caches nothing caches nothing either: then it is the same graph."""
    return not bool(cached(layer, above.wanted).any())


def _level(
    expansion: Expansion, graph: Graph, shard: Shard, destinations: Tensor, cached: Callable[[Tensor], Tensor]
) -> RankLayer:
    (block,) = expansion.blocks(destinations, (0,))
    count = block.num_dst
    new = block.src_ids[count:]
    owner = shard.owner[new.long()].long()
    local = cached(new)
    # Stable order: cached ones, then fetched ones by owner; ascending ids inside.
    group = torch.where(local, -1, owner)
    order = torch.argsort(group * graph.num_nodes + new.long())
    place = torch.empty(block.num_src, dtype=torch.int32)
    place[:count] = torch.arange(count, dtype=torch.int32)
    place[count + order] = torch.arange(count, block.num_src, dtype=torch.int32)
    counts = torch.bincount(owner[~local], minlength=shard.num_parts).tolist()
    ordered = replace(
        block, sources=place[block.sources], src_ids=torch.cat((block.src_ids[:count], new[order]))
    )
    return RankLayer(ordered, count + int(local.sum()), tuple(counts))


def everyone(level: RankLayer, shard: Shard) -> RankLayer:
    """The level with *all* foreign vertices fetched, asked for or not, as a broadcast of whole parts brings them."""
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
    """Tell every owner which of its rows are wanted; called by all ranks, once.

    Args:
        wanted: `[n]` ids of foreign vertices, by owner.
        counts: how many of them every rank owns.
        num_local: rows that are here.
        own: ids of the vertices that this rank owns, ascending: its first rows.
        comm: all ranks.
    """
    requests, asked = comm.counted_all_to_all(wanted, counts, "frontier")
    return ShuffleIndex(torch.searchsorted(own, requests.long()), tuple(asked), tuple(counts), num_local)
