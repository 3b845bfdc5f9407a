"""Gathers rows on a GPU from pinned host memory, which the kernel reads over the link, and from a cache on the GPU.

One kernel looks each id up in the cache's table, and reads the row from where it is. So the host does nothing for a
batch, and no row is copied twice. A row crosses the link once for each time that its id occurs.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from gnnexp.kernels.crossing import across
from gnnexp.kernels.cuda.launch import power_of_2, tiles

# Columns of a tile: a row of up to 512 floats is one tile. Values of a tile per thread: 16.
_MOST_COLUMNS, _TILE = 512, 2048
# Entry of a table for rows that this kernel leaves out. A miss is -1.
LEFT_OUT = -2


@triton.jit(do_not_specialize=["num_rows"])
def fetch_kernel(
    ids: tl.tensor,
    table: tl.tensor,
    held: tl.tensor,
    rows: tl.tensor,
    out: tl.tensor,
    num_rows: int,
    width: int,
    CACHED: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
) -> None:
    """`out[i]` is row `table[ids[i]]` of `held`, or row `ids[i]` of `rows`, which is in host memory."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLS + tl.arange(0, COLS)
    inside = row < num_rows
    vertex = tl.load(ids + row, mask=inside, other=0).to(tl.int64)
    in_row = (column < width)[None, :]
    if CACHED:
        place = tl.load(table + vertex, mask=inside, other=-2)
        hit, miss = (place >= 0)[:, None] & in_row, (place == -1)[:, None] & in_row
        near = tl.load(held + (place.to(tl.int64) * width)[:, None] + column[None, :], mask=hit, other=0)
        far = tl.load(rows + (vertex * width)[:, None] + column[None, :], mask=miss, other=0)
        tl.store(out + (row * width)[:, None] + column[None, :], tl.where(hit, near, far), mask=hit | miss)
    else:
        mask = inside[:, None] & in_row
        value = tl.load(rows + (vertex * width)[:, None] + column[None, :], mask=mask, other=0)
        tl.store(out + (row * width)[:, None] + column[None, :], value, mask=mask)


def tile_of_rows(width: int) -> tuple[int, int]:
    """`(ROWS, COLS)` of the kernel: powers of 2."""
    columns = min(_MOST_COLUMNS, power_of_2(width))
    return max(1, min(64, _TILE // columns)), columns


def fetch_rows(rows: Tensor, ids: Tensor, out: Tensor, table: Tensor | None = None, held: Tensor | None = None) -> None:
    """Write the rows of `ids` into `out`, which is on a GPU.

    Args:
        rows: `[V, D]` in pinned host memory, contiguous.
        ids: `[n]` int32 or int64, all in 0..V-1.
        out: `[n, D]`, contiguous.
        table: `[V]` int32 on the GPU: row of each id in `held`, -1 if it is in `rows`, `LEFT_OUT` if it is not written.
        held: `[m, D]` on the GPU, contiguous.
    """
    count, width = out.shape
    if not count or not width:
        return
    size, columns = tile_of_rows(width)
    readable = across(ids, out.device)
    cached = table is not None and held is not None
    fetch_kernel[(tiles(count, size), tiles(width, columns))](
        readable,
        table if cached else readable,
        held if cached else out,
        rows,
        out,
        count,
        width,
        CACHED=cached,
        ROWS=size,
        COLS=columns,
    )
