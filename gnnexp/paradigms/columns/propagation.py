"""Propagation of column slices over the whole graph, chunk by chunk, exchanges pipelined with sums (NeutronTP, 4.2.2).

Algorithm 1, lines 8 to 14, and lines 18 to 24 for backward:

- Split j: send columns of the rows that chunk j is the first to read. Each row is sent once.
- Aggregate chunk j, in every step.
- Gather j: collect whole rows of the destinations of chunk j, after the last step.

While chunk j is computed, rows of chunk j+1 are split and rows of chunk j-1 are gathered. Backward visits chunks in
reverse. So the gradient of a row is complete when the chunk that read it first is done.
"""

# ruff: noqa: ANN401  autograd's contexts have no types
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnexp.comm.background import Background
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.tensor_split import ColumnLayout, to_columns, to_rows
from gnnexp.ops.first_order import FirstOrderFunction
from gnnexp.paradigms.loops.in_chunks import ChunkWork, run_backward, run_forward, run_transposed
from gnnexp.placement.chunks import Chunk
from gnnexp.tiers.tier import DeviceTier


@dataclass(frozen=True, eq=False)
class ChunkExchange:
    """The exchanges of one chunk.

    Attributes:
        new: `[m]` ids of the rows that the chunk is the first to read, ascending.
        own_read_first: places of this rank's rows that are in `new`.
        split: shares of the ranks in `new`.
        by_rank: `[D]` places of the destinations, sorted by rank.
        own_computed: places of this rank's rows that are destinations of the chunk.
        gather: shares of the ranks in the destinations.
    """

    new: Tensor
    own_read_first: Tensor
    split: ColumnLayout
    by_rank: Tensor
    own_computed: Tensor
    gather: ColumnLayout


def plan_exchanges(
    chunks: Sequence[Chunk], num_nodes: int, bounds: Sequence[int], comm: Communicator, device: torch.device
) -> tuple[Tensor, tuple[ChunkExchange, ...]]:
    """Decide which rank finishes each vertex, and what every chunk exchanges.

    The rows that a chunk reads first are shared evenly among all ranks (4.2.2). The totals of ranks differ by at most
    one.

    Returns:
        `(owner [V] int32 of every vertex, exchanges of every chunk)`.
    """
    owner = np.full(num_nodes, -1, np.int32)
    fresh, before = [], 0
    for chunk in chunks:
        ids = np.arange(num_nodes) if chunk.rows is None else chunk.rows.numpy()
        new = np.sort(ids[owner[ids] < 0])
        sizes = [
            _even_size(before + new.size, rank, comm.size) - _even_size(before, rank, comm.size)
            for rank in range(comm.size)
        ]
        owner[new] = np.repeat(np.arange(comm.size, dtype=np.int32), sizes)
        before += new.size
        fresh.append((new, sizes))
    own = np.flatnonzero(owner == comm.rank)
    exchanges = []
    for chunk, (new, sizes) in zip(chunks, fresh, strict=True):
        of_range = owner[chunk.first : chunk.last]
        by_rank = np.argsort(of_range, kind="stable")
        done = chunk.first + np.flatnonzero(of_range == comm.rank)
        own_read_first = np.searchsorted(own, new[owner[new] == comm.rank])
        places = [
            torch.from_numpy(ids).to(device) for ids in (new, own_read_first, by_rank, np.searchsorted(own, done))
        ]
        exchanges.append(
            ChunkExchange(
                places[0],
                places[1],
                ColumnLayout(sizes, bounds, comm.rank),
                places[2],
                places[3],
                ColumnLayout(np.bincount(of_range, minlength=comm.size).tolist(), bounds, comm.rank),
            )
        )
    return torch.from_numpy(owner), tuple(exchanges)


def _even_size(count: int, rank: int, num_ranks: int) -> int:
    """Number of rows of `rank` among the first `count` rows."""
    return (count + num_ranks - 1 - rank) // num_ranks


@dataclass(frozen=True, eq=False)
class Pipeline:
    """Everything that the propagation of an epoch needs.

    Attributes:
        chunks: chunks of the whole graph.
        exchanges: exchanges of each chunk.
        work: one step on one chunk.
        steps: L, number of propagations.
        comm: communicator for the background thread only.
        background: thread that runs exchanges.
        tier: memory that chunks are copied into.
        transposed: transpose of `work` if only edge weights vary, see `in_chunks`.
    """

    chunks: Sequence[Chunk]
    exchanges: Sequence[ChunkExchange]
    work: ChunkWork
    steps: int
    comm: Communicator
    background: Background
    tier: DeviceTier
    transposed: ChunkWork | None

    @property
    def num_own(self) -> int:
        """n: number of rows that this rank finishes."""
        return sum(exchange.own_computed.numel() for exchange in self.exchanges)

    def split(self, exchange: ChunkExchange, rows: Tensor) -> Any:
        """Start to send columns of this rank's rows of a chunk."""
        own = rows.index_select(0, exchange.own_read_first)
        return self.background.start(partial(to_columns, own, exchange.split, self.comm, "activations"))

    def gather(self, exchange: ChunkExchange, columns: Tensor) -> Any:
        """Start to collect this rank's rows among a chunk's destinations."""
        ordered = columns.index_select(0, exchange.by_rank)
        return self.background.start(partial(to_rows, ordered, exchange.gather, self.comm, "activations"))

    def split_back(self, exchange: ChunkExchange, gradient: Tensor) -> Any:
        """Start the transpose of `gather`."""
        own = gradient.index_select(0, exchange.own_computed)
        return self.background.start(partial(to_columns, own, exchange.gather, self.comm, "activations"))

    def gather_back(self, exchange: ChunkExchange, columns: Tensor) -> Any:
        """Start the transpose of `split`."""
        new = columns.index_select(0, exchange.new)
        return self.background.start(partial(to_rows, new, exchange.split, self.comm, "activations"))


def propagated(z: Tensor, weights: Tensor | None, pipeline: Pipeline, *, is_split: bool = False) -> Tensor:
    """`[n, C]`: this rank's rows after all steps.

    Args:
        z: `[n, C]` this rank's rows; if `is_split`, its columns `[V, width]` of all rows.
        weights: `[E, 1]` weights of all edges, or None for ones.
        pipeline: everything else.
        is_split: whether rows have been split before.
    """
    out: Tensor = _Pipelined.apply(z, weights, pipeline, is_split)  # type: ignore[no-untyped-call]
    return out


class _Pipelined(FirstOrderFunction):
    @staticmethod
    def forward(ctx: Any, z: Tensor, weights: Tensor | None, pipe: Pipeline, is_split: bool) -> Tensor:
        ctx.pipe, ctx.is_split = pipe, is_split
        num_nodes, width = pipe.chunks[-1].last, pipe.exchanges[0].split.width
        constant = pipe.transposed is not None and not ctx.needs_input_grad[1]
        x, kept = z if is_split else z.new_empty(num_nodes, width), []
        out = z.new_empty(pipe.num_own, pipe.exchanges[0].split.bounds[-1])
        splits, gathers = [] if is_split else [pipe.split(pipe.exchanges[0], z)], []
        for step in range(pipe.steps):
            y = z.new_empty(num_nodes, width)
            for number, (chunk, exchange) in enumerate(zip(pipe.chunks, pipe.exchanges, strict=True)):
                if step == 0 and not is_split:
                    if number + 1 < len(pipe.exchanges):
                        splits.append(pipe.split(pipe.exchanges[number + 1], z))
                    x[exchange.new] = splits[number].result()
                done = y[chunk.first : chunk.last]
                if width:
                    run_forward(pipe.work, chunk, x, weights, pipe.tier, done)
                if step == pipe.steps - 1:
                    gathers.append(pipe.gather(exchange, done))
            if not constant:
                kept.append(x)
            x = y
        for exchange, gathered in zip(pipe.exchanges, gathers, strict=True):
            out[exchange.own_computed] = gathered.result()
        ctx.save_for_backward(weights, *kept)
        ctx.constant, ctx.shape = constant, x.shape
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        pipe: Pipeline = ctx.pipe
        weights, *kept = ctx.saved_tensors
        weights_gradient = torch.zeros_like(weights) if ctx.needs_input_grad[1] else None
        order = list(reversed(list(zip(pipe.chunks, pipe.exchanges, strict=True))))
        splits, gathers = [pipe.split_back(order[0][1], gradient)], []
        after = gradient.new_empty(0)
        for step in reversed(range(pipe.steps)):
            before = gradient.new_zeros(ctx.shape)
            if not ctx.constant:
                pipe.tier.again[step] += 1
            for number, (chunk, exchange) in enumerate(order):
                if step == pipe.steps - 1:
                    if number + 1 < len(order):
                        splits.append(pipe.split_back(order[number + 1][1], gradient))
                    arrived = splits[number].result()
                    of_chunk = torch.empty_like(arrived)
                    of_chunk[exchange.by_rank] = arrived
                else:
                    of_chunk = after[chunk.first : chunk.last]
                if not ctx.shape[1]:
                    pass  # a rank without columns only takes part in the exchanges
                elif ctx.constant:
                    assert pipe.transposed is not None
                    run_transposed(pipe.transposed, chunk, weights, pipe.tier, of_chunk, before)
                else:
                    run_backward(pipe.work, chunk, kept[step], weights, pipe.tier, of_chunk, before, weights_gradient)
                if step == 0 and not ctx.is_split:
                    gathers.append(pipe.gather_back(exchange, before))
            after = before
        if ctx.is_split:
            return after, weights_gradient, None, None
        z_gradient = torch.empty_like(gradient)
        for (_, exchange), gathered in zip(order, gathers, strict=True):
            z_gradient[exchange.own_read_first] = gathered.result()
        return z_gradient, weights_gradient, None, None
