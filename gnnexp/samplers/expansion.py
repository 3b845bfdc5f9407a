"""Expand targets into blocks: call the sampling kernels hop by hop, and manage their memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import BlockNeeds
from gnnexp.kernels.pool import Pool
from gnnexp.kernels.samplers import ordered
from gnnexp.kernels.samplers import sample as kernels
from gnnexp.kernels.samplers.ordered import FirstLoop, SecondLoop
from gnnexp.samplers.base import largest_degree_of
from gnnexp.samplers.layerwise import Neighbours, values_of_edges
from gnnexp.samplers.vertex_map import VertexMap, VertexMaps

_ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)
_NOTHING = np.empty(0, np.int64)
# For hops with fewer destinations or edges, waking a second thread costs more than it saves.
SERIAL_ROWS, SERIAL_EDGES = 1 << 13, 1 << 15
# Takes memory `[E]` int32 for the places of a hop's sources.
Second = Callable[[np.ndarray], SecondLoop]


@dataclass
class _Workspace(VertexMap):
    """The map of `kernels.relabel_sources`, and working memory for one batch at a time.

    Attributes:
        starts: `[D]` int64 position in the graph at which the edges of each destination start.
        room: `[D]` uint32 degree minus fanout of each destination, see `kernels.count_hop`.
        keys: `[ROUND]` uint64 keys of the destinations of a round.
        chosen: uint32 draws of a round.
        taken: uint8 marks of drawn edges, zero between uses.
        ring: `[2^k]` int64 positions of the edges of two rounds.
    """

    starts: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    room: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint32))
    keys: np.ndarray = field(default_factory=lambda: np.empty(kernels.ROUND, np.uint64))
    chosen: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint32))
    taken: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint8))
    ring: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))


def _grown(array: np.ndarray, size: int, keep: int = 0) -> np.ndarray:
    """`array` if it has `size` entries, else a new array of 1.5 `size` entries with the first `keep` values."""
    if array.size >= size:
        return array
    larger = np.zeros(size + size // 2, array.dtype)
    larger[:keep] = array[:keep]
    return larger


class Expansion:
    """Expands targets into blocks. Several threads may call it at the same time: each call has its own memory."""

    def __init__(
        self,
        graph: Graph,
        needs: BlockNeeds,
        hops: Sequence[int],
        names: Tensor | None = None,
        pool: Pool | None = None,
        spare: list[Any] | None = None,
    ) -> None:
        """Store the graph.

        Args:
            graph: topology, with int32 or int64 `indices`.
            needs: data that blocks must have.
            hops: fanout of every hop, target hop first, -1 for all neighbours.
            names: `[V]` original ids, which key the draws, if the graph is a part with local ids.
            pool: memory of the blocks; None: a new pool.
            spare: maps of vertices that expansions of the same graph share; None: its own.

        Raises:
            DataError: a vertex has too many edges to draw from.
        """
        self._graph, self._needs = graph, needs
        self._names = np.empty(0, graph.indices.numpy().dtype) if names is None else names.numpy()
        self._indptr, self._indices = graph.indptr.numpy(), graph.indices.numpy()
        self._occurrence = graph.occurrence if needs.edge_identity else None
        # The type is part of an edge's identity, so a model that needs the identity gets the types too.
        self._types = graph.edge_types if needs.edge_types or needs.edge_identity else None
        self._weights = graph.edge_weights
        self._maps: VertexMaps[_Workspace] = VertexMaps(self._workspace, spare)
        # Background threads make batches. Without a pool, glibc would give them fresh pages for large buffers.
        self._pool = Pool() if pool is None else pool
        self._hops, self._largest = tuple(hops), 0
        if max(hops) >= kernels.LARGE_FANOUT or graph.num_edges >= 1 << 32:
            self._largest = largest_degree_of(graph)
            # A fanout above the largest degree takes all edges too, but needs more working memory.
            self._hops = tuple(min(fanout, max(self._largest, 1)) for fanout in hops)

    def blocks(self, seeds: Tensor, hop_keys: Sequence[int], threads: int = 1) -> tuple[Block, ...]:
        """Blocks of a batch, input side first; the same for any number of threads.

        Args:
            seeds: `[T]` unique vertex ids.
            hop_keys: key of the random stream of each hop, target hop first.
            threads: number of threads that work on each hop.

        Raises:
            ValueError: a seed is out of range or repeated.
        """
        with self._maps.lent() as space:
            return self._expand(space, seeds.to(torch.int64).contiguous().numpy(), hop_keys, threads)

    def _workspace(self) -> _Workspace:
        table = torch.zeros(self._graph.num_nodes, dtype=torch.int32).numpy()
        return _Workspace(table, np.empty(0, self._indices.dtype))

    def _expand(self, space: _Workspace, seeds: np.ndarray, hop_keys: Sequence[int], threads: int) -> tuple[Block, ...]:
        count = int(seeds.size)
        space.vertices = _grown(space.vertices, count)
        placed = kernels.place_seeds(seeds, space.table, space.base, space.vertices)
        if placed < count:
            raise ValueError(f"seed {seeds[placed]} (number {placed}) is repeated or not in 0..{space.table.size - 1}")
        parts = []
        for fanout, key in zip(self._hops, hop_keys, strict=True):
            indptr, sources, positions, total = self._hop(space, count, fanout, np.uint64(key), threads)
            parts.append((indptr, sources, positions, count, total))
            count = total
        space.base += count
        # Not torch's copy: it would start OpenMP threads, which then keep cores busy that other threads could use.
        kept = self._pool.empty((count,), space.vertices.dtype)
        kept[:] = space.vertices[:count]
        vertices = torch.from_numpy(kept)
        return tuple(self._block(vertices, *part) for part in reversed(parts))

    def neighbours(
        self, frontier: Tensor, hop: int, hop_key: int, threads: int = 1, second: Second | None = None
    ) -> tuple[Neighbours, tuple[int, int]]:
        """Edges of one hop without added self loops, and what the second loop returns (`LayerSampler.sample_placed`).

        Args:
            frontier: `[D]` vertex ids in any order; repetitions are allowed.
            hop: number of the hop, target hop first.
            hop_key: key of the random stream of the hop.
            threads: number of threads that work on the hop.
            second: function that takes memory for places and returns the second loop. The edges then have places
                instead of ids. None: they have ids, and the numbers are zeros.
        """
        vertices, key = frontier.contiguous().numpy(), np.uint64(hop_key)
        with self._maps.lent() as space:
            indptr, ids, positions, counts = self._draw(
                space, vertices, vertices.size, self._hops[hop], 0, key, threads, second
            )
        return Neighbours(indptr, torch.from_numpy(ids), **self._of_edges(positions)), counts

    def _hop(
        self, space: _Workspace, count: int, fanout: int, key: np.uint64, threads: int
    ) -> tuple[Tensor, Tensor, Tensor | None, int]:
        """One hop: `(indptr [D + 1], sources [E], positions [E] or None, number of sources)`."""

        def second(sources: np.ndarray) -> SecondLoop:
            most = min(self._graph.num_nodes, count + sources.size)
            space.check_room(most)
            space.vertices = _grown(space.vertices, most + 1, keep=count)
            return SecondLoop(space.table, space.base, space.vertices, count, sources)

        loops = int(self._needs.self_loops)
        indptr, ids, positions, (known, _) = self._draw(
            space, space.vertices, count, fanout, loops, key, threads, second
        )
        return indptr, torch.from_numpy(ids), positions, known

    def _draw(
        self,
        space: _Workspace,
        vertices: np.ndarray,
        count: int,
        fanout: int,
        loops: int,
        key: np.uint64,
        threads: int,
        second: Second | None,
    ) -> tuple[Tensor, np.ndarray, Tensor | None, tuple[int, int]]:
        """`(indptr [D + 1], source ids [E], positions [E] or None)` of the edges that `vertices[:count]` draw.

        With a second loop, places are returned instead of ids. The last value is what the loop returns, else zeros.
        """
        indptr = torch.from_numpy(self._pool.empty((count + 1,), np.int64))
        total = self._count(space, vertices, count, fanout, loops, indptr.numpy(), threads)
        wanted = self._needs.edge_ids or any(kind is not None for kind in self._kinds.values())
        positions = torch.empty(total, dtype=torch.int64) if wanted else None
        ids = self._pool.empty((total,), self._indices.dtype)
        # Places overwrite the ids, unless ids are wider.
        sources = ids if second is None or ids.dtype == np.int32 else self._pool.empty((total,), np.int32)
        after = None if second is None else second(sources)
        if threads > 1 and total >= SERIAL_EDGES:
            first = FirstLoop(
                self._indices,
                vertices,
                self._names,
                count,
                fanout,
                loops,
                key,
                space.starts,
                space.room,
                indptr.numpy(),
                self._largest,
                _NOTHING if positions is None else positions.numpy(),
                ids,
            )
            return indptr, sources, positions, ordered.in_ranges(first, after, threads)
        self._find(space, vertices, count, fanout, loops, key, indptr.numpy(), positions, ids)
        return indptr, sources, positions, (0, 0) if after is None else after.run(ids)

    def _count(
        self,
        space: _Workspace,
        vertices: np.ndarray,
        count: int,
        fanout: int,
        loops: int,
        indptr: np.ndarray,
        threads: int,
    ) -> int:
        """Number of edges that `vertices[:count]` draw; fills `indptr` and the workspace."""
        space.starts, space.room = _grown(space.starts, count), _grown(space.room, count)
        arguments = (fanout, loops, space.starts, space.room, indptr)
        if threads > 1 and count >= SERIAL_ROWS:
            return ordered.count_in_ranges(self._indptr, vertices, count, *arguments, threads)
        return int(kernels.count_hop(self._indptr, vertices, 0, count, *arguments))

    def _find(
        self,
        space: _Workspace,
        vertices: np.ndarray,
        count: int,
        fanout: int,
        loops: int,
        key: np.uint64,
        indptr: np.ndarray,
        positions: Tensor | None,
        ids: np.ndarray,
    ) -> None:
        """Fill `ids` with the source of every edge of a hop, and `positions` unless it is None."""
        starts = space.starts
        if fanout < 0:
            places = _NOTHING if positions is None else positions.numpy()
            kernels.copy_hop(self._indices, vertices, 0, count, loops, starts, indptr, places, ids)
            return
        width = kernels.round_width(fanout)
        space.chosen = _grown(space.chosen, fanout * width)
        if fanout >= kernels.LARGE_FANOUT:
            space.taken = _grown(space.taken, self._largest)
        if positions is None:
            size = 1 << (2 * width * (fanout + loops) - 1).bit_length()
            space.ring = space.ring if space.ring.size >= size else np.empty(size, np.int64)
            places, mask = space.ring, np.uint64(space.ring.size - 1)
        else:
            places, mask = positions.numpy(), _ALL_BITS
        kernels.sample_hop(
            self._indices,
            vertices,
            self._names,
            0,
            count,
            fanout,
            loops,
            key,
            starts,
            space.room,
            indptr,
            space.keys,
            space.chosen,
            space.taken,
            places,
            mask,
            ids,
        )

    @property
    def _kinds(self) -> dict[str, Tensor | None]:
        """Data of all edges of the graph that blocks need, by field of `Block`."""
        return {"occurrence": self._occurrence, "edge_types": self._types, "weight": self._weights}

    def _of_edges(self, positions: Tensor | None) -> dict[str, Any]:
        """Data of the edges at `positions` `[E]`, by field of `Block`."""
        return {
            name: values_of_edges(values, positions)
            for name, values in self._kinds.items()
            if values is not None and positions is not None
        }

    def _block(
        self, vertices: Tensor, indptr: Tensor, sources: Tensor, positions: Tensor | None, num_dst: int, num_src: int
    ) -> Block:
        return Block(
            indptr,
            sources,
            vertices[:num_src],
            num_dst,
            edge_ids=positions if self._occurrence is not None or self._needs.edge_ids else None,
            self_loops=self._needs.self_loops,
            **self._of_edges(positions),
        )
