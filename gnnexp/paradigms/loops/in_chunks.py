"""Work on a graph, chunk by chunk. Forward keeps nothing of a chunk.

Backward runs a chunk again. If the work is linear and constant, backward runs only its transpose.

Results do not depend on the number of chunks: a destination's sum is taken over its own edges, in their own order.
"""

# ruff: noqa: ANN401  autograd's contexts have no types
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.models.layer import Layer
from gnnexp.models.local import normalised_weights
from gnnexp.ops.first_order import FirstOrderFunction
from gnnexp.placement.chunks import Chunk
from gnnexp.tiers.tier import DeviceTier

# Of a chunk, its rows `[S, d]` (dense if they are), values of its edges or None, and own parts if there are any.
ChunkWork = Callable[..., Tensor]
# A pass over a chunk: forward, backward with a second forward pass, or backward with only the transpose.
Pass = Literal["forward", "again", "transposed"]


def in_chunks(
    work: ChunkWork,
    x: Rows,
    edges: Tensor | None,
    chunks: Sequence[Chunk],
    tier: DeviceTier,
    *,
    width: int,
    per_edge: bool = False,
    transposed: ChunkWork | None = None,
    layer: int | None = None,
    own: Tensor | None = None,
) -> Tensor:
    """`[D, d']`: results of `work(chunk, rows of x, rows of edges)` for all chunks, in order; `[E, d']` if `per_edge`.

    Args:
        work: function that is differentiable in both rows and in its parameters. It must give the same when run again.
        x: `[S, d]` rows of all sources. Sparse rows take no gradient.
        edges: `[E, k]` values of every edge, or None.
        chunks: all chunks of one block.
        tier: memory that chunks are copied into.
        width: d', number of columns of the results.
        per_edge: whether `work` gives a row for each edge instead of each destination.
        transposed: if `work` is linear in `x` and has no parameters: gradient of a chunk's rows, from the gradient of
            its results `[D, d']`. It is used unless `edges` take a gradient.
        layer: layer that the work computes, from 0; None if it is only a part of one. `DeviceTier.again` counts passes
            that run a layer again.
        own: `[D, o]` parts of the destinations, which only their own chunk reads: the last argument of `work`. None:
            `work` does not take it.
    """
    if len(chunks) == 1 and chunks[0].rows is None:
        return work(chunks[0], x, edges, *([] if own is None else [own]))
    if edges is not None and edges.requires_grad:
        transposed = None
    # Parameters may take gradients even if x takes none.
    anchor = torch.zeros((), requires_grad=torch.is_grad_enabled() and transposed is None)
    out: Tensor = _InChunks.apply(  # type: ignore[no-untyped-call]
        x, edges, own, anchor, work, transposed, chunks, tier, width, per_edge, layer
    )
    return out


def static_weights(layer: Layer, chunks: Sequence[Chunk], device: torch.device) -> Tensor | None:
    """`[E, 1]` weights of all edges, if they depend only on the graph; None for ones, and for other kinds of layers."""
    if layer.traits.kind != "static":
        return None
    parts = [normalised_weights(layer, chunk.block.to(device), None, None) for chunk in chunks]
    for chunk in chunks:
        layer.backend.constants.pop(chunk.block, None)
    return None if parts[0] is None else torch.cat([part for part in parts if part is not None])


def run_forward(
    work: ChunkWork,
    chunk: Chunk,
    x: Rows,
    edges: Tensor | None,
    tier: DeviceTier,
    into: Tensor,
    own: Tensor | None = None,
) -> None:
    """Run one chunk without an autograd graph. Its rows go to `into` `[D, d']`; for `own` see `in_chunks`."""
    with visit(chunk, tier, (*tensors_in(x), edges, into, own)) as here, torch.no_grad():
        weights = None if edges is None else tier.enter_weights(edges, chunk.block, chunk.edges)
        parts = _own_parts(chunk, own, tier)
        tier.leave(work(here, tier.enter_rows(x, chunk.rows), weights, *parts), into)


def run_backward(
    work: ChunkWork,
    chunk: Chunk,
    x: Rows,
    edges: Tensor | None,
    tier: DeviceTier,
    gradient: Tensor,
    x_gradient: Tensor | None,
    edges_gradient: Tensor | None,
    own: Tensor | None = None,
    own_gradient: Tensor | None = None,
) -> None:
    """Run one chunk again, with an autograd graph. Add its gradients to `[S, d]`, `[E, k]` and those of parameters.

    Gradients of own parts are written to `own_gradient` `[D, o]`.
    """
    host = (*tensors_in(x), edges, gradient, x_gradient, edges_gradient, own, own_gradient)
    with visit(chunk, tier, host, "again") as here, torch.enable_grad():
        rows = tier.enter_rows(x, chunk.rows)
        if isinstance(rows, Tensor):
            rows.requires_grad_(x_gradient is not None)
        weights = None if edges is None else tier.enter_weights(edges, chunk.block, chunk.edges)
        if weights is not None and edges_gradient is not None:
            weights.requires_grad_()
        parts = [part.requires_grad_(own_gradient is not None) for part in _own_parts(chunk, own, tier)]
        out = work(here, rows, weights, *parts)
        if out.requires_grad:
            torch.autograd.backward(out, tier.enter(gradient))
        if x_gradient is not None and isinstance(rows, Tensor) and rows.grad is not None:
            tier.add(rows.grad, x_gradient, chunk.rows)
        if edges_gradient is not None and weights is not None and weights.grad is not None:
            tier.add(weights.grad, edges_gradient[chunk.edges], None)
        for part in parts:
            if own_gradient is not None and part.grad is not None:
                tier.leave(part.grad, own_gradient[chunk.first : chunk.last])


def _own_parts(chunk: Chunk, own: Tensor | None, tier: DeviceTier) -> list[Tensor]:
    """The own parts of a chunk's destinations, copied to the device; empty if there are none."""
    return [] if own is None else [tier.enter(own.detach()[chunk.first : chunk.last])]


def run_transposed(
    transposed: ChunkWork, chunk: Chunk, edges: Tensor | None, tier: DeviceTier, gradient: Tensor, x_gradient: Tensor
) -> None:
    """Run the transpose of one chunk. Add the gradient of its rows to `[S, d]`."""
    with visit(chunk, tier, (edges, gradient, x_gradient), "transposed") as here, torch.no_grad():
        own = None if edges is None else tier.enter_weights(edges, chunk.block, chunk.edges)
        tier.add(transposed(here, tier.enter(gradient), own), x_gradient, chunk.rows)


@contextmanager
def visit(chunk: Chunk, tier: DeviceTier, host: Iterable[Tensor | None], what: Pass = "forward") -> Iterator[Chunk]:
    """Copy the chunk to the device for a while, or for the run if it is resident (`DeviceTier.resident`).

    Args:
        chunk: chunk on the host.
        tier: the device.
        host: arrays outside the device that the work uses.
        what: pass, which decides the arrays that it reads.
    """
    block = chunk.block
    arrays = _topology(block, what, reads_transpose=tier.reads_transpose)
    with arriving(block, arrays, tier, host):
        here = tier.resident.on_device(block, tier.device)
        yield chunk if here is block else replace(chunk, block=here)
        tier.constants.pop(block, None)  # nothing that is computed from a chunk stays on the device


@contextmanager
def arriving(block: Block, arrays: Sequence[Tensor], tier: DeviceTier, host: Iterable[Tensor | None]) -> Iterator[None]:
    """Context of a chunk (`DeviceTier.chunk`) into which those of the block's `arrays` cross that are not there."""
    missing = tier.resident.missing(block, arrays)
    with tier.chunk(sum(array.nbytes for array in missing), (*arrays, *host)):
        yield
    tier.resident.crossed(block, missing)


def _topology(block: Block, what: Pass, *, reads_transpose: bool) -> list[Tensor]:
    """The arrays of a block that a pass reads on the device."""
    if what == "forward" or not reads_transpose:
        return block.arrays()
    turned = block.transpose.arrays()
    return [block.degree, *turned] if what == "transposed" else [*block.arrays(), *turned]


def tensors_in(rows: Rows) -> tuple[Tensor, ...]:
    """The tensors of dense or sparse rows."""
    return (rows.indptr, rows.columns, rows.values) if isinstance(rows, SparseRows) else (rows,)


def destination_arrays(block: Block) -> list[Tensor]:
    """The arrays of a block that hold the ids of its destinations."""
    held = (block.src_ids, block.dst_positions) if block.other_dst_ids is None else (block.other_dst_ids,)
    return [array for array in held if array is not None]


class _InChunks(FirstOrderFunction):
    @staticmethod
    def forward(
        ctx: Any,
        x: Rows,
        edges: Tensor | None,
        own: Tensor | None,
        anchor: Tensor,
        work: ChunkWork,
        transposed: ChunkWork | None,
        chunks: Sequence[Chunk],
        tier: DeviceTier,
        width: int,
        per_edge: bool,
        layer: int | None,
    ) -> Tensor:
        ctx.save_for_backward(x if transposed is None and isinstance(x, Tensor) else None, edges, own)
        ctx.sparse = x if isinstance(x, SparseRows) else None
        ctx.rest = work, transposed, chunks, tier, per_edge, layer
        ctx.shape = x.shape
        length = chunks[-1].edges.stop if per_edge else chunks[-1].last
        out = torch.empty(length, width, dtype=x.dtype, device=x.device)
        for chunk in chunks:
            run_forward(work, chunk, x, edges, tier, out[_range(chunk, per_edge)], own)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        saved, edges, parts = ctx.saved_tensors
        x = saved if ctx.sparse is None else ctx.sparse
        work, transposed, chunks, tier, per_edge, layer = ctx.rest
        if transposed is None and layer is not None:
            tier.again[layer] += 1
        for_x, for_edges, for_parts = ctx.needs_input_grad[:3]
        x_gradient = gradient.new_zeros(ctx.shape) if for_x else None
        edges_gradient = torch.zeros_like(edges) if for_edges else None
        parts_gradient = torch.zeros_like(parts) if for_parts else None
        for chunk in chunks:
            own = gradient[_range(chunk, per_edge)]
            if transposed is None:
                run_backward(work, chunk, x, edges, tier, own, x_gradient, edges_gradient, parts, parts_gradient)
            elif x_gradient is not None:
                run_transposed(transposed, chunk, edges, tier, own, x_gradient)
        return x_gradient, edges_gradient, parts_gradient, *[None] * 8


def _range(chunk: Chunk, per_edge: bool) -> slice:
    return chunk.edges if per_edge else slice(chunk.first, chunk.last)
