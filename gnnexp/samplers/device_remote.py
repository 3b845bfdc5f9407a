"""Sample a partitioned topology on devices, with the same draws and blocks as `samplers.remote` on the host.

The host waits twice for every hop that asks other ranks: for the numbers of requests, and for the sizes of the answers.
It waits once more at the end of the batch. Requests and answers come to the host with their sizes, and gloo exchanges
them (`samplers.device_split` says why). What arrives crosses in one pinned copy. Draws, the order of the answers, and
positions of vertices stay on the device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.shard import Shard
from gnnexp.kernels.crossing import across, back
from gnnexp.kernels.samplers.hop import sort_by_owner
from gnnexp.samplers.device_expansion import check_seeds
from gnnexp.samplers.device_hops import DeviceTopology, HopEdges, assert_same, hop_key, taken
from gnnexp.samplers.device_vertices import VertexTables, Vertices
from gnnexp.samplers.layerwise import LayerSampler, Neighbours
from gnnexp.samplers.remote import RemoteExpansion


class SamplesParts(Protocol):
    """`RemoteExpansion` or `DeviceRemoteExpansion`."""

    def sample(self, seeds: Tensor, key: BatchKey, global_count: int) -> Batch:
        """The blocks of this rank's batch."""


def remote_expansion(
    sampler: LayerSampler, shard: Shard, comm: Communicator, num_hops: int, *, foreign_seeds: bool
) -> SamplesParts:
    """What samples a partitioned topology where the sampler is placed; arguments as for `RemoteExpansion`."""
    if sampler.device_topology is None:
        return RemoteExpansion(sampler, shard, comm, num_hops, foreign_seeds=foreign_seeds)
    host = RemoteExpansion(sampler, shard, comm.uncounted(), num_hops, foreign_seeds=foreign_seeds)
    return DeviceRemoteExpansion(sampler.device_topology, shard, comm, host, foreign_seeds=foreign_seeds)


class _Hop(NamedTuple):
    """The edges of one hop; arrays may be longer than their real entries.

    Attributes:
        drawn: the edges; without positions if other ranks drew some of them.
        data: columns of data of edges that other ranks drew some of (`RemoteExpansion.kinds`), else empty.
        num_answered: number of edges that this rank drew for all ranks; None if it drew all edges of the hop itself.
        received_bytes: what other ranks sent.
    """

    drawn: HopEdges
    data: Sequence[Tensor]
    num_answered: int | None
    received_bytes: int


class _Answer(NamedTuple):
    """Edges that this rank drew in one hop: for requests of other ranks in their order, then for its own vertices.

    Attributes:
        drawn: the edges.
        columns: `[E]` data of the edges, by field of `Block`.
        ends: `[n + 1]` the bounds, on the host.
        replies: packed edges for each rank, on the host.
        num_requests: number of requests of other ranks.
    """

    drawn: HopEdges
    columns: Mapping[str, Tensor]
    ends: Tensor
    replies: list[Tensor]
    num_requests: int


class DeviceRemoteExpansion:
    """Expands this rank's targets over the parts of all ranks. All ranks call it for every batch, all on devices.

    Args:
        topology: this rank's part of the topology on the device.
        shard: owner of each vertex.
        comm: communicator for host tensors with one rank per part.
        host: makes the first batch too, which is compared.
        foreign_seeds: whether other ranks may own the seeds.
    """

    def __init__(
        self,
        topology: DeviceTopology,
        shard: Shard,
        comm: Communicator,
        host: RemoteExpansion,
        *,
        foreign_seeds: bool = False,
    ) -> None:
        self._topology, self._comm, self._host, self._foreign_seeds = topology, comm, host, foreign_seeds
        self._owner = shard.owner.to(topology.device)
        self._tables = VertexTables(topology.num_nodes, topology.device)
        self._compares = True

    def sample(self, seeds: Tensor, key: BatchKey, global_count: int) -> Batch:
        """`RemoteExpansion.sample`.

        Raises:
            ValueError: a seed is out of range or repeated, or the batch is too large.
            RunError: the blocks of the first batch differ from those of the host.
        """
        batch = self._sample(seeds, key, global_count)
        compares, self._compares = self._compares, False
        if compares:
            expected = self._host.sample(seeds, key, global_count)
            assert_same([block.arrays() for block in batch.blocks], [block.arrays() for block in expected.blocks])
        return batch

    def _sample(self, seeds: Tensor, key: BatchKey, global_count: int) -> Batch:
        topology, units = self._topology, [key.micro] if key.micro < 0 else range(self._comm.size)
        words = [hop_key(replace(key, micro=unit), hop) for hop in range(len(topology.fanouts)) for unit in units]
        targets, flat = topology.seeded(seeds, words)
        keys = flat.view(-1, len(units))
        if self._foreign_seeds and self._comm.size > 1:  # as on the host, ids that are asked for stay as wide as seeds
            targets = targets.to(seeds.dtype)
        with self._tables.lent() as table:
            vertices, hops, sources = Vertices(topology, table, targets), [], []
            for number in range(keys.shape[0]):
                asks = self._comm.size > 1 and (number > 0 or self._foreign_seeds)
                hop = (self._ask if asks else self._own)(vertices, number, keys[number])
                most_new = hop.drawn.ids.numel() - topology.loops * hop.drawn.size
                sources.append(vertices.add(hop.drawn.ids, hop.drawn.total, most_new))
                hops.append(hop)
            known, edges, ids = vertices.read_back(vertices.counts, [hop.drawn.total for hop in hops])
        check_seeds(known[0], seeds.numel())
        blocks = (
            self._block(vertices.ids[: known[number + 1]], known[number], edges[number], hops[number], sources[number])
            for number in reversed(range(len(hops)))
        )
        more = sum(hop.received_bytes for hop in hops) + 8 * (len(words) - len(hops))
        drawn = sum(
            edges[number] - topology.loops * known[number] if hop.num_answered is None else hop.num_answered
            for number, hop in enumerate(hops)
        )
        return Batch(
            seeds,
            tuple(blocks),
            key,
            global_count,
            host_ids=ids,
            received_bytes=more,
            far_bytes=topology.far_bytes(drawn),
        )

    def _block(self, src_ids: Tensor, num_dst: int, num_edges: int, hop: _Hop, sources: Tensor) -> Block:
        drawn = hop.drawn
        positions = None if drawn.positions is None else drawn.positions[:num_edges]
        block = Block(
            drawn.bounds[: num_dst + 1],
            sources[:num_edges],
            src_ids,
            num_dst,
            self_loops=self._topology.needs.self_loops,
        )
        received: dict[str, Any] = dict(zip(self._host.kinds, hop.data, strict=bool(hop.data)))
        return replace(block, **self._topology.of_edges(positions), **received)

    def _own(self, vertices: Vertices, number: int, keys: Tensor) -> _Hop:
        """The draws of a frontier whose edges are all on this rank."""
        own = keys if keys.numel() == 1 else keys[self._comm.rank : self._comm.rank + 1]
        drawn = self._topology.draw(vertices.real, vertices.count, number, own, loops=self._topology.loops)
        vertices.limit(drawn.size)
        return _Hop(drawn, (), None, 0)

    def _ask(self, vertices: Vertices, number: int, keys: Tensor) -> _Hop:
        """The draws of a frontier whose vertices are in several parts (`RemoteExpansion`)."""
        comm = self._comm
        bounds, grouped, places = sort_by_owner(vertices.real, vertices.count, self._owner, comm.size)
        sizes, ids = back(bounds, grouped)
        counts, known = sizes.diff().tolist(), int(sizes[-1])
        vertices.limit(known)
        own = slice(int(sizes[comm.rank]), int(sizes[comm.rank + 1]))
        sent = [0 if rank == comm.rank else count for rank, count in enumerate(counts)]
        wanted, asked = comm.counted_all_to_all(torch.cat((ids[: own.start], ids[own.stop : known])), sent, "frontier")
        answered = self._answer(wanted, grouped[own], asked, number, keys)
        payload, incoming = comm.counted_all_to_all(
            torch.cat(answered.replies), [reply.numel() for reply in answered.replies], "frontier"
        )
        lengths, columns = self._joined(across(payload, self._topology.device), incoming, sent, answered)
        return self._in_order(
            vertices.real, places[:known], lengths, columns, int(answered.ends[-1]), wanted.nbytes + payload.nbytes
        )

    def _answer(self, wanted: Tensor, own: Tensor, asked: Sequence[int], number: int, keys: Tensor) -> _Answer:
        """Draw for all requests and for the own vertices at once."""
        topology, num_requests = self._topology, wanted.numel()
        vertices = torch.cat((across(wanted, topology.device), own))
        if keys.numel() > 1:  # a key for each rank that asks
            rows = [own.numel() if rank == self._comm.rank else count for rank, count in enumerate(asked)]
            order = [*(rank for rank in range(len(rows)) if rank != self._comm.rank), self._comm.rank]
            keys = torch.cat([keys[rank : rank + 1].expand(rows[rank]) for rank in order])
        count = torch.full((1,), vertices.numel(), dtype=torch.int64, device=topology.device)
        drawn = topology.draw(vertices, count, number, keys, loops=0, times=self._comm.size)
        columns = self._columns(drawn)
        fanout, size = topology.fanouts[number], drawn.ids.numel()
        most = size if fanout < 0 else min(size, num_requests * fanout)
        ends, ids, *data = back(drawn.bounds, drawn.ids[:most], *(values[:most] for values in columns.values()))
        replies = []
        for start, stop in pairwise(accumulate(asked, initial=0)):
            edges = slice(int(ends[start]), int(ends[stop]))
            held = {name: values[edges] for name, values in zip(columns, data, strict=True)}
            replies.append(
                self._host.pack(Neighbours(ends[start : stop + 1], ids[edges], **held)) if start < stop else wanted[:0]
            )
        return _Answer(drawn, columns, ends, replies, num_requests)

    def _columns(self, drawn: HopEdges) -> Mapping[str, Tensor]:
        """`[E]` data of drawn edges, by field of `Block`. Without parallel edges in this part, an occurrence is 0."""
        ids, topology = drawn.ids, self._topology
        if drawn.positions is None:
            return {name: torch.zeros_like(ids, dtype=torch.int32) for name in self._host.kinds}
        real = torch.arange(ids.numel(), device=ids.device) < drawn.total
        positions = torch.where(real, drawn.positions, -1)
        return {
            name: topology.taken(topology.kinds[name], positions)
            if name in topology.kinds
            else torch.zeros_like(ids, dtype=torch.int32)
            for name in self._host.kinds
        }

    def _joined(
        self, payload: Tensor, incoming: Sequence[int], sent: Sequence[int], answered: _Answer
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Numbers of edges `[D]` and data of edges `[E]` of the frontier's vertices by owner, from all ranks."""
        ends, drawn, num_requests = answered.ends, answered.drawn, answered.num_requests
        own = slice(int(ends[num_requests]), int(ends[-1]))
        names = ("ids", *self._host.kinds)
        lengths: list[Tensor] = []
        parts: dict[str, list[Tensor]] = {name: [] for name in names}
        for rank, packet in enumerate(torch.split_with_sizes(payload, list(incoming))):
            if rank == self._comm.rank:
                lengths.append(drawn.bounds.diff()[num_requests:])
                for name in names:
                    parts[name].append((drawn.ids if name == "ids" else answered.columns[name])[own])
                continue
            edges = (packet.numel() - sent[rank]) // len(names)
            of_rank, *data = torch.split_with_sizes(packet, [sent[rank], *[edges] * len(names)])
            lengths.append(of_rank.long())
            for name, column in zip(names, data, strict=True):
                dtype = torch.float32 if name in ("weight", "scale") else torch.int32
                parts[name].append(column if name == "ids" else column.int().view(dtype))
        return torch.cat(lengths), {name: torch.cat(pieces) for name, pieces in parts.items()}

    def _in_order(
        self,
        frontier: Tensor,
        places: Tensor,
        lengths: Tensor,
        columns: Mapping[str, Tensor],
        num_answered: int,
        received_bytes: int,
    ) -> _Hop:
        """The edges in the order of the frontier, with added self loops.

        Args:
            frontier: `[D]` vertices.
            places: `[D]` position of each vertex among all vertices by owner.
            lengths: `[D]` number of edges of the vertices by owner.
            columns: `[E]` sources and data of the edges of the vertices by owner.
            num_answered: number of edges that this rank drew for all ranks.
            received_bytes: what other ranks sent.
        """
        loops, own = self._topology.loops, lengths[places]
        bounds = own.new_zeros(own.numel() + 1)
        torch.cumsum(own + loops, 0, out=bounds[1:])
        total = columns["ids"].numel() + loops * own.numel()
        rows = torch.repeat_interleave(bounds.diff(), output_size=total)
        offset = torch.arange(total, device=rows.device) - bounds[rows]
        positions = (lengths.cumsum(0) - lengths)[places][rows] + offset
        if loops:
            positions = torch.where(offset == own[rows], -1, positions)
        ids, *data = (values if values.numel() else values.new_zeros(1) for values in columns.values())
        sources = torch.where(positions < 0, frontier[rows], ids[positions.clamp(min=0)])
        return _Hop(
            HopEdges(bounds, sources, None, own.numel()),
            [taken(values, positions) for values in data],
            num_answered,
            received_bytes,
        )
