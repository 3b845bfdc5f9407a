"""The topology of a rank on a device, and the steps of a hop there, for which the host need not know any size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor

from gnnexp.errors import RunError
from gnnexp.graph.block import BatchKey
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import BlockNeeds
from gnnexp.kernels.counter import Purpose, stream, streams
from gnnexp.kernels.crossing import across
from gnnexp.kernels.samplers import hop
from gnnexp.kernels.words import signed
from gnnexp.ops.backends import has_nvidia_gpu_build, has_triton, is_interpreted
from gnnexp.samplers.base import largest_degree_of

# Above this number of edges, a hop waits for its exact size: 32 bytes per edge would be held for a bound.
MOST_BOUND = 1 << 25
# A destination's draws are in registers. With more draws they would spill (tests/kernels/cuda/test_sample.py).
MOST_FANOUT = 2048


class HopKernels(Protocol):
    """The steps of a hop, in Triton (`kernels.cuda.sample`) or in plain torch (`kernels.samplers.hop`)."""

    def count_edges(self, indptr: Tensor, vertices: Tensor, count: Tensor, fanout: int, loops: int) -> Tensor:
        """`[D]` int64 number of edges of each of the first `count` vertices; 0 for others."""

    def draw_edges(
        self,
        indptr: Tensor,
        indices: Tensor,
        names: Tensor | None,
        vertices: Tensor,
        count: Tensor,
        fanout: int,
        loops: int,
        keys: Tensor,
        bounds: Tensor,
        num_edges: int,
        wants_positions: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """`[num_edges]` source of each edge, and int64 position of each edge in the graph (-1: self loop) or None.

        `keys` `[1]` is the key of all draws, or `[D]` a key for each vertex.
        """

    def relabel(
        self,
        ids: Tensor,
        total: Tensor,
        table: Tensor,
        most: int,
        vertices: Tensor,
        count: Tensor,
        known: Tensor,
    ) -> Tensor:
        """`[E]` int32 position of each source in `vertices`; appends new vertices and writes their number to `known`.

        Args:
            ids: `[E]` source of each edge, -1 for none; the first `total` are real.
            total: `[1]`.
            table: `[V + 1]` int32. The position of a vertex of the batch, which is below `most`; larger for others.
            most: upper bound for the number of vertices after this call.
            vertices: `[most + 1]` or larger; the first `count` are known.
            count: `[1]` number of vertices so far.
            known: `[1]`, set to the new number of vertices.
        """


def kernels_for(device: torch.device, kernel: str = "triton") -> HopKernels:
    """The steps of a hop: in Triton if the layers of the run use Triton (`kernel`), else in plain torch.

    An emulated GPU (`emulated_gpu`) runs kernels of Triton only if Triton interprets them.
    """
    can_run = device.type == "cuda" and (has_nvidia_gpu_build() or is_interpreted())
    if kernel == "triton" and can_run and has_triton():
        from gnnexp.kernels.cuda import sample

        return cast("HopKernels", sample)
    return cast("HopKernels", hop)


class HopEdges(NamedTuple):
    """The edges that destinations drew. Arrays may be longer than their real entries.

    Attributes:
        bounds: `[D + 1]` int64; edges of destination d are `bounds[d]:bounds[d + 1]`.
        ids: `[E]` source of each edge.
        positions: `[E]` int64 position of each edge in the graph, -1 for a self loop; None if no data is needed.
        size: upper bound for the number of destinations, exact if the draw waited for it.
    """

    bounds: Tensor
    ids: Tensor
    positions: Tensor | None
    size: int

    @property
    def total(self) -> Tensor:
        """`[1]` number of real edges."""
        return self.bounds[-1:]


class DeviceTopology:
    """The topology that a rank samples from, on a device. Several threads may call it at the same time.

    Data of edges may be in pinned host memory, which kernels of the GPU read over the link. The bounds of the vertices'
    edges are always on the device.

    Attributes:
        device: where everything is. A CPU works, too.
        needs: data that blocks must have.
        loops: 1 if each destination gets an added self loop, else 0.
        num_nodes: V.
        kinds: data of all edges that blocks need, by field of `Block`.
        far: whether data of edges is in host memory.
        kernels: the steps of a hop.
    """

    def __init__(
        self,
        graph: Graph,
        needs: BlockNeeds,
        hops: Sequence[int],
        device: torch.device,
        names: Tensor | None = None,
        kernels: HopKernels | None = None,
        pin: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """Copy the topology to the device.

        Args:
            graph: topology.
            needs: data that blocks must have.
            hops: fanout of every hop, target hop first, at most `MOST_FANOUT`; -1 for all neighbours.
            device: where blocks are made.
            names: `[V]` original ids, which key the draws, if the graph is a part with local ids.
            kernels: the steps of a hop; None: those for the device.
            pin: gives the pinned copy of data of all edges, for kernels in Triton; None: the data is on the device.

        Raises:
            DataError: a vertex has too many edges to draw from.
        """
        self.kernels = kernels_for(device) if kernels is None else kernels
        self.needs, self.loops, self.device = needs, int(needs.self_loops), device
        self.num_nodes, self._num_edges = graph.num_nodes, graph.num_edges
        # A fanout above the largest degree takes all edges too, and needs more memory.
        largest = max(1, largest_degree_of(graph))
        self.fanouts = tuple(min(fanout, largest) for fanout in hops)
        self._pin, self.far = pin, pin is not None
        self._indptr, self._indices = graph.indptr.to(device), self._held(graph.indices)
        self._names = None if names is None else names.to(device)
        kinds = {
            "occurrence": graph.occurrence if needs.edge_identity else None,
            "edge_types": graph.edge_types if needs.edge_types or needs.edge_identity else None,
            "weight": graph.edge_weights,
        }
        self.kinds = {name: self._held(values) for name, values in kinds.items() if values is not None}

    def _held(self, values: Tensor) -> Tensor:
        """Data of edges where it stays; one entry if there are no edges, because an index needs a value to read."""
        if not values.numel():
            return values.new_zeros(1, device=self.device)
        return values.to(self.device) if self._pin is None else self._pin(values)

    def far_bytes(self, num_edges: int) -> int | None:
        """Bytes that kernels read in host memory to draw `num_edges` edges with their data; None if nothing is there.

        Added self loops are not drawn.
        """
        if not self.far:
            return None
        return num_edges * sum(values.element_size() for values in (self._indices, *self.kinds.values()))

    def seeded(self, seeds: Tensor, keys: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Seeds `[T]` in the dtype of ids, and int64 keys `[k]`, on the device: one copy.

        Args:
            seeds: `[T]` vertex ids on the host.
            keys: k words of 64 bits.

        Raises:
            ValueError: a seed is out of range.
        """
        low, high = torch.aminmax(seeds) if seeds.numel() else (0, -1)
        if low < 0 or high >= self.num_nodes:
            place = int(torch.nonzero((seeds < 0) | (seeds >= self.num_nodes))[0])
            raise ValueError(f"seed {int(seeds[place])} (number {place}) is not in 0..{self.num_nodes - 1}")
        words = torch.tensor([signed(key) for key in keys], dtype=torch.int64)
        packet = across(torch.cat((words, seeds.long())), self.device)
        return packet[len(keys) :].to(self._indices.dtype), packet[: len(keys)]

    def draw(
        self,
        vertices: Tensor,
        count: Tensor,
        number: int,
        keys: Tensor,
        *,
        loops: int,
        edge_ids: bool = False,
        times: int = 1,
    ) -> HopEdges:
        """The edges that vertices draw in a hop.

        Args:
            vertices: `[D]` vertices, of which the first `count` are real.
            count: `[1]`.
            number: number of the hop, target hop first.
            keys: `[1]` or `[D]` keys of the draws.
            loops: 1 to add a self loop to every destination, else 0.
            edge_ids: whether positions are wanted even if no data of edges is.
            times: most occurrences of a vertex.
        """
        fanout, size = self.fanouts[number], vertices.numel()
        lengths = self.kernels.count_edges(self._indptr, vertices, count, fanout, loops)
        bounds = lengths.new_zeros(size + 1)
        torch.cumsum(lengths, 0, out=bounds[1:])
        bound = min(size * fanout, times * self._num_edges) + loops * size
        wanted = edge_ids or bool(self.kinds)
        if fanout < 0 or bound > MOST_BOUND:  # no useful bound: the second kind of wait
            size, bound = torch.cat((count, bounds[-1:])).tolist()
            bounds = bounds[: size + 1]
        if fanout >= 0:
            return HopEdges(
                bounds,
                *self.kernels.draw_edges(
                    self._indptr,
                    self._indices,
                    self._names,
                    vertices[:size],
                    count,
                    fanout,
                    loops,
                    keys,
                    bounds,
                    bound,
                    wanted,
                ),
                size,
            )
        ids, positions = self._all(vertices[:size], bounds, bound, loops)
        return HopEdges(bounds, ids, positions if wanted else None, size)

    def _all(self, vertices: Tensor, bounds: Tensor, num_edges: int, loops: int) -> tuple[Tensor, Tensor]:
        """Source and position of all edges of the vertices."""
        rows = torch.repeat_interleave(bounds.diff(), output_size=num_edges)
        own = vertices[rows]
        offset = torch.arange(num_edges, device=own.device) - bounds[rows]
        positions = self._indptr[own.long()] + offset
        if not loops:
            return self._sources(positions), positions
        looped = offset == (bounds.diff() - 1)[rows]
        positions = torch.where(looped, -1, positions)
        return torch.where(looped, own, self._sources(positions if self.far else positions.clamp(min=0))), positions

    def _sources(self, positions: Tensor) -> Tensor:
        return self.taken(self._indices, positions) if self.far else self._indices[positions]

    def of_edges(self, positions: Tensor | None) -> dict[str, Any]:
        """Data of the edges at `positions` `[E]`, by field of `Block`."""
        return {} if positions is None else {name: self.taken(values, positions) for name, values in self.kinds.items()}

    def taken(self, values: Tensor, positions: Tensor) -> Tensor:
        """Data of the edges at `positions` `[E]`: `values` are `kinds`, or the sources of all edges."""
        if not self.far:
            return taken(values, positions)
        from gnnexp.kernels.cuda.sample import take_edges

        return take_edges(values, positions)


def taken(values: Tensor, positions: Tensor) -> Tensor:
    """`samplers.layerwise.values_of_edges` without a wait for the device."""
    return torch.where(positions < 0, 1 if values.is_floating_point() else -1, values[positions.clamp(min=0)])


def hop_key(key: BatchKey, number: int) -> int:
    """The key of the random stream of a hop, target hop first."""
    return stream(key.seed, Purpose.SAMPLE, key.epoch, key.step, key.micro, number)


def hop_keys(key: BatchKey, count: int) -> list[int]:
    """`hop_key` of the first `count` hops."""
    return streams(count, key.seed, Purpose.SAMPLE, key.epoch, key.step, key.micro)


def assert_same(of_device: Sequence[Sequence[Tensor]], of_host: Sequence[Sequence[Tensor]]) -> None:
    """Check that the arrays of each layer that were made on a device are those of the host.

    Raises:
        RunError: they are not.
    """
    for number, (layer, other) in enumerate(zip(of_device, of_host, strict=True)):
        if not all(torch.equal(array.cpu(), expected) for array, expected in zip(layer, other, strict=True)):
            raise RunError(
                f"the GPU and the host sampled different blocks of layer {number + 1} from the same draws: "
                "this is an error of gnnexp on this GPU. Set sampler.device=cpu, and please report it"
            )
