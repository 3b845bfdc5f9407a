"""Sampling a partitioned topology hop by hop with request and reply (FastSample, section 3.3, "vanilla"; DistDGL).

Every rank samples its own batch. The first hop is local where targets are at their owners; in every other hop frontier
vertices are sent to their owners, who draw for us and send back what they drew: two rounds (tag `frontier`), so
2(L - 1) for L layers, or 2L where seeds are anybody's (ends of links). Draws are keyed by the batch that asks, so they
are those of a replicated topology.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.graph.block import Batch, BatchKey
from gnnexp.graph.shard import Shard
from gnnexp.kernels.samplers.split import group_by_owner, spread_rows
from gnnexp.samplers.layerwise import LayerSampler, Neighbours


class RemoteExpansion:
    """Expands this rank's targets over the parts of all ranks; all of them call, batch by batch.

    Args:
        sampler: any that goes hop by hop, set up with this rank's part of the topology.
        shard: who owns which vertex.
        comm: one rank per part.
        num_hops: layers of the model.
        foreign_seeds: whether seeds may be other ranks'.
    """

    def __init__(
        self, sampler: LayerSampler, shard: Shard, comm: Communicator, num_hops: int, *, foreign_seeds: bool = False,
    ) -> None:
        assert comm.size == shard.num_parts and comm.rank == shard.part, "one part per rank"
        self._sampler, self._comm, self._num_hops, self._foreign_seeds = sampler, comm, num_hops, foreign_seeds
        self._needs, self._owner = shard.needs, shard.owner.numpy()
        topology = sampler.topology_of(shard)
        # Whether edges carry an occurrence must be agreed on: parallel edges may be in one part only.
        mine = topology.occurrence is not None if shard.needs.edge_identity else False
        self._occurrence = any(comm.gather_objects(mine))
        self._types = topology.edge_types is not None and (shard.needs.edge_types or shard.needs.edge_identity)

    def sample(self, seeds: Tensor, key: BatchKey, global_count: int) -> Batch:
        """The blocks of one batch.

        Args:
            seeds: `[T]` this rank's targets, or the vertices that its targets need; may be empty.
            key: of the draws; `micro` is this rank, or -1 on all ranks.
            global_count: targets of the whole global batch.
        """
        blocks = []
        with self._sampler.relabelling(seeds) as vertices:
            for hop in range(self._num_hops):
                asks = hop > 0 or self._foreign_seeds
                drawn = (self._ask if asks else self._sampler.sample_layer)(vertices.ids, hop, key)
                blocks.append(vertices.block(drawn, self._needs))
        return Batch(seeds, tuple(reversed(blocks)), key, global_count)

    def _ask(self, frontier: Tensor, hop: int, key: BatchKey) -> Neighbours:
        """Draws of a frontier that lies in many parts."""
        comm, ids = self._comm, frontier.numpy()
        counts, grouped = np.zeros(comm.size, np.int64), np.empty_like(ids)
        order = np.empty(ids.size, np.int32)
        group_by_owner(ids, self._owner, counts, grouped, order)
        own = slice(int(counts[: comm.rank].sum()), int(counts[: comm.rank + 1].sum()))
        sent = [0 if rank == comm.rank else int(count) for rank, count in enumerate(counts)]
        wanted, asked = comm.counted_all_to_all(torch.from_numpy(np.delete(grouped, own)), sent, "frontier")
        replies = self._answer(torch.split_with_sizes(wanted, asked), hop, key)
        sizes = [reply.numel() for reply in replies]
        payload, incoming = comm.counted_all_to_all(torch.cat(replies), sizes, "frontier")
        packets = torch.split_with_sizes(payload, incoming)
        parts = [self._unpack(packet, count) for packet, count in zip(packets, sent, strict=True)]
        parts[comm.rank] = self._complete(self._sampler.sample_layer(torch.from_numpy(grouped[own]), hop, key))
        return _in_order(parts, order)

    def _answer(self, requests: Sequence[Tensor], hop: int, key: BatchKey) -> list[Tensor]:
        """What every rank's frontier vertices draw here, packed."""
        replies = []
        for rank, vertices in enumerate(requests):
            theirs = key if key.micro < 0 else replace(key, micro=rank)
            replies.append(self._pack(self._sampler.sample_layer(vertices, hop, theirs)) if vertices.numel()
                           else vertices)
        return replies

    def _complete(self, drawn: Neighbours) -> Neighbours:
        """With an occurrence where other parts have parallel edges."""
        if not self._occurrence or drawn.occurrence is not None:
            return drawn
        return drawn._replace(occurrence=torch.zeros(drawn.ids.numel(), dtype=torch.int32))

    def _pack(self, drawn: Neighbours) -> Tensor:
        """Degrees, source ids, then occurrences and types where there are any, in the dtype of ids."""
        drawn = self._complete(drawn)
        parts = (drawn.indptr[1:] - drawn.indptr[:-1], drawn.ids, drawn.occurrence, drawn.edge_types)
        return torch.cat([part.to(drawn.ids.dtype) for part in parts if part is not None])

    def _unpack(self, packet: Tensor, count: int) -> Neighbours:
        indptr = torch.zeros(count + 1, dtype=torch.int64)
        torch.cumsum(packet[:count], 0, out=indptr[1:])
        columns = torch.split_with_sizes(packet[count:], [int(indptr[-1])] * (1 + self._occurrence + self._types))
        rest = [column.int() for column in columns[1:]]
        return Neighbours(
            indptr, columns[0], rest.pop(0) if self._occurrence else None, rest.pop(0) if self._types else None
        )


def _in_order(parts: list[Neighbours], order: np.ndarray) -> Neighbours:
    """Rows of all parts, of which the i-th belongs at `order[i]` in the frontier (`order` is where each vertex went).

    Args:
        parts: by rank.
        order: `[n]` place of frontier vertex i among the rows of all parts.
    """
    lengths = torch.cat([part.indptr[1:] - part.indptr[:-1] for part in parts])
    indptr = torch.zeros(lengths.numel() + 1, dtype=torch.int64)
    torch.cumsum(lengths, 0, out=indptr[1:])
    back = np.empty(order.size, np.int64)
    back[order] = np.arange(order.size)
    ordered = torch.zeros_like(indptr)
    torch.cumsum(lengths[torch.from_numpy(order.astype(np.int64))], 0, out=ordered[1:])
    columns: list[Tensor | None] = []
    for name in ("ids", "occurrence", "edge_types"):
        given = [getattr(part, name) for part in parts]
        if given[0] is None:
            columns.append(None)
            continue
        values = torch.cat(given)
        out = torch.empty_like(values)
        spread_rows(back, indptr.numpy(), values.numpy(), ordered.numpy(), out.numpy())
        columns.append(out)
    ids, occurrence, types = columns
    assert ids is not None
    return Neighbours(ordered, ids, occurrence, types)
