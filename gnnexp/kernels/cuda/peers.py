"""Gathers rows from the memory of several GPUs, which the kernel reads by peer access, and from pinned host memory.

Row p of the rows that are dealt out is row `p // members` of member `p % members`. So one number per vertex says which
GPU has a row, and where. A row crosses a link once for each time that its id occurs.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from gnnexp.kernels.crossing import across
from gnnexp.kernels.cuda.fetch import tile_of_rows
from gnnexp.kernels.cuda.launch import tiles

# Programs add their counts to one of so many places: one place would be as slow as the rows of a small batch.
_PLACES = 64


@triton.jit(do_not_specialize=["num_rows", "own"])
def peer_kernel(
    ids: tl.tensor,
    table: tl.tensor,
    bases: tl.tensor,
    rows: tl.tensor,
    out: tl.tensor,
    counts: tl.tensor,
    num_rows: int,
    width: int,
    own: int,
    MEMBERS: tl.constexpr,
    PAST: tl.constexpr,
    PLACES: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
) -> None:
    """`out[i]` is the dealt row `table[ids[i]]`, or row `ids[i]` of `rows`, which is in host memory."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLS + tl.arange(0, COLS)
    inside = row < num_rows
    vertex = tl.load(ids + row, mask=inside, other=0).to(tl.int64)
    dealt = tl.load(table + vertex, mask=inside, other=-1).to(tl.int64)
    hit = dealt >= 0
    member = tl.where(hit, dealt % MEMBERS, 0)
    base = tl.load(bases + member, mask=hit, other=0).to(tl.pointer_type(out.dtype.element_ty))
    base = tl.multiple_of(base, [16])
    in_row = (column < width)[None, :]
    place = (dealt // MEMBERS * width)[:, None] + column[None, :]
    mask = hit[:, None] & in_row
    value = tl.load(base[:, None] + place, mask=mask, other=0)
    miss = inside & (dealt < 0)
    if PAST:
        missed = miss[:, None] & in_row
        far = tl.load(rows + (vertex * width)[:, None] + column[None, :], mask=missed, other=0)
        value, mask = tl.where(missed, far, value), mask | missed
    tl.store(out + (row * width)[:, None] + column[None, :], value, mask=mask)
    if tl.program_id(1) == 0:
        kind = tl.arange(0, 4)
        mine = tl.sum((hit & (member == own)).to(tl.int64), axis=0)
        num_hits = tl.sum(hit.to(tl.int64), axis=0)
        past = tl.sum(miss.to(tl.int64), axis=0)
        amount = tl.where(kind == 0, mine, tl.where(kind == 1, num_hits - mine, tl.where(kind == 2, past, 0)))
        tl.atomic_add(
            counts + tl.program_id(0) % PLACES * 4 + kind, amount, mask=kind < (3 if PAST else 2), sem="relaxed"
        )


def fetch_from_peers(
    ids: Tensor, table: Tensor, bases: Tensor, own: int, out: Tensor, rows: Tensor | None = None
) -> Tensor:
    """Write the rows of `ids` into `out`, which is on a GPU.

    Args:
        ids: `[n]` int32 or int64, all in 0..V-1.
        table: `[V]` int32 or int64 on the GPU: position of each vertex among the dealt rows, -1 if it is not there.
        bases: `[members]` int64 on the GPU: address of each member's rows, which this GPU can read.
        own: number of this rank among the members.
        out: `[n, D]`, contiguous, with the type of all rows.
        rows: `[V, D]` in pinned host memory, for ids that are not dealt out. None: their rows of `out` do not change.

    Returns:
        `[_PLACES, 4]` int64 on the GPU. Sums of columns are numbers of rows: own, of peers, from `rows`.
    """
    counts = torch.zeros(_PLACES, 4, dtype=torch.int64, device=out.device)
    count, width = out.shape
    if count:  # rows without columns are counted, too
        size, columns = tile_of_rows(width)
        peer_kernel[(tiles(count, size), max(1, tiles(width, columns)))](
            across(ids, out.device),
            table,
            bases,
            out if rows is None else rows,
            out,
            counts,
            count,
            width,
            own,
            MEMBERS=bases.numel(),
            PAST=rows is not None,
            PLACES=_PLACES,
            ROWS=size,
            COLS=columns,
        )
    return counts
