"""Split a batch over ranks on their devices, with the same draws and the same blocks as `samplers.split` on the host.

The host waits once for each exchange of ids, because other ranks must know its size, and once at the end of the batch.
The ids come to the host with their number, and gloo exchanges them. A thread that prepares batches must not use NCCL
next to the training loop. Received ids cross in one pinned copy. Everything else stays on the device.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.shuffle import ShuffleIndex
from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.shard import Shard
from gnnexp.kernels.crossing import across, back
from gnnexp.kernels.samplers.hop import sort_by_owner
from gnnexp.samplers.device_expansion import check_seeds
from gnnexp.samplers.device_hops import DeviceTopology, HopEdges, assert_same, hop_keys
from gnnexp.samplers.device_vertices import VertexTables, Vertices, relabelled
from gnnexp.samplers.layerwise import LayerSampler
from gnnexp.samplers.split import SplitBatch, Splitter


class SamplesSplits(Protocol):
    """`Splitter` or `DeviceSplitter`."""

    def sample(self, local_targets: Tensor, key: BatchKey, global_count: int) -> SplitBatch:
        """This rank's split of a global batch."""


def splitter(sampler: LayerSampler, shard: Shard, comm: Communicator, num_hops: int) -> SamplesSplits:
    """What samples splits where the sampler is placed; arguments as for `Splitter`."""
    if sampler.device_topology is None:
        return Splitter(sampler, shard, comm, num_hops)
    return DeviceSplitter(sampler.device_topology, shard, comm, Splitter(sampler, shard, comm.uncounted(), num_hops))


class _Hop(NamedTuple):
    """One hop; arrays may be longer than their real entries.

    Attributes:
        drawn: the edges.
        sources: `[E]` int32 position of each edge's source.
        crossing: `[1]` number of edges with a foreign source.
        foreign: `[n]` foreign sources by owner.
        shuffle: index of the rows that are exchanged; the number of local rows is not known yet.
    """

    drawn: HopEdges
    sources: Tensor
    crossing: Tensor
    foreign: Tensor
    shuffle: ShuffleIndex


class DeviceSplitter:
    """Samples splits on a device. All ranks of the group sample the same batch, and all of them on devices.

    Args:
        topology: the topology of this rank on the device.
        shard: owner of each vertex.
        comm: communicator for host tensors of the ranks that share a batch, one per part.
        host: makes the first batch too, which is compared; None: nothing is compared.
    """

    def __init__(
        self, topology: DeviceTopology, shard: Shard, comm: Communicator, host: Splitter | None = None
    ) -> None:
        self._topology, self._comm, self._host = topology, comm, host
        self._owner = shard.owner.to(topology.device)
        self._tables = VertexTables(topology.num_nodes, topology.device)

    def sample(self, local_targets: Tensor, key: BatchKey, global_count: int) -> SplitBatch:
        """`Splitter.sample`.

        Raises:
            ValueError: a target is out of range or repeated, or the batch is too large.
            RunError: the blocks of the first batch differ from those of the host.
        """
        split = self._sample(local_targets, key, global_count)
        host, self._host = self._host, None
        if host is not None:
            assert_same(_arrays(split), _arrays(host.sample(local_targets, key, global_count)))
        return split

    def _sample(self, local_targets: Tensor, key: BatchKey, global_count: int) -> SplitBatch:
        topology = self._topology
        targets, keys = topology.seeded(local_targets, hop_keys(key, len(topology.fanouts)))
        with self._tables.lent() as table:
            vertices = Vertices(topology, table, targets)
            hops = [self._hop(vertices, number, keys[number : number + 1]) for number in range(keys.numel())]
            totals = [*(hop.drawn.total for hop in hops), *(hop.crossing for hop in hops)]
            local, others, ids = vertices.read_back(vertices.counts[::2], totals)
        edges, crossing = others[: len(hops)], others[len(hops) :]
        check_seeds(local[0], local_targets.numel())
        layers = [
            self._block(hop, vertices.ids, local[number], local[number + 1], edges[number])
            for number, hop in enumerate(hops)
        ]
        blocks, shuffles = zip(*reversed(layers), strict=True)
        received = sum(hop.shuffle.send_rows.numel() for hop in hops)
        batch = Batch(
            local_targets,
            blocks,
            key,
            global_count,
            host_ids=ids,
            received_bytes=received * ids.element_size(),
            far_bytes=topology.far_bytes(sum(edges) - topology.loops * sum(local[:-1])),
        )
        return SplitBatch(batch, shuffles, tuple(reversed(crossing)))

    def _hop(self, vertices: Vertices, number: int, key: Tensor) -> _Hop:
        """Draw the edges of the local frontier, and split their sources (`Splitter.split`)."""
        topology = self._topology
        drawn = topology.draw(vertices.real, vertices.count, number, key, loops=topology.loops)
        vertices.limit(drawn.size)
        most = drawn.ids.numel() - topology.loops * drawn.size
        if self._comm.size == 1:
            sources = vertices.add(drawn.ids, drawn.total, most)
            vertices.counts.append(vertices.count)
            nobody, nothing = torch.zeros_like(drawn.total), drawn.ids[:0]
            return _Hop(drawn, sources, nobody, nothing, ShuffleIndex(nothing.long(), (0,), (0,), 0))
        real = torch.arange(drawn.ids.numel(), device=drawn.ids.device) < drawn.total
        away = real & (self._owner[torch.where(real, drawn.ids, 0).long()] != self._comm.rank)
        sources = vertices.add(torch.where(away, -1, drawn.ids), drawn.total, most)
        most = min(topology.num_nodes, most)
        foreign = drawn.ids.new_empty(most + 1)
        others, count = relabelled(
            topology,
            torch.where(away, drawn.ids, -1),
            drawn.total,
            vertices.table,
            most,
            foreign,
            torch.zeros_like(drawn.total),
        )
        grouped, places, index = self._exchange(vertices, foreign[:most], count)
        vertices.table.forget(grouped)
        if places.numel():
            behind = vertices.count + places[torch.where(away, others, 0).long()]
            sources = torch.where(away, behind, sources).int()
        return _Hop(drawn, sources, away.sum(0, keepdim=True), grouped, index)

    def _exchange(self, vertices: Vertices, foreign: Tensor, count: Tensor) -> tuple[Tensor, Tensor, ShuffleIndex]:
        """Send foreign vertices to their owners, and add the own vertices that other ranks drew.

        Args:
            vertices: the local frontier.
            foreign: `[n]` foreign vertices, of which the first `count` are real.
            count: `[1]`.

        Returns:
            The real foreign vertices by owner, the `[n]` int64 position of each vertex among them, and the index by
            which rows are exchanged.
        """
        comm = self._comm
        bounds, grouped, places = sort_by_owner(foreign, count, self._owner, comm.size)
        sizes, ids = back(torch.cat((bounds, vertices.count)), grouped)
        counts, num_foreign = sizes[:-1].diff().tolist(), int(sizes[-2])
        vertices.limit(int(sizes[-1]))
        wanted, asked = comm.counted_all_to_all(ids[:num_foreign], counts, "frontier")
        arrived = across(wanted, self._topology.device)
        rows = vertices.add(arrived, torch.full_like(count, arrived.numel()), arrived.numel())
        return grouped[:num_foreign], places, ShuffleIndex(rows.long(), tuple(asked), tuple(counts), 0)

    def _block(
        self, hop: _Hop, ids: Tensor, num_dst: int, num_local: int, num_edges: int
    ) -> tuple[Block, ShuffleIndex]:
        topology, positions = self._topology, hop.drawn.positions
        block = Block(
            hop.drawn.bounds[: num_dst + 1],
            hop.sources[:num_edges],
            torch.cat((ids[:num_local], hop.foreign)) if hop.foreign.numel() else ids[:num_local],
            num_dst,
            self_loops=topology.needs.self_loops,
            **topology.of_edges(None if positions is None else positions[:num_edges]),
        )
        return block, replace(hop.shuffle, num_local=num_local)


def _arrays(split: SplitBatch) -> list[list[Tensor]]:
    """The arrays of each layer."""
    return [[*block.arrays(), index.send_rows] for block, index in zip(split.batch.blocks, split.shuffles, strict=True)]
