"""Expand targets into blocks on a device, with the same draws and the same blocks as `Expansion` on the host.

The host waits once for each batch. All hops are launched before any size is known. So arrays have the size of an upper
bound, and the sizes of all hops come to the host together at the end. Blocks are views of these arrays. A hop that
takes all neighbours has no useful bound, and a bound may be too large for memory. Such a hop waits once more.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.samplers.device_hops import DeviceTopology, HopEdges
from gnnexp.samplers.device_vertices import VertexTables, Vertices


class DeviceExpansion:
    """Expands targets into blocks on a device. Several threads may call it at the same time.

    Args:
        topology: the whole topology on the device.
    """

    def __init__(self, topology: DeviceTopology) -> None:
        self._topology, self._tables = topology, VertexTables(topology.num_nodes, topology.device)

    def blocks(self, seeds: Tensor, hop_keys: Sequence[int]) -> tuple[tuple[Block, ...], Tensor]:
        """Blocks of a batch on the device, input side first, and the `[S]` input vertices on the host.

        Args:
            seeds: `[T]` unique vertex ids on the host.
            hop_keys: key of the random stream of each hop, target hop first.

        Raises:
            ValueError: a seed is out of range or repeated, or the batch is too large.
        """
        topology = self._topology
        targets, keys = topology.seeded(seeds, hop_keys)
        with self._tables.lent() as table:
            vertices, hops = Vertices(topology, table, targets), []
            for number in range(len(hop_keys)):
                drawn = topology.draw(
                    vertices.real,
                    vertices.count,
                    number,
                    keys[number : number + 1],
                    loops=topology.loops,
                    edge_ids=topology.needs.edge_ids,
                )
                vertices.limit(drawn.size)
                most_new = drawn.ids.numel() - topology.loops * drawn.size
                hops.append((drawn, vertices.add(drawn.ids, drawn.total, most_new)))
            known, edges, ids = vertices.read_back(vertices.counts, [drawn.total for drawn, _ in hops])
        check_seeds(known[0], seeds.numel())
        blocks = (
            self._block(vertices.ids[: known[number + 1]], known[number], edges[number], *hops[number])
            for number in reversed(range(len(hops)))
        )
        return tuple(blocks), ids

    def _block(self, src_ids: Tensor, num_dst: int, num_edges: int, drawn: HopEdges, sources: Tensor) -> Block:
        """Views of the real entries."""
        topology, positions = self._topology, None if drawn.positions is None else drawn.positions[:num_edges]
        return Block(
            drawn.bounds[: num_dst + 1],
            sources[:num_edges],
            src_ids,
            num_dst,
            edge_ids=positions if "occurrence" in topology.kinds or topology.needs.edge_ids else None,
            self_loops=topology.needs.self_loops,
            **topology.of_edges(positions),
        )


def check_seeds(known: int, num_seeds: int) -> None:
    """Check that seeds are unique.

    Raises:
        ValueError: they are not.
    """
    if known < num_seeds:
        raise ValueError(f"{num_seeds - known} of {num_seeds} seeds are repeated")
