"""Expand targets into blocks on a device, with the same draws and the same blocks as `Expansion` on the host.

The host waits once for each batch. All hops are launched before any size is known. So arrays have the size of an upper
bound (`_bound`), and the sizes of all hops come to the host together at the end. Blocks are views of these arrays. A
hop that takes all neighbours has no useful bound, and a bound may be too large for memory. Such a hop waits once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor

from gnnexp.errors import RunError
from gnnexp.graph.block import Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import BlockNeeds
from gnnexp.kernels.crossing import across, back
from gnnexp.kernels.samplers import hop
from gnnexp.ops.backends import has_nvidia_gpu_build, has_triton, is_interpreted
from gnnexp.samplers.expansion import largest_degree_of

# Above this number of edges, a hop waits for its exact size: 32 bytes per edge would be held for a bound.
MOST_BOUND = 1 << 25
# A destination's draws are in registers. With more draws they would spill (tests/kernels/cuda/test_sample.py).
MOST_FANOUT = 2048
_TOP, _LOWEST = (1 << 31) - 1, -(1 << 31)


class HopKernels(Protocol):
    """The steps of a hop, in Triton (`kernels.cuda.sample`) or in plain torch (`kernels.samplers.hop`)."""

    def count_edges(self, indptr: Tensor, vertices: Tensor, count: Tensor, fanout: int, loops: int) -> Tensor:
        """`[D]` int64 number of edges of each of the first `count` vertices; 0 for others."""

    def draw_edges(
        self, indptr: Tensor, indices: Tensor, names: Tensor | None, vertices: Tensor, count: Tensor, fanout: int,
        loops: int, key: Tensor, bounds: Tensor, num_edges: int, wants_positions: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """`[num_edges]` source of each edge, and int64 position of each edge in the graph (-1: self loop) or None."""

    def relabel(
        self, found: Tensor, total: Tensor, table: Tensor, base: int, most: int, vertices: Tensor, count: Tensor,
        known: Tensor,
    ) -> Tensor:
        """`[E]` int32 position of each source in `vertices`; appends new vertices and writes their number to `known`.

        Args:
            found: `[E]` source of each edge; the first `total` are real.
            total: `[1]`.
            table: `[V + 1]` int32. The position of a vertex of this batch is its entry minus `base`, below `most`.
            base: smallest entry of this batch. Entries of earlier batches are larger than those of this one.
            most: upper bound for the number of vertices after this call.
            vertices: `[most + 1]` or larger; the first `count` are known.
            count: `[1]` number of vertices so far.
            known: `[1]`, set to the new number of vertices.
        """


def kernels_for(device: torch.device, kernel: str = "triton") -> HopKernels:
    """The steps of a hop: in Triton if the layers of the run use Triton (`kernel`), else in plain torch.

    An emulated GPU (`testing.emulated`) runs kernels of Triton only if Triton interprets them.
    """
    can_run = device.type == "cuda" and (has_nvidia_gpu_build() or is_interpreted())
    if kernel == "triton" and can_run and has_triton():
        from gnnexp.kernels.cuda import sample

        return cast("HopKernels", sample)
    return cast("HopKernels", hop)


@dataclass
class _Table:
    """A table for one batch at a time.

    Entries of earlier batches are larger than those of a batch, because the base moves down. So the table is not
    cleared between batches, and an entry is found by its minimum.

    Attributes:
        entries: `[V + 1]` int32; the last entry belongs to no vertex.
        base: smallest entry of the last batch.
        used: event after the last batch; None on CPU.
    """

    entries: Tensor
    base: int = _TOP
    used: torch.cuda.Event | None = None


class _Hop(NamedTuple):
    """One hop before its sizes are known: arrays with the size of an upper bound."""

    bounds: Tensor
    sources: Tensor
    positions: Tensor | None


class DeviceExpansion:
    """Expands targets into blocks on a device. Several threads may call it at the same time.

    Args:
        graph: topology, which is copied to the device.
        needs: data that blocks must have.
        hops: fanout of every hop, target hop first, at most `MOST_FANOUT`; -1 for all neighbours.
        device: where blocks are made. A CPU works, too.
        names: `[V]` original ids, which key the draws, if the graph is a part with local ids.
        kernels: the steps of a hop; None: those for the device.

    Raises:
        DataError: a vertex has too many edges to draw from.
    """

    def __init__(
        self, graph: Graph, needs: BlockNeeds, hops: Sequence[int], device: torch.device, names: Tensor | None = None,
        kernels: HopKernels | None = None,
    ) -> None:
        self._kernels = kernels_for(device) if kernels is None else kernels
        self._needs, self._loops, self._device = needs, int(needs.self_loops), device
        self._num_nodes, self._num_edges = graph.num_nodes, graph.num_edges
        # A fanout above the largest degree takes all edges too, and needs more memory.
        largest = max(1, largest_degree_of(graph))
        self._hops = tuple(min(fanout, largest) for fanout in hops)
        self._indptr, self._indices = graph.indptr.to(device), self._held(graph.indices)
        self._names = None if names is None else names.to(device)
        kinds = {"occurrence": graph.occurrence if needs.edge_identity else None,
                 "edge_types": graph.edge_types if needs.edge_types or needs.edge_identity else None,
                 "weight": graph.edge_weights}
        self._kinds = {name: self._held(values) for name, values in kinds.items() if values is not None}
        self._spare: list[_Table] = []

    def _held(self, values: Tensor) -> Tensor:
        """Data of edges on the device; one entry if there are no edges, because an index needs a value to read."""
        return values.to(self._device) if values.numel() else values.new_zeros(1, device=self._device)

    def blocks(self, seeds: Tensor, hop_keys: Sequence[int]) -> tuple[tuple[Block, ...], Tensor]:
        """Blocks of a batch on the device, input side first, and the `[S]` input vertices on the host.

        Args:
            seeds: `[T]` unique vertex ids on the host.
            hop_keys: key of the random stream of each hop, target hop first.

        Raises:
            ValueError: a seed is out of range or repeated, or the batch is too large.
        """
        outside = torch.nonzero((seeds < 0) | (seeds >= self._num_nodes))
        if outside.numel():
            place = int(outside[0])
            raise ValueError(f"seed {int(seeds[place])} (number {place}) is not in 0..{self._num_nodes - 1}")
        with self._lent(self._room(seeds.numel())) as table:
            return self._expand(seeds, hop_keys, table)

    def _expand(self, seeds: Tensor, hop_keys: Sequence[int], table: _Table) -> tuple[tuple[Block, ...], Tensor]:
        keys, most = [key - (1 << 64) if key >> 63 else key for key in hop_keys], seeds.numel()
        packet = across(torch.cat((torch.tensor(keys, dtype=torch.int64), seeds.long())), self._device)
        counts = torch.zeros(len(self._hops) + 2, dtype=torch.int64, device=self._device)
        vertices = self._indices.new_empty(most + 1)
        targets = packet[len(keys):].to(vertices.dtype)
        self._relabel(targets, torch.full_like(counts[:1], most), table, most, vertices, counts[:2])
        hops = []
        for number, fanout in enumerate(self._hops):
            count, known = counts[number + 1 : number + 2], counts[number + 1 : number + 3]
            lengths = self._kernels.count_edges(self._indptr, vertices[:most], count, fanout, self._loops)
            bounds = lengths.new_zeros(most + 1)
            torch.cumsum(lengths, 0, out=bounds[1:])
            num_edges = self._bound(most, fanout)
            if num_edges is None:
                most, num_edges = torch.cat((count, bounds[-1:])).tolist()  # the second kind of wait
                bounds = bounds[: most + 1]
            key = packet[number : number + 1]
            found, positions = self._draw(vertices[:most], count, fanout, key, bounds, num_edges)
            larger = min(self._num_nodes, most + num_edges - self._loops * most)
            grown = vertices.new_empty(larger + 1)
            grown[:most], vertices, most = vertices[:most], grown, larger
            hops.append(_Hop(bounds, self._relabel(found, bounds[-1:], table, most, vertices, known), positions))
        sizes, ids = back(torch.cat((counts, *(one.bounds[-1:] for one in hops))), vertices[:most])
        return self._blocks(sizes.tolist(), vertices, hops, seeds.numel()), ids[: int(sizes[len(hops) + 1])]

    def _bound(self, most: int, fanout: int) -> int | None:
        """Largest number of edges of a hop with at most `most` destinations; None: the hop waits for its size."""
        bound = min(most * fanout, self._num_edges) + self._loops * most
        return None if fanout < 0 or bound > MOST_BOUND else bound

    def _room(self, num_seeds: int) -> int:
        """Number of different entries that a batch may write into a table."""
        most, room = num_seeds, 2 * num_seeds
        for fanout in self._hops:
            edges = self._bound(most, fanout)
            if edges is None:  # bounds of any batch
                return min((2 + self._loops) * self._num_nodes + self._num_edges, _TOP)
            most = min(self._num_nodes, most + edges)
            room = max(room, most + edges)
        return min(room, _TOP)

    @contextmanager
    def _lent(self, room: int) -> Iterator[_Table]:
        """A table with `room` entries below those of earlier batches."""
        try:
            table = self._spare.pop()  # list.pop and append are atomic: no lock
        except IndexError:
            table = _Table(torch.full((self._num_nodes + 1,), _TOP, dtype=torch.int32, device=self._device))
        stream = torch.cuda.current_stream(self._device) if self._device.type == "cuda" else None
        if stream is not None and table.used is not None:  # another thread may use another stream
            stream.wait_event(table.used)
            table.entries.record_stream(stream)
        if table.base - room < _LOWEST:
            table.entries.fill_(_TOP)
            table.base = _TOP
        table.base -= room
        try:
            yield table
        finally:
            table.used = None if stream is None else stream.record_event()
            self._spare.append(table)

    def _relabel(
        self, found: Tensor, total: Tensor, table: _Table, most: int, vertices: Tensor, counts: Tensor
    ) -> Tensor:
        """`HopKernels.relabel`; `counts` `[2]` are the numbers of vertices before and after."""
        if most + found.numel() > _TOP:
            raise ValueError(f"a batch of {most} vertices and {found.numel()} edges in one hop: at most 2^31 together "
                             "are supported, use smaller batches or fanouts")
        if not found.numel():
            counts[1:].copy_(counts[:1])
            return found.int()
        return self._kernels.relabel(found, total, table.entries, table.base, most, vertices, counts[:1], counts[1:])

    def _draw(
        self, vertices: Tensor, count: Tensor, fanout: int, key: Tensor, bounds: Tensor, num_edges: int
    ) -> tuple[Tensor, Tensor | None]:
        wanted = self._needs.edge_ids or bool(self._kinds)
        if fanout >= 0:
            return self._kernels.draw_edges(self._indptr, self._indices, self._names, vertices, count, fanout,
                                            self._loops, key, bounds, num_edges, wanted)
        rows = torch.repeat_interleave(bounds.diff(), output_size=num_edges)
        own = vertices[rows]
        offset = torch.arange(num_edges, device=own.device) - bounds[rows]
        if not self._loops:
            positions = self._indptr[own.long()] + offset
            return self._indices[positions], positions if wanted else None
        looped = offset == (bounds[1:] - bounds[:-1] - 1)[rows]
        positions = torch.where(looped, -1, self._indptr[own.long()] + offset)
        return torch.where(looped, own, self._indices[positions.clamp(min=0)]), positions if wanted else None

    def _blocks(self, sizes: list[int], vertices: Tensor, hops: list[_Hop], num_seeds: int) -> tuple[Block, ...]:
        """Views of the real entries, input side first. `sizes`: 0, vertices before each hop and at the end, edges."""
        num_vertices, num_edges = sizes[1 : len(hops) + 2], sizes[len(hops) + 2 :]
        if num_vertices[0] < num_seeds:
            raise ValueError(f"{num_seeds - num_vertices[0]} of {num_seeds} seeds are repeated")
        return tuple(
            self._block(vertices[: num_vertices[number + 1]], num_vertices[number], num_edges[number], hops[number])
            for number in reversed(range(len(hops))))

    def _block(self, src_ids: Tensor, num_dst: int, num_edges: int, one: _Hop) -> Block:
        positions = None if one.positions is None else one.positions[:num_edges]
        block = Block(
            one.bounds[: num_dst + 1], one.sources[:num_edges], src_ids, num_dst,
            edge_ids=positions if "occurrence" in self._kinds or self._needs.edge_ids else None,
            self_loops=self._needs.self_loops,
        )
        of_edges: dict[str, Any] = {} if positions is None else {
            name: _taken(values, positions) for name, values in self._kinds.items()}
        return replace(block, **of_edges)


def _taken(values: Tensor, positions: Tensor) -> Tensor:
    """`samplers.layerwise.take` without a wait for the device."""
    return torch.where(positions < 0, 1 if values.is_floating_point() else -1, values[positions.clamp(min=0)])


def assert_same(there: Sequence[Block], host: Sequence[Block]) -> None:
    """Check that blocks that were made on a device are those of the host.

    Raises:
        RunError: they are not.
    """
    for number, (one, other) in enumerate(zip(there, host, strict=True)):
        pairs = list(zip(one.arrays(), other.arrays(), strict=True))
        if not all(torch.equal(found.cpu(), expected) for found, expected in pairs):
            raise RunError(f"the GPU and the host sampled different blocks of layer {number + 1} from the same draws: "
                           "this is an error of gnnexp on this GPU. Set sampler.device=cpu, and please report it")
