"""Split-parallel sampling: every rank samples the vertices of one batch that it owns (GSplit, Algorithm 1).

    local frontier -> sample_layer -> mixed frontier -> split -> local frontier of the next hop

`split` takes one look-up in the owner table per edge, and one all-to-all of vertex ids. The exchanged ids give the
shuffle index, by which rows are exchanged later.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.shuffle import ShuffleIndex
from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.shard import Shard
from gnnexp.kernels.pool import Pool
from gnnexp.kernels.samplers.ordered import SecondLoop
from gnnexp.kernels.samplers.sample import place_seeds
from gnnexp.kernels.samplers.split import group_by_owner, join_frontier, place_foreign, split_table
from gnnexp.samplers.layerwise import LayerSampler, Neighbours, relabelled_block
from gnnexp.samplers.vertex_map import VertexMap, VertexMaps


@dataclass(frozen=True, eq=False)
class SplitBatch:
    """This rank's split of a global batch.

    Attributes:
        batch: blocks with this rank's destinations; their sources are the local frontier of the next hop, then foreign
            vertices.
        shuffles: for each block, the index by which rows of its sources are exchanged.
        cross_edges: for each block, the number of its edges with a foreign source.
    """

    batch: Batch
    shuffles: tuple[ShuffleIndex, ...]
    cross_edges: tuple[int, ...]

    @property
    def input_ids(self) -> Tensor:
        """`[n]` original ids, on the host, of the input vertices that this rank owns; each vertex has one owner."""
        return self.batch.input_ids[: self.shuffles[0].num_local]

    @property
    def device_input_ids(self) -> Tensor:
        """The same ids where the blocks are."""
        return self.batch.blocks[0].src_ids[: self.shuffles[0].num_local]


class Splitter:
    """Samples splits, one batch at a time. All ranks of the group sample the same batch.

    Args:
        sampler: a sampler that works hop by hop, after its `setup`.
        shard: owner of each vertex.
        comm: communicator of the ranks that share a batch, one per part.
        num_hops: number of layers of the model.
    """

    def __init__(self, sampler: LayerSampler, shard: Shard, comm: Communicator, num_hops: int) -> None:
        assert comm.size == shard.num_parts and comm.rank == shard.part, "one part per rank of the group"
        self._sampler, self._comm, self._num_hops = sampler, comm, num_hops
        self._needs = shard.needs
        self._owner = shard.owner.numpy()
        ids = np.empty(0, shard.graph.indices.numpy().dtype)
        self._dtype = shard.graph.indices.dtype
        self._maps = VertexMaps(lambda: VertexMap(split_table(self._owner, shard.part), ids))

    def sample(self, local_targets: Tensor, key: BatchKey, global_count: int) -> SplitBatch:
        """Algorithm 1, `sp_sample`.

        Args:
            local_targets: `[T]` targets of the global batch that this rank owns, unique; may be empty.
            key: key of the draws, the same on all ranks of the group.
            global_count: number of targets of the whole global batch.
        """
        blocks, shuffles, crossing = [], [], []
        with self._maps.lent() as lent:
            frontier = Frontier(local_targets, lent, self._sampler.pool, alone=self._comm.size == 1)
            vertices = local_targets.to(self._dtype)
            for hop in range(self._num_hops):
                drawn, counts = self._sampler.sample_placed(vertices, hop, key, frontier.second_loop)
                block, shuffle, crossed = self.split(frontier, drawn, counts)
                vertices = block.src_ids[: shuffle.num_local]
                blocks.append(block)
                shuffles.append(shuffle)
                crossing.append(crossed)
            lent.base = frontier.end
        batch = Batch(local_targets, tuple(reversed(blocks)), key, global_count)
        return SplitBatch(batch, tuple(reversed(shuffles)), tuple(reversed(crossing)))

    def split(self, frontier: Frontier, drawn: Neighbours, counts: tuple[int, int]) -> tuple[Block, ShuffleIndex, int]:
        """Send foreign vertices of the mixed frontier to their owners, and receive own vertices that other ranks drew.

        Args:
            frontier: the local frontier, to which new vertices for the next hop are added.
            drawn: edges that the vertices of the frontier drew, with places from the second loop of `frontier`.
            counts: what the second loop returned.

        Returns:
            The block of the hop, its shuffle index, and its number of edges with a foreign source.
        """
        num_dst = frontier.count
        foreign, sources = frontier.take_in(*counts), drawn.ids.numpy()
        counted, grouped = np.zeros(self._comm.size, np.int64), np.empty_like(foreign)
        places = np.empty(foreign.size, np.int32)
        group_by_owner(foreign, self._owner, counted, grouped, places)

        wanted, asked = self._comm.counted_all_to_all(torch.from_numpy(grouped), counted.tolist(), "frontier")
        send_rows = frontier.join(wanted.numpy())

        crossing = place_foreign(sources, places, frontier.count)
        src_ids = torch.from_numpy(frontier.followed_by(grouped))
        block = relabelled_block(drawn, drawn.ids, src_ids, num_dst, self._needs)
        shuffle = ShuffleIndex(torch.from_numpy(send_rows), tuple(asked), tuple(counted.tolist()), frontier.count)
        return block, shuffle, crossing


class Frontier:
    """The local frontier of a batch: this rank's vertices in the order of first appearance, with their map entries.

    The frontier of every hop is a prefix of the frontier of the next hop.
    """

    def __init__(self, targets: Tensor, lent: VertexMap, pool: Pool, *, alone: bool = False) -> None:
        """Begin a batch.

        Args:
            targets: `[T]` this rank's targets.
            lent: map of the batch.
            pool: memory of blocks.
            alone: whether no vertex is foreign. Then the second loop of one rank's sampling is enough.
        """
        self._table, self._base, self._hop_base = lent.table, lent.base, lent.base
        self._lent, self._pool, self._alone = lent, pool, alone
        self._room, self.count = lent.vertices, 0
        self._first_foreign = 0
        self._grow(targets.numel() + 1)
        self.count = int(targets.numel())
        seeds = targets.contiguous().numpy()
        if place_seeds(seeds, self._table, self._base, self._room) < self.count:
            raise ValueError(f"targets must be unique and in 0..{self._table.size - 1}")

    @property
    def end(self) -> int:
        """A base that is larger than every entry of the map."""
        return max(self._base + self.count, self._hop_base)

    def second_loop(self, places: np.ndarray) -> SecondLoop:
        """What finds `places` `[E]` of a hop's sources in the frontier, and of the foreign ones behind it."""
        size = places.size
        most, some = min(self._table.size, self.count + size), min(self._table.size, size)
        self._lent.check_room(max(most, self._hop_base - self._base + some))
        self._first_foreign = most + 1
        self._grow(self._first_foreign + some + 1)
        splits = 0 if self._alone else self._first_foreign
        return SecondLoop(self._table, self._base, self._room, self.count, places, self._hop_base, splits)

    def take_in(self, known: int, num_foreign: int) -> np.ndarray:
        """The foreign sources `[n]` after the second loop, valid until the next one; arguments as the loop returns."""
        self.count = known
        self._hop_base += num_foreign
        return self._room[self._first_foreign : self._first_foreign + num_foreign]

    def followed_by(self, foreign: np.ndarray) -> np.ndarray:
        """Original ids of the frontier, and then the `foreign` ones."""
        # Not torch's copy: see `Expansion`.
        ids = self._pool.empty((self.count + foreign.size,), self._room.dtype)
        ids[: self.count], ids[self.count :] = self._room[: self.count], foreign
        return ids

    def join(self, wanted: np.ndarray) -> np.ndarray:
        """Add the vertices `wanted` `[n]` that other ranks drew; returns their places `[n]` int64 in the frontier."""
        most = min(self._table.size, self.count + wanted.size)
        self._lent.check_room(most)
        self._grow(most)
        rows = np.empty(wanted.size, np.int64)
        self.count = int(join_frontier(wanted, self._table, self._base, self._room, self.count, rows))
        return rows

    def _grow(self, size: int) -> None:
        if self._room.size < size:
            larger = np.empty(size + size // 2, self._room.dtype)
            larger[: self.count] = self._room[: self.count]
            self._room = self._lent.vertices = larger
