"""How ranks get the keys from which they weigh edges, and what all ways of sharing attention's work send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal

import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.shuffle import ShuffleIndex, shuffle
from gnnexp.comm.tensor_split import gather_all_rows
from gnnexp.graph.block import Block
from gnnexp.models.decoupled import Keys

Way = Literal["shared", "halo", "replicated"]


@dataclass(frozen=True)
class AttentionSizes:
    """What the traffic of attention depends on.

    Attributes:
        num_ranks: P.
        num_nodes: V.
        num_edges: E, with self loops that the model adds.
        heads: K of the last layer.
        read_keys: K columns each: foreign sources and foreign destinations of the edges that a rank weighs, over all
            ranks.
        trained: whether keys and weights take gradients.
    """

    num_ranks: int
    num_nodes: int
    num_edges: int
    heads: int
    read_keys: int
    trained: bool


def values_sent(sizes: AttentionSizes) -> Mapping[Way, int]:
    """Values that all ranks send in a step, forward and backward, to weigh all edges on all ranks.

    Every key and every weight that is sent has a gradient, which goes the same way back.
    """
    others = sizes.num_ranks - 1
    everywhere, weights = others * sizes.num_nodes * 2 * sizes.heads, others * sizes.num_edges
    ways = 2 if sizes.trained else 1
    return {
        "shared": ways * (everywhere + weights),
        "halo": ways * (sizes.read_keys * sizes.heads + weights),
        "replicated": ways * everywhere,
    }


def least_sent(sizes: AttentionSizes) -> Way:
    """The way that sends the fewest values. If several do, the first one, because it computes no more than others."""
    sent = values_sent(sizes)
    return min(sent, key=lambda way: sent[way])


@dataclass(frozen=True, eq=False)
class ReadKeys:
    """The keys that each rank reads to weigh its edges, as places in the list of all ranks' vertices.

    Attributes:
        sources: for every rank, ascending places `[s]` of the sources of its edges.
        destinations: for every rank, ascending places `[d]` of their destinations.
        starts: `[P + 1]` first place of each rank's own vertices, then V.
    """

    sources: Sequence[Tensor]
    destinations: Sequence[Tensor]
    starts: Sequence[int]

    @staticmethod
    def of(whole: Block, bounds: Sequence[int], lengths: Sequence[int], places: Tensor | None) -> ReadKeys:
        """The keys of ranks that weigh the in-edges of consecutive ranges of destinations.

        Args:
            whole: block of the whole graph, on the host.
            bounds: `[P + 1]` bounds of the ranks' ranges of destinations.
            lengths: for every rank, number of its own vertices.
            places: `[V]` place of each vertex in the list of all ranks' vertices; None if it is the id.
        """
        ids = torch.arange(whole.num_dst) if places is None else places.cpu()
        starts = whole.indptr[torch.tensor(bounds)].tolist()
        sources = [_distinct(ids[whole.sources[a:b].long()], whole.num_dst) for a, b in pairwise(starts)]
        destinations = [ids[a:b].sort().values for a, b in pairwise(bounds)]
        return ReadKeys(sources, destinations, list(accumulate(lengths, initial=0)))

    @property
    def num_foreign(self) -> int:
        """Sources and destinations whose keys another rank has, over all ranks."""
        return sum(
            part.numel() - self._owned(part, rank).numel()
            for of_ranks in (self.sources, self.destinations)
            for rank, part in enumerate(of_ranks)
        )

    def index(self, rank: int) -> tuple[ShuffleIndex, Tensor]:
        """The exchange of rank `rank`'s rows: source keys of its vertices, then destination keys, `[2n, K]`.

        Returns:
            `(exchange, [F] places)`: of every received row the place; V is added if it is a destination key.
        """
        ranks, start = range(len(self.sources)), self.starts[rank]
        own, total = self.starts[rank + 1] - start, self.starts[-1]
        sent = [self._read(to, rank, own) - start for to in ranks]
        received = [self._read(rank, owner, total) for owner in ranks]
        out, home = (tuple(rows.numel() for rows in of_ranks) for of_ranks in (sent, received))
        return ShuffleIndex(torch.cat(sent), out, home, 2 * own), torch.cat(received)

    def _read(self, reader: int, owner: int, offset: int) -> Tensor:
        """Places of `owner` that `reader` reads: sources, then destinations, to which `offset` is added."""
        if reader == owner:
            return torch.empty(0, dtype=torch.int64)
        both = (self.sources[reader], self.destinations[reader])
        sources, destinations = (self._owned(part, owner) for part in both)
        return torch.cat((sources, destinations + offset))

    def _owned(self, places: Tensor, rank: int) -> Tensor:
        return places[(places >= self.starts[rank]) & (places < self.starts[rank + 1])]


class KeyHalo:
    """Brings a rank only the keys that it reads (the data parallelism of NeutronTP, section 4.1.1).

    Args:
        read: keys that the ranks read.
        comm: all ranks.
        device: where keys are.
    """

    def __init__(self, read: ReadKeys, comm: Communicator, device: torch.device) -> None:
        index, foreign = read.index(comm.rank)
        own = torch.arange(read.starts[comm.rank], read.starts[comm.rank + 1])
        self._comm, self._num_nodes = comm, read.starts[-1]
        self._index = index.to(device)
        self._places = torch.cat((own, own + self._num_nodes, foreign)).to(device)

    def bring(self, keys: Keys) -> Tensor:
        """`[V, 2K]` keys by place, with zeros where no edge of this rank reads them, from `[n, K]` own keys each."""
        rows = shuffle(torch.cat(keys), self._index, self._comm, "activations")
        assert isinstance(rows, Tensor)
        here = rows.new_zeros(2 * self._num_nodes, rows.shape[1]).index_copy(0, self._places, rows)
        return torch.cat((here[: self._num_nodes], here[self._num_nodes :]), 1)


class AllKeys:
    """Brings every rank all keys.

    Args:
        lengths: for every rank, number of its own vertices.
        comm: all ranks.
    """

    def __init__(self, lengths: Sequence[int], comm: Communicator) -> None:
        self._lengths, self._comm = lengths, comm

    def bring(self, keys: Keys) -> Tensor:
        """`[V, 2K]` keys by place, from the `[n, K]` own keys each."""
        return gather_all_rows(torch.cat(keys, 1), self._lengths, self._comm, "activations")


def _distinct(places: Tensor, count: int) -> Tensor:
    """The distinct ones of `places` `[n]`, which are below `count`, ascending."""
    is_there = torch.zeros(count, dtype=torch.bool)
    is_there[places] = True
    return torch.nonzero(is_there).flatten()
