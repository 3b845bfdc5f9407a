"""Sample a partitioned topology hop by hop with request and reply (FastSample, section 3.3, "vanilla"; DistDGL).

Every rank samples its own batch. If the rank owns all its targets, the first hop is local. In every other hop, each
frontier vertex is sent to its owner, which draws its edges and sends them back. This takes two rounds per hop (tag
`frontier`): 2(L - 1) for L layers, or 2L if other ranks may own the seeds (ends of links). Draws are keyed by the batch
that asks for them, so they equal the draws from a replicated topology.
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
from gnnexp.graph.sparse import ends
from gnnexp.kernels.samplers.split import group_by_owner, spread_rows
from gnnexp.samplers.layerwise import OF_EDGES, LayerSampler, Neighbours


class RemoteExpansion:
    """Expands this rank's targets over the parts of all ranks. All ranks call it for every batch.

    Args:
        sampler: a sampler that works hop by hop, set up with this rank's part of the topology.
        shard: owner of each vertex.
        comm: communicator with one rank per part.
        num_hops: number of layers of the model.
        foreign_seeds: whether other ranks may own the seeds.

    Attributes:
        kinds: data of edges in every packet, by field of `Neighbours`.
    """

    def __init__(
        self,
        sampler: LayerSampler,
        shard: Shard,
        comm: Communicator,
        num_hops: int,
        *,
        foreign_seeds: bool = False,
    ) -> None:
        assert comm.size == shard.num_parts and comm.rank == shard.part, "one part per rank"
        self._sampler, self._comm, self._num_hops, self._foreign_seeds = sampler, comm, num_hops, foreign_seeds
        self._needs, self._owner = shard.needs, shard.owner.numpy()
        topology = sampler.topology_of(shard)
        # All ranks must agree whether edges have an occurrence, because parallel edges may be in one part only.
        mine = topology.occurrence is not None if shard.needs.edge_identity else False
        self._occurrence = any(comm.gather_objects(mine))
        typed = topology.edge_types is not None and (shard.needs.edge_types or shard.needs.edge_identity)
        held = (self._occurrence, typed, topology.edge_weights is not None, sampler.options.scales)
        self.kinds = [name for name, is_held in zip(OF_EDGES, held, strict=True) if is_held]

    def sample(self, seeds: Tensor, key: BatchKey, global_count: int) -> Batch:
        """The blocks of one batch.

        Args:
            seeds: `[T]` this rank's targets, or the vertices that its targets need; may be empty.
            key: key of the draws; `micro` is this rank, or -1 on all ranks.
            global_count: number of targets of the whole global batch.
        """
        blocks = []
        with self._sampler.relabelling(seeds) as vertices:
            for hop in range(self._num_hops):
                asks = hop > 0 or self._foreign_seeds
                drawn = (self._ask if asks else self._sampler.sample_layer)(vertices.ids, hop, key)
                blocks.append(vertices.block(drawn, self._needs))
        return Batch(seeds, tuple(reversed(blocks)), key, global_count)

    def _ask(self, frontier: Tensor, hop: int, key: BatchKey) -> Neighbours:
        """The draws of a frontier whose vertices are in several parts."""
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
        """For every rank, the packed draws of its frontier vertices that this rank owns."""
        replies = []
        for rank, vertices in enumerate(requests):
            theirs = key if key.micro < 0 else replace(key, micro=rank)
            replies.append(
                self.pack(self._sampler.sample_layer(vertices, hop, theirs)) if vertices.numel() else vertices
            )
        return replies

    def _complete(self, drawn: Neighbours) -> Neighbours:
        """`drawn` with an occurrence of 0 if only other parts have parallel edges."""
        if not self._occurrence or drawn.occurrence is not None:
            return drawn
        return drawn._replace(occurrence=torch.zeros(drawn.ids.numel(), dtype=torch.int32))

    def pack(self, drawn: Neighbours) -> Tensor:
        """Degrees, source ids and data of edges in the dtype of ids; of weights and scales the bits."""
        of_edges = self._complete(drawn).of_edges
        assert list(of_edges) == self.kinds, "the data that the sampler announced"
        bits = (kind.view(torch.int32) for kind in of_edges.values())
        parts = (drawn.indptr[1:] - drawn.indptr[:-1], drawn.ids, *bits)
        return torch.cat([part.to(drawn.ids.dtype) for part in parts])

    def _unpack(self, packet: Tensor, count: int) -> Neighbours:
        indptr = ends(packet[:count])
        ids, *columns = torch.split_with_sizes(packet[count:], [int(indptr[-1])] * (1 + len(self.kinds)))
        dtypes = [torch.float32 if name in ("weight", "scale") else torch.int32 for name in self.kinds]
        of_edges = [column.int().view(dtype) for column, dtype in zip(columns, dtypes, strict=True)]
        return Neighbours(indptr, ids, **dict(zip(self.kinds, of_edges, strict=True)))


def _in_order(parts: list[Neighbours], order: np.ndarray) -> Neighbours:
    """The draws of all parts in the order of the frontier.

    Args:
        parts: draws of each rank's vertices, by rank.
        order: `[n]` position of frontier vertex i among the rows of all parts.
    """
    lengths = torch.cat([part.indptr[1:] - part.indptr[:-1] for part in parts])
    indptr = ends(lengths)
    back = np.empty(order.size, np.int64)
    back[order] = np.arange(order.size)
    ordered = ends(lengths[torch.from_numpy(order.astype(np.int64))])
    columns: dict[str, Tensor] = {}
    for name in ("ids", *parts[0].of_edges):
        values = torch.cat([getattr(part, name) for part in parts])
        bits = values.view(torch.int32) if values.is_floating_point() else values
        out = torch.empty_like(bits)
        spread_rows(back, indptr.numpy(), bits.numpy(), ordered.numpy(), out.numpy())
        columns[name] = out.view(values.dtype)
    return Neighbours(ordered, **columns)
