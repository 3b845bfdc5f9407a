"""The per-edge operations of which attention consists, in Triton. `aggregate.sum_rows` has their sums."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from gnnexp.kernels.cuda.aggregate import Edges
from gnnexp.kernels.cuda.dropout import edges_of_tile
from gnnexp.kernels.cuda.launch import ONE_WARP, power_of_2
from gnnexp.kernels.rows.attention import EdgeOperation

_SCORE, _EXP, _MAX = (tl.constexpr(int(EdgeOperation[name])) for name in ("SCORE", "EXP", "MAX"))


@triton.jit
def edge_kernel(
    indptr: tl.tensor,
    index: tl.tensor,
    a: tl.tensor,
    b: tl.tensor,
    out: tl.tensor,
    num_heads: tl.tensor,
    OPERATION: tl.constexpr,
    EDGES: tl.constexpr,
    HEADS: tl.constexpr,
) -> None:
    """One operation (`EdgeOperation`, all but SUM) on one destination's edges."""
    row, head = tl.program_id(0).to(tl.int64), tl.arange(0, HEADS)
    in_heads = head < num_heads
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    here = row * num_heads + head
    peak = tl.full((HEADS,), -float("inf"), out.dtype.element_ty)
    if OPERATION != _MAX:
        own = tl.load(b + here, mask=in_heads, other=0)
    for first in range(begin, end, EDGES):
        e = first + tl.arange(0, EDGES)
        inside = (e < end)[:, None] & in_heads[None, :]
        place = e[:, None] * num_heads + head[None, :]
        if OPERATION == _SCORE:
            source = tl.load(index + e, mask=e < end, other=0).to(tl.int64)
            score = tl.load(a + source[:, None] * num_heads + head[None, :], mask=inside, other=0) + own[None, :]
            tl.store(out + place, score, mask=inside)
        elif OPERATION == _EXP:
            score = tl.load(a + place, mask=inside, other=0)
            tl.store(out + place, tl.exp(score - own[None, :]), mask=inside)
        elif OPERATION == _MAX:
            score = tl.load(a + place, mask=inside, other=-float("inf"))
            peak = tl.maximum(peak, tl.max(score, 0))
        else:
            tl.store(out + place, tl.broadcast_to(own[None, :], (EDGES, HEADS)), mask=inside)
    if OPERATION == _MAX:
        tl.store(out + here, peak, mask=in_heads)


def edge_operation(operation: EdgeOperation, edges: Edges, a: Tensor, b: Tensor | None = None) -> Tensor:
    """The result of one operation but SUM: `[D, K]` of MAX, `[E, K]` of all others.

    Args:
        operation: what is computed.
        edges: edges of the block.
        a: `[S, K]` (SCORE) or `[E, K]`; SPREAD does not read it.
        b: `[D, K]`; MAX does not read it.
    """
    assert operation is not EdgeOperation.SUM and edges.index is not None
    heads = a.shape[1]
    out = a.new_empty(edges.num_rows if operation is EdgeOperation.MAX else edges.index.numel(), heads)
    if out.numel() and edges.num_rows:
        edge_kernel[edges.num_rows,](
            edges.indptr,
            edges.index,
            a.detach().contiguous(),
            None if b is None else b.detach().contiguous(),
            out,
            heads,
            OPERATION=int(operation),
            EDGES=edges_of_tile(heads),
            HEADS=power_of_2(heads),
            **ONE_WARP,
        )
    return out
