"""DGL's neighbour sampler: the reference for measurements and checks of other samplers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from gnnexp.components.facts import GraphFacts
from gnnexp.components.packages import is_installed, missing_package
from gnnexp.errors import Problem
from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import BlockNeeds, Shard
from gnnexp.graph.sparse import ends
from gnnexp.kernels.counter import Purpose, stream
from gnnexp.kernels.samplers.sample import append_self_loops
from gnnexp.samplers.base import Key, Topology
from gnnexp.samplers.layerwise import (
    LayerSampler,
    LayerSamplerOptions,
    Neighbours,
    Relabelling,
    relabelled_block,
    values_of_edges,
)


def dgl_graph(graph: Graph) -> Any:  # noqa: ANN401
    """`graph` as a DGLGraph for sampling, in CSC format only; edge ids are canonical positions.

    Ids are int64, because DGL 1.1.3's fused sampler corrupts int32 CPU graphs from its second call on. Edge ids are not
    stored, which would make DGL slower: DGL numbers CSC edges by position.
    """
    os.environ.setdefault("DGLBACKEND", "pytorch")
    import dgl

    topology: Any = ("csc", (graph.indptr, graph.indices.to(torch.int64), []))
    return dgl.graph(topology, num_nodes=graph.num_nodes).formats("csc")


class DGLRelabelling:
    """`dgl.to_block` on the COO edges of each hop: the usual second step, which FastSample's kernel avoids."""

    def __init__(self, seeds: Tensor, num_nodes: int) -> None:
        self._ids, self._num_nodes = seeds, num_nodes

    @property
    def ids(self) -> Tensor:
        """`[S]` original ids so far."""
        return self._ids

    def block(self, drawn: Neighbours, needs: BlockNeeds) -> Block:
        """The block of the edges that `ids` drew; adds their sources to `ids`."""
        import dgl

        frontier = self._ids.to(torch.int64)
        destinations = torch.repeat_interleave(frontier, drawn.indptr[1:] - drawn.indptr[:-1])
        graph = dgl.graph((drawn.ids.to(torch.int64), destinations), num_nodes=self._num_nodes)
        dgl_block = dgl.to_block(graph, frontier)
        indptr, sources, order = dgl_block.adj_tensors("csc")
        if order.numel():  # positions of the block's edges among those drawn
            drawn = drawn._replace(**{name: kind[order] for name, kind in drawn.of_edges.items()})
        count = frontier.numel()
        self._ids = dgl_block.srcdata[dgl.NID].to(drawn.ids.dtype)
        return relabelled_block(drawn._replace(indptr=indptr), sources.to(torch.int32), self._ids, count, needs)


@cache
def _drawing_thread() -> ThreadPoolExecutor:
    """The thread of this process that makes all of DGL's draws.

    The seed and the map of DGL's fused sampler are shared state. DGL also adds a number to the seed: how many other
    threads of the process drew before the calling thread. With new prefetching threads in every epoch, draws would
    depend on the number of epochs.
    """
    return ThreadPoolExecutor(1, thread_name_prefix="dgl")


def in_drawing_thread(draw: Callable[[], Any]) -> Any:  # noqa: ANN401
    """The result of `draw`, called in the drawing thread with as many OpenMP threads as the caller has."""
    threads = torch.get_num_threads()

    def run() -> Any:  # noqa: ANN401
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        return draw()

    return _drawing_thread().submit(run).result()


@dataclass(frozen=True)
class DGLOptions(LayerSamplerOptions):
    """`dgl.dataloading.NeighborSampler` (1.1.3) with the interface of gnnexp.

    The batch key seeds DGL's generators. So a run with one OpenMP thread is repeatable, also after a resume. But a draw
    does not depend on its vertex only: with any `sampler.key`, 1 worker and 8 workers draw different global batches
    (`exact_key`).

    Attributes:
        fanouts: most neighbours per destination, target hop first.
        fused: whether to use DGL's fused sampler, its default. False: `sample_neighbors`, then `to_block`, the
            baseline of the FastSample paper.
        key: recorded only.
        topology, threads, prefetch: see `SamplerOptions`.
    """

    exact_key = False

    fanouts: Sequence[int]
    fused: bool = True
    key: Key = "global"
    topology: Topology = "replicated"
    threads: int = 1
    prefetch: int = 2

    def problems(self) -> list[Problem]:
        """Options outside of their ranges; or DGL is not installed."""
        missing = [] if is_installed("dgl") else [missing_package("sampler", "dgl", "dgl", "sampler=fused")]
        return [*super().problems(), *missing]

    def held_bytes(self, facts: GraphFacts, num_edges: int, num_parts: int) -> int:
        """The estimate of `SamplerOptions`, and the bytes of DGL's copy."""
        drawn = num_edges if self.topology == "replicated" else -(-num_edges // num_parts)
        return super().held_bytes(facts, num_edges, num_parts) + 8 * drawn

    def make(self) -> DGLSampler:
        """The sampler of a rank."""
        return DGLSampler(self)


class DGLSampler(LayerSampler):
    """DGL's code, on DGL's copy of the topology."""

    options: DGLOptions

    def setup(self, shard: Shard, num_layers: int) -> None:
        """Copy the topology into DGL as int64, 8 bytes per edge."""
        super().setup(shard, num_layers)
        hops, graph = self.options.hops(num_layers), self.topology_of(shard)
        self._dgl_graph = dgl_graph(graph)
        import dgl

        self._dgl = dgl
        self._sampler = dgl.dataloading.NeighborSampler(list(reversed(hops)), fused=self.options.fused)
        self._graph = graph
        self._occurrence = graph.occurrence if shard.needs.edge_identity else None
        typed = shard.needs.edge_types or shard.needs.edge_identity
        self._types = graph.edge_types if typed else None

    def topology_bytes(self, shard: Shard) -> int:
        """Bytes of the topology, and of DGL's int64 copy of the sources."""
        return super().topology_bytes(shard) + 8 * self.topology_of(shard).num_edges

    def sample(self, seeds: Tensor, key: BatchKey, global_count: int = 0) -> Batch:
        """The blocks of one batch; calls from several threads take turns."""

        def draw() -> Any:  # noqa: ANN401
            self._dgl.seed(_seed(key, 0))
            return self._sampler.sample_blocks(self._dgl_graph, seeds.to(torch.int64))

        _, _, sampled = in_drawing_thread(draw)
        return Batch(seeds, tuple(self._block(block) for block in sampled), key, global_count)

    def sample_layer(self, frontier: Tensor, hop: int, key: BatchKey) -> Neighbours:
        """One hop by `dgl.sampling.sample_neighbors`."""
        fanouts = self.options.fanouts

        def draw() -> Any:  # noqa: ANN401
            self._dgl.seed(_seed(key, hop))
            return self._dgl.sampling.sample_neighbors(self._dgl_graph, frontier.to(torch.int64), fanouts[hop])

        sampled = in_drawing_thread(draw)
        sources, destinations = sampled.edges(order="eid")
        positions = sampled.edata[self._dgl.EID]
        # DGL returns edges seed by seed, in the order of the seeds.
        place = torch.empty(self._graph.num_nodes, dtype=torch.int64)
        place[frontier.long()] = torch.arange(frontier.numel())
        counts = torch.bincount(place[destinations], minlength=frontier.numel())
        return Neighbours(ends(counts), sources.to(self._graph.indices.dtype), **self._of_edges(positions))

    @contextmanager
    def relabelling(self, seeds: Tensor) -> Iterator[Relabelling]:
        """Relabelling by `dgl.to_block`, as in systems that are built on DGL."""
        yield DGLRelabelling(seeds.to(self._graph.indices.dtype), self._graph.num_nodes)

    def _block(self, sampled: Any) -> Block:  # noqa: ANN401
        indptr, sources, order = sampled.adj_tensors("csc")
        positions = sampled.edata[self._dgl.EID]
        if order.numel():
            positions = positions[order]
        sources, vertices = sources.to(torch.int32), sampled.srcdata[self._dgl.NID]
        if self._needs.self_loops:
            arrays = append_self_loops(indptr.numpy(), sources.numpy(), positions.numpy())
            indptr, sources, positions = map(torch.from_numpy, arrays)
        block = Block(
            indptr,
            sources,
            vertices.to(self._graph.indices.dtype),
            int(sampled.num_dst_nodes()),
            edge_ids=None if self._occurrence is None else positions,
            self_loops=self._needs.self_loops,
        )
        return replace(block, **self._of_edges(positions))

    def _of_edges(self, positions: Tensor) -> dict[str, Any]:
        """Data of the edges at `positions` `[E]`, by field of `Block`."""
        kinds = {"occurrence": self._occurrence, "edge_types": self._types, "weight": self._graph.edge_weights}
        return {name: values_of_edges(values, positions) for name, values in kinds.items() if values is not None}


def _seed(key: BatchKey, hop: int) -> int:
    return stream(key.seed, Purpose.SAMPLE, key.epoch, key.step, key.micro, hop) & 0x7FFFFFFF
