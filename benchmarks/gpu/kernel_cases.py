"""Every operation of a `Backend`, with inputs: what is called on a GPU and on the CPU alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.graph.sparse import SparseRows, StoredRows
from gnnexp.ops.backend import Backend, Drop

SLOPE, WIDTH = 0.2, 64
WIDTHS: Sequence[int] = (1, 3, 16, 41, 100, 256)  # of plain sums
DROP = Drop(0.37, 0xFEDCBA9876543210)
Call = Callable[..., Tensor]  # of a backend, a block of its device, and inputs there


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation on one block.

    Attributes:
        name: of the operation.
        call: `call(backend, block, *inputs)`.
        inputs: float64, on the CPU; gradients of all are compared.
        mask: whether zeros of the output are a mask: their places must be the same.
    """

    name: str
    call: Call
    inputs: tuple[Tensor, ...]
    mask: bool = False


def operations(block: Block, widths: Sequence[int] = WIDTHS) -> Iterator[Operation]:
    """Those that take a block; plain sums of rows of these `widths`."""
    yield from _sums(block, widths)
    yield from _attention(block)
    S, D, E = block.num_src, block.num_dst, block.num_edges
    for name, ids in (("", block.src_ids), (", 64-bit ids", block.src_ids.long())):
        yield Operation(
            f"dropout{name}",
            _on(ids, lambda k, _, i, x: k.rows.dropout(x, i, DROP, WIDTH)),
            (positive(S, WIDTH),),
            mask=True,
        )
        yield Operation(
            f"dropout of columns{name}",
            _on(ids, lambda k, _, i, x: k.rows.dropout(x, i, DROP, WIDTH, 10)),
            (positive(S, 23),),
            mask=True,
        )
        yield Operation(
            f"relu and dropout{name}",
            _on(ids, lambda k, _, i, x: k.rows.relu_dropout(x, i, DROP, WIDTH)),
            (normal(S, WIDTH),),
            mask=True,
        )
    for heads in (1, 3, 6):
        yield Operation(
            f"edge dropout, {heads} heads",
            lambda k, b, w: k.edges.dropout(b, w, DROP),
            (positive(E, heads),),
            mask=True,
        )
    yield Operation("transpose of a sum", lambda k, b, g: k.sums.spread(b, g, None), (normal(D, WIDTH),))
    yield Operation(
        "transpose of a weighted sum", lambda k, b, g, w: k.sums.spread(b, g, w), (normal(D, 41), normal(E, 1))
    )


def sparse_operations() -> Iterator[Operation]:
    """Those on sparse features: 12 rows of 30 columns."""
    dense = normal(12, 30) * (normal(30, 12).t() > 0.8)
    stored = dense != 0
    indptr = torch.cat((torch.zeros(1, dtype=torch.int64), stored.sum(1).cumsum(0)))
    columns, ids = stored.nonzero()[:, 1].int(), torch.arange(12) * 5

    def dropped(kernels: Backend, block: Block, values: Tensor) -> SparseRows:
        there = values.device
        rows = SparseRows(indptr.to(there), columns.to(there), values, 30)
        return kernels.rows.sparse_dropout(rows, ids.to(there), DROP)

    yield Operation(
        "dropout of sparse rows",
        lambda k, b, v: dropped(k, b, v.detach()).values,
        (dense[stored].abs() + 0.1,),
        mask=True,
    )
    yield Operation(
        "product of sparse rows",
        lambda k, b, w: k.sparse_linear(dropped(k, b, dense[stored].to(w.device, w.dtype)), w),
        (normal(5, 30),),
    )


def _sums(block: Block, widths: Sequence[int]) -> Iterator[Operation]:
    S, E = block.num_src, block.num_edges
    for width in widths:
        yield Operation(
            f"sum, {width} columns", lambda k, b, x: k.sums.aggregate(b, x, None, None), (normal(S, width),)
        )
    yield Operation("weighted sum", lambda k, b, x, w: k.sums.aggregate(b, x, w, None), (normal(S, 41), normal(E, 1)))
    sliced = [2] * 20 + [0] * 11 + [2] * 10  # unequal, out of order, one twice: as in a slice of columns
    for name, slots in (("4 heads", [j // 16 for j in range(64)]), ("a slice of heads", sliced)):
        column = torch.tensor(slots)
        yield Operation(
            f"weighted sum, {name}",
            lambda k, b, x, w, c=column: k.sums.aggregate(b, x, w, c),
            (normal(S, len(slots)), normal(E, max(slots) + 1)),
        )
    yield Operation(
        "sum scaled by source",
        lambda k, b, x: k.sums.aggregate_scaled(b, x, b.src_ids.to(x.dtype) / 300),
        (normal(S, WIDTH),),
    )
    yield from _stored(block)
    yield Operation(
        "sum of all heads", lambda k, b, x, w: k.sums.aggregate_outer(b, x, w), (normal(S, 7), normal(E, 6))
    )


def _stored(block: Block) -> Iterator[Operation]:
    """Rows that are read where they are stored, in the type of the run or in bfloat16: constant, or between layers."""
    S, E = block.num_src, block.num_edges

    def stored(x: Tensor, *, narrow: bool) -> StoredRows:
        ids = torch.arange(S, device=x.device) * 7 % max(1, S)
        return StoredRows(x.detach().bfloat16() if narrow else x.detach(), ids, x.dtype)

    for word, narrow in (("", False), (" in bfloat16", True)):
        yield Operation(
            f"weighted sum of stored rows{word}",
            lambda k, b, x, w, n=narrow: k.sums.aggregate_stored(b, stored(x, narrow=n), w.detach(), None)[0],
            (normal(S, 100), normal(E, 1)),
        )
        yield Operation(
            f"dropout of stored rows{word}",
            lambda k, b, x, n=narrow: k.rows.dropout_stored(stored(x, narrow=n), b.src_ids, DROP),
            (positive(S, WIDTH),),
            mask=True,
        )
    yield Operation(
        "relu and dropout, rounded to bfloat16",
        lambda k, b, x: k.rows.relu_dropout_rounded(x.detach().float(), b.src_ids, DROP).to(x.dtype),
        (normal(S, WIDTH),),
        mask=True,
    )


def _attention(block: Block) -> Iterator[Operation]:
    S, D, E = block.num_src, block.num_dst, block.num_edges
    yield Operation("edge score", lambda k, b, s, d: k.edges.score(b, s, d), (normal(S, 4), normal(D, 4)))
    yield Operation("edge exp", lambda k, b, s: k.edges.exp(b, s, k.edges.max(b, s)), (normal(E, 4),))
    yield Operation("edge sum", lambda k, b, w: k.edges.sum(b, w), (positive(E, 4),))
    for heads in (1, 4):
        keys = normal(S, heads), normal(D, heads)
        for word, drop in (("", None), (", dropout", DROP)):
            name = f", {heads} heads{word}"
            yield Operation(
                f"attention weight{name}",
                lambda k, b, s, d, p=drop: k.edges.attention_weight(b, s, d, SLOPE, p),
                keys,
                mask=True,
            )
            yield Operation(
                f"attention{name}",
                lambda k, b, x, s, d, p=drop: k.attention(b, x, s, d, SLOPE, p),
                (normal(S, 16 * heads), *keys),
            )
            yield Operation(
                f"attention, rows shared{name}",
                lambda k, b, x, s, d, p=drop: k.attention_aggregate_first(b, x, s, d, SLOPE, p),
                (normal(S, 7), *keys),
            )


def _on(ids: Tensor, call: Call) -> Call:
    """A call that is also given ids of the vertices, on the device of the block."""
    return lambda kernels, block, x: call(kernels, block, ids.to(x.device), x)


def normal(*shape: int) -> Tensor:
    """Float64, the same for every call."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def positive(*shape: int) -> Tensor:
    """Likewise, and never near zero."""
    return normal(*shape).abs() + 0.1
