"""Row-wise linear or non-linear work on a graph, chunk by chunk: forward keeps nothing, backward runs a chunk again.

Results do not depend on the number of chunks: a destination's sum is taken over its own edges in their own order.
"""

# ruff: noqa: ANN401  autograd's contexts have no types
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from gnnexp.comm.shuffle import add_to_rows
from gnnexp.measure.tier import DeviceTier
from gnnexp.samplers.chunks import Chunk

Work = Callable[[Chunk, Tensor, Tensor | None], Tensor]


def in_chunks(
    work: Work, x: Tensor, edges: Tensor | None, chunks: Sequence[Chunk], tier: DeviceTier, *, per_edge: bool = False
) -> Tensor:
    """`[D, d']`: what `work(chunk, rows of x, rows of edges)` gives of every chunk, in order; `[E, d']` if `per_edge`.

    Args:
        work: differentiable in both and in parameters that it knows; must give the same when run again.
        x: `[S, d]` rows of all sources.
        edges: `[E, k]` something of every edge, or None.
        chunks: of one block.
        tier: where they are worked on.
    """
    if len(chunks) == 1 and chunks[0].rows is None:
        return work(chunks[0], x, edges)
    anchor = torch.zeros((), requires_grad=torch.is_grad_enabled())  # parameters may take gradients where x does not
    out: Tensor = _InChunks.apply(x, edges, anchor, work, chunks, tier, per_edge)  # type: ignore[no-untyped-call]
    return out


def run_forward(work: Work, chunk: Chunk, x: Tensor, edges: Tensor | None, tier: DeviceTier, into: Tensor) -> None:
    """One chunk without a graph; its rows go to `into` `[D, d']`."""
    with tier.chunk(chunk.block.nbytes()), torch.no_grad():
        block_edges = None if edges is None else tier.enter(edges[chunk.edges])
        tier.leave(work(chunk, tier.enter(x, chunk.rows), block_edges), into)


def run_backward(
    work: Work, chunk: Chunk, x: Tensor, edges: Tensor | None, tier: DeviceTier, gradient: Tensor,
    x_gradient: Tensor | None, edges_gradient: Tensor | None,
) -> None:
    """One chunk again, with a graph; its gradients are added to `[S, d]` and `[E, k]`, and to parameters'."""
    with tier.chunk(chunk.block.nbytes()), torch.enable_grad():
        rows = tier.enter(x.detach(), chunk.rows).requires_grad_(x_gradient is not None)
        own = None if edges is None else tier.enter(edges.detach()[chunk.edges])
        if own is not None and edges_gradient is not None:
            own.requires_grad_()
        out = work(chunk, rows, own)
        if out.requires_grad:
            torch.autograd.backward(out, tier.enter(gradient))
        if x_gradient is not None and rows.grad is not None:
            back = rows.grad.to(x_gradient.device)
            tier.counts["tier/d2h_bytes"] += back.numel() * back.element_size()
            if chunk.rows is None:
                x_gradient += back
            else:
                add_to_rows(x_gradient, chunk.rows, back)
        if edges_gradient is not None and own is not None and own.grad is not None:
            tier.counts["tier/d2h_bytes"] += own.grad.numel() * own.grad.element_size()
            edges_gradient[chunk.edges] += own.grad.to(edges_gradient.device)


class _InChunks(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, edges: Tensor | None, anchor: Tensor, work: Work, chunks: Sequence[Chunk],
        tier: DeviceTier, per_edge: bool,
    ) -> Tensor:
        ctx.save_for_backward(x, edges)
        ctx.rest = work, chunks, tier, per_edge
        out: Tensor | None = None
        for chunk in chunks:
            with tier.chunk(chunk.block.nbytes()):
                own = None if edges is None else tier.enter(edges[chunk.edges])
                made = work(chunk, tier.enter(x, chunk.rows), own)
                if out is None:
                    length = chunks[-1].edges.stop if per_edge else chunks[-1].last
                    out = x.new_empty((length, *made.shape[1:]))
                tier.leave(made, out[_range(chunk, per_edge)])
        assert out is not None, "a graph has at least one chunk"
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, edges = ctx.saved_tensors
        work, chunks, tier, per_edge = ctx.rest
        for_x, for_edges = ctx.needs_input_grad[:2]
        x_gradient = torch.zeros_like(x) if for_x else None
        edges_gradient = torch.zeros_like(edges) if for_edges else None
        for chunk in chunks:
            own = gradient[_range(chunk, per_edge)]
            run_backward(work, chunk, x, edges, tier, own, x_gradient, edges_gradient)
        return x_gradient, edges_gradient, None, None, None, None, None


def _range(chunk: Chunk, per_edge: bool) -> slice:
    return chunk.edges if per_edge else slice(chunk.first, chunk.last)
