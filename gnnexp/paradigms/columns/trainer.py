"""Base of coupled and decoupled tensor parallelism: the whole graph in chunks, even shares of the vertices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, final

import torch
from torch import Tensor

from gnnexp.comm.tensor_split import even_sizes
from gnnexp.graph.block import Block
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.chunking import Chunking
from gnnexp.paradigms.loops.computed import AGAIN, Computed
from gnnexp.paradigms.loops.full_graph import RankGraph, WholeGraphTrainer
from gnnexp.paradigms.loops.stay import keep_resident
from gnnexp.placement.chunks import Chunk, ChunkCost
from gnnexp.samplers.expansion import Expansion


class ColumnTrainer(WholeGraphTrainer):
    """A rank has all vertices and edges, and some of the columns.

    Args:
        job: job of the rank.
        chunking: number of ranges of destinations, or a budget.
        cost: memory that a chunk takes.

    Attributes:
        whole: block of the whole graph, on the host.
        chunks: chunks of `whole`. A single chunk is on the device.
        counts_per_rank: number of vertices that each rank finishes.
    """

    def __init__(self, job: Job, chunking: Chunking, cost: ChunkCost) -> None:
        super().__init__(job)
        graph, comm = job.graph, job.comm
        self.whole = job.once.of("whole", self._whole)
        self.chunks = job.once.of("chunks", lambda: self._cut(chunking, cost))
        self._chunking, self._cost = chunking, cost
        self.counts_per_rank = even_sizes(graph.num_nodes, comm.size)
        first = sum(self.counts_per_rank[: comm.rank])
        self.own = torch.arange(first, first + self.counts_per_rank[comm.rank])

    def _whole(self) -> Block:
        graph = self.job.graph
        (whole,) = Expansion(graph, self.job.shard.needs, (-1,)).blocks(torch.arange(graph.num_nodes), (0,))
        return whole

    def _cut(self, chunking: Chunking, cost: ChunkCost) -> tuple[Chunk, ...]:
        chunks = chunking.chunks(self.whole, cost)
        return chunks if len(chunks) > 1 else (replace(chunks[0], block=self.whole.to(self.job.device)),)

    @final
    def rank_graph(self, own: Tensor, bounds: Sequence[Sequence[int]]) -> RankGraph:
        """What this rank holds: all chunks. Of the edges of a layer it computes a share, by its share of the columns.

        Args:
            own: `[n]` vertices that this rank finishes.
            bounds: for each layer, where the columns of every rank begin in its aggregation, then the number of all
                columns.
        """
        blocks = tuple(chunk.block for chunk in self.chunks)
        num_edges = sum(block.num_edges for block in blocks)
        edges = [size_of_rank(num_edges, of_layer, self.job.comm.rank) for of_layer in bounds]
        work = {"edges_computed": sum(edges), "edges_redundant": 0, **(AGAIN if self.is_cut else {})}
        computed = Computed(edges, [own.numel()] * len(edges), work)
        return RankGraph(own, blocks, computed, () if self.is_cut else blocks)

    @final
    def keep_chunks(self, visited: Sequence[Chunk], static: Sequence[Tensor | None]) -> None:
        """Let chunks stay on the device as `paradigm.resident_memory` says.

        Args:
            visited: chunks that this rank visits, most often visited ones first; none on a rank without columns.
            static: weights of all edges that are the same in every epoch.
        """
        if self.is_cut:
            dearest = max((self._cost.bytes_of(chunk.block) for chunk in visited), default=0)
            keep_resident(self.job, self._chunking, visited, dearest, static)

    @property
    @final
    def is_cut(self) -> bool:
        """Whether there is more than one chunk."""
        return len(self.chunks) > 1

    def facts(self) -> Mapping[str, Any]:
        """The number of chunks."""
        return {"chunks": len(self.chunks)}


def size_of_rank(count: int, bounds: Sequence[int], rank: int) -> int:
    """A rank's share of `count`, by its share of the columns. The shares of all ranks sum to `count`."""
    return count * bounds[rank + 1] // bounds[-1] - count * bounds[rank] // bounds[-1]
