"""DGL's own neighbour sampler as the reference that others are measured and checked against."""

from __future__ import annotations

import os
from importlib.util import find_spec
from threading import Lock
from typing import Any, ClassVar

import torch
from torch import Tensor

from gnnexp.errors import ConfigError, Problem
from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import Shard
from gnnexp.kernels.counter import Purpose, stream
from gnnexp.kernels.sample import append_self_loops
from gnnexp.samplers.base import Key, Sampler, Topology
from gnnexp.samplers.expansion import take


def dgl_graph(graph: Graph) -> Any:  # noqa: ANN401
    """`graph` as a DGLGraph for sampling: int64 ids, CSC only, edge ids = canonical positions.

    int64, because DGL 1.1.3's fused sampler corrupts int32 CPU graphs from its second call on. Without explicit edge
    ids, which sampling does not need (DGL numbers CSC edges by position) and which would make DGL slower.
    """
    os.environ.setdefault("DGLBACKEND", "pytorch")
    import dgl

    topology: Any = ("csc", (graph.indptr, graph.indices.to(torch.int64), []))
    return dgl.graph(topology, num_nodes=graph.num_nodes).formats("csc")


class DGLSampler(Sampler):
    """`dgl.dataloading.NeighborSampler` (1.1.3) behind our interface.

    Draws are seeded from the batch key, so a run is repeatable on one thread. They come from DGL's generators, not from
    what a draw is for: the global batch of 1 worker is not that of 8, whatever `sampler.key` says (`exact_key`).
    """

    exact_key: ClassVar[bool] = False

    def __init__(
        self, fanouts: list[int], fused: bool = True, key: Key = "global", topology: Topology = "replicated",
        threads: int = 1, prefetch: int = 2,
    ) -> None:
        """Choose one of DGL's two code paths.

        Args:
            fanouts: target hop first.
            fused: DGL's default; False = `sample_neighbors` + `to_block`, the baseline of the FastSample paper.
            key: recorded, see the class.
            topology: `replicated`.
            threads: see `Sampler`.
            prefetch: see `Sampler`.
        """
        super().__init__(fanouts, key, topology, threads, prefetch)
        if find_spec("dgl") is None:
            raise ConfigError(Problem("sampler", "dgl", "needs the package dgl, which is not installed",
                                      "pip install 'gnnexp[dgl]', or sampler=fused"))
        self.fused = fused

    def setup(self, shard: Shard, num_layers: int) -> None:
        """Copy the topology into DGL (int64: 8 bytes per edge)."""
        hops = self.hops(num_layers)
        self._dgl_graph = dgl_graph(shard.graph)
        import dgl

        self._dgl = dgl
        self._sampler = dgl.dataloading.NeighborSampler(list(reversed(hops)), fused=self.fused)
        self._graph, self._needs = shard.graph, shard.needs
        self._occurrence = shard.graph.occurrence if shard.needs.edge_identity else None
        typed = shard.needs.edge_types or shard.needs.edge_identity
        self._types = shard.graph.edge_types if typed else None
        self._lock = Lock()  # the seed and the map of DGL's fused sampler are shared state

    def sample(self, seeds: Tensor, key: BatchKey, global_count: int = 0) -> Batch:
        """The blocks of one batch; calls from several threads take turns."""
        with self._lock:
            self._dgl.seed(stream(key.seed, Purpose.SAMPLE, key.epoch, key.step, key.micro) & 0x7FFFFFFF)
            _, _, sampled = self._sampler.sample_blocks(self._dgl_graph, seeds.to(torch.int64))
        return Batch(seeds, tuple(self._block(block) for block in sampled), key, global_count)

    def _block(self, sampled: Any) -> Block:  # noqa: ANN401
        indptr, sources, order = sampled.adj_tensors("csc")
        positions = sampled.edata[self._dgl.EID]
        if order.numel():
            positions = positions[order]
        sources, vertices = sources.to(torch.int32), sampled.srcdata[self._dgl.NID]
        if self._needs.self_loops:
            arrays = append_self_loops(indptr.numpy(), sources.numpy(), positions.numpy())
            indptr, sources, positions = map(torch.from_numpy, arrays)
        parallel, types = self._occurrence, self._types
        return Block(
            indptr, sources, vertices.to(self._graph.indices.dtype), int(sampled.num_dst_nodes()),
            edge_ids=None if parallel is None else positions,
            occurrence=None if parallel is None else take(parallel, positions),
            edge_types=None if types is None else take(types, positions),
            self_loops=self._needs.self_loops,
        )
