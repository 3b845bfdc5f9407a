"""Neighbour sampling on a GPU in Triton, with the draws and the order of `kernels.samplers.sample`.

The host does not know the size of a hop when it launches the hop's kernels. A kernel has programs for an upper bound,
and reads the real size from the device. What follows the real entries of an array has no meaning.

A destination draws by Floyd's scheme in registers: a draw is compared with all earlier ones at once.

Relabelling keeps the order of first appearance, which is the order of the edges, although edges are handled in any
order. Edge e writes the number `most + e` into the entry of its source if that is smaller. The edge that reads its own
number there is the first one. A prefix sum over first edges gives new vertices their positions. Positions are below
`most`, so a number and a position are never confused: the last kernel may replace numbers by positions while other
edges read them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from gnnexp.kernels.cuda.counter import absorb, bounded, draw
from gnnexp.kernels.cuda.launch import power_of_2, tiles

_EDGES = 512  # edges or vertices per program of the kernels that have one value per entry
# Draws in registers per program of 128 threads: 4 each. With 8, fanout 64 takes 145 registers; with 16 it spills.
_TILE = 512
# Sizes differ from batch to batch, and pointers into small arrays have any alignment. Without this, Triton would
# compile a kernel again for values like 1 and multiples of 16.
_kernel = triton.jit(
    do_not_specialize=["size", "fanout", "loops", "most", "step"],
    do_not_specialize_on_alignment=["count", "total", "known", "keys", "bounds"],
)


@_kernel
def count_kernel(
    indptr: tl.tensor,
    vertices: tl.tensor,
    count: tl.tensor,
    lengths: tl.tensor,
    size: int,
    fanout: int,
    loops: int,
    ROWS: tl.constexpr,
) -> None:
    """Number of edges of every destination."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = row < tl.load(count)
    own = tl.load(vertices + row, mask=inside, other=0).to(tl.int64)
    degree = tl.load(indptr + own + 1, mask=inside, other=0) - tl.load(indptr + own, mask=inside, other=0)
    taken = tl.where(fanout < 0, degree, tl.minimum(degree, fanout)) + loops
    tl.store(lengths + row, tl.where(inside, taken, 0), mask=row < size)


@_kernel
def draw_kernel(
    indptr: tl.tensor,
    indices: tl.tensor,
    names: tl.tensor,
    vertices: tl.tensor,
    count: tl.tensor,
    keys: tl.tensor,
    step: int,
    bounds: tl.tensor,
    neighbours: tl.tensor,
    positions: tl.tensor,
    FANOUT: tl.constexpr,
    LOOPS: tl.constexpr,
    NAMED: tl.constexpr,
    PLACED: tl.constexpr,
    SLOTS: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """The edges of `ROWS` destinations with up to `SLOTS` draws each. `step` is 0 if all have one key, else 1."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = row < tl.load(count)
    own = tl.load(vertices + row, mask=inside, other=0).to(tl.int64)
    start = tl.load(indptr + own, mask=inside, other=0)
    degree = tl.load(indptr + own + 1, mask=inside, other=0) - start
    room = tl.maximum(degree - FANOUT, 0)
    name = own
    if NAMED:
        name = tl.load(names + own, mask=inside, other=0).to(tl.int64)
    key = tl.load(keys + row * step, mask=inside, other=0)
    state = absorb(key.to(tl.uint64), name.to(tl.uint64))
    slot = tl.arange(0, SLOTS)
    chosen = tl.zeros((ROWS, SLOTS), tl.uint32) + slot[None, :].to(tl.uint32)
    for number in range(FANOUT):
        word = draw(state, tl.zeros_like(state) + number)
        drawn = bounded(word, (room + number + 1).to(tl.uint64)).to(tl.uint32)
        earlier = (chosen == drawn[:, None]) & (slot < number)[None, :]
        again = tl.max(earlier.to(tl.int32), axis=1) > 0
        drawn = tl.where(again | (room == 0), (room + number).to(tl.uint32), drawn)
        chosen = tl.where((slot == number)[None, :], drawn[:, None], chosen)
    mask = inside[:, None] & (slot[None, :] < tl.minimum(degree, FANOUT)[:, None])
    position = start[:, None] + chosen.to(tl.int64)
    place = tl.load(bounds + row, mask=inside, other=0)[:, None] + slot[None, :]
    source = tl.load(indices + position, mask=mask, other=0)
    tl.store(neighbours + place, source, mask=mask)
    if PLACED:
        tl.store(positions + place, position, mask=mask)
    if LOOPS:
        last = tl.load(bounds + row + 1, mask=inside, other=1) - 1
        tl.store(neighbours + last, own.to(source.dtype), mask=inside)
        if PLACED:
            tl.store(positions + last, tl.zeros_like(own) - 1, mask=inside)


@_kernel
def number_kernel(neighbours: tl.tensor, total: tl.tensor, table: tl.tensor, most: int, EDGES: tl.constexpr) -> None:
    """The smallest number of the edges of every source; edge e has the number `most + e`. Source -1 is no source."""
    edge = tl.program_id(0).to(tl.int64) * EDGES + tl.arange(0, EDGES)
    vertex = tl.load(neighbours + edge, mask=edge < tl.load(total), other=-1).to(tl.int64)
    # Relaxed: the next kernel reads the entries.
    tl.atomic_min(table + vertex, (edge + most).to(tl.int32), mask=vertex >= 0, sem="relaxed")


@_kernel
def first_kernel(
    neighbours: tl.tensor,
    total: tl.tensor,
    table: tl.tensor,
    most: int,
    flags: tl.tensor,
    size: int,
    EDGES: tl.constexpr,
) -> None:
    """1 for the first edge of every new source, 0 for other edges."""
    edge = tl.program_id(0).to(tl.int64) * EDGES + tl.arange(0, EDGES)
    vertex = tl.load(neighbours + edge, mask=edge < tl.load(total), other=-1).to(tl.int64)
    inside = vertex >= 0
    number = tl.load(table + vertex, mask=inside, other=0)
    tl.store(flags + edge, (inside & (number == (edge + most).to(tl.int32))).to(tl.int32), mask=edge < size)


@_kernel
def place_kernel(
    neighbours: tl.tensor,
    total: tl.tensor,
    table: tl.tensor,
    most: int,
    ranks: tl.tensor,
    count: tl.tensor,
    known: tl.tensor,
    sources: tl.tensor,
    vertices: tl.tensor,
    size: int,
    EDGES: tl.constexpr,
) -> None:
    """The position of every source. The first edge of a new vertex writes its position into the table, too."""
    edge = tl.program_id(0).to(tl.int64) * EDGES + tl.arange(0, EDGES)
    before = tl.load(count)
    vertex = tl.load(neighbours + edge, mask=edge < tl.load(total), other=-1)
    inside = vertex >= 0
    place = tl.load(table + vertex.to(tl.int64), mask=inside, other=0).to(tl.int64)
    new = inside & (place >= most)
    rank = tl.load(ranks + tl.where(new, place - most, 0), mask=new, other=0)
    position = tl.where(new, before + rank - 1, place)
    tl.store(sources + edge, position.to(tl.int32), mask=inside)
    own = new & (place - most == edge)
    tl.store(vertices + position, vertex, mask=own)
    tl.store(table + vertex.to(tl.int64), position.to(tl.int32), mask=own)
    if tl.program_id(0) == 0:
        tl.store(known, before + tl.load(ranks + size - 1))


@_kernel
def take_kernel(
    values: tl.tensor, positions: tl.tensor, taken: tl.tensor, size: int, MISSING: tl.constexpr, EDGES: tl.constexpr
) -> None:
    """`taken[e]` is the value at position e of `values`, which may be in host memory; `MISSING` for position -1."""
    edge = tl.program_id(0).to(tl.int64) * EDGES + tl.arange(0, EDGES)
    position = tl.load(positions + edge, mask=edge < size, other=-1)
    tl.store(taken + edge, tl.load(values + position, mask=position >= 0, other=MISSING), mask=edge < size)


def count_edges(indptr: Tensor, vertices: Tensor, count: Tensor, fanout: int, loops: int) -> Tensor:
    """`samplers.device_hops.HopKernels.count_edges`."""
    size, lengths = vertices.numel(), indptr.new_empty(vertices.numel())
    if size:
        count_kernel[(tiles(size, _EDGES),)](indptr, vertices, count, lengths, size, fanout, loops, ROWS=_EDGES)
    return lengths


def draw_edges(
    indptr: Tensor,
    indices: Tensor,
    names: Tensor | None,
    vertices: Tensor,
    count: Tensor,
    fanout: int,
    loops: int,
    keys: Tensor,
    bounds: Tensor,
    num_edges: int,
    wants_positions: bool,
) -> tuple[Tensor, Tensor | None]:
    """`samplers.device_hops.HopKernels.draw_edges`."""
    size, neighbours = vertices.numel(), indices.new_empty(num_edges, device=vertices.device)
    positions = indptr.new_empty(num_edges) if wants_positions else None
    if size:
        slots, rows = tile_of_draws(fanout)
        draw_kernel[(tiles(size, rows),)](
            indptr,
            indices,
            indices if names is None else names,
            vertices,
            count,
            keys,
            int(keys.numel() > 1),
            bounds,
            neighbours,
            indptr if positions is None else positions,
            FANOUT=fanout,
            LOOPS=bool(loops),
            NAMED=names is not None,
            PLACED=wants_positions,
            SLOTS=slots,
            ROWS=rows,
        )
    return neighbours, positions


def take_edges(values: Tensor, positions: Tensor) -> Tensor:
    """Data of the edges at positions `[E]`, which are on a GPU; -1 at position -1, of floats 1.

    Args:
        values: data of all edges, on the GPU or in pinned host memory, which the kernel reads over the link.
        positions: `[E]` int64.
    """
    size, taken = positions.numel(), values.new_empty(positions.numel(), device=positions.device)
    if size:
        take_kernel[(triton.cdiv(size, _EDGES),)](
            values, positions, taken, size, MISSING=1 if values.is_floating_point() else -1, EDGES=_EDGES
        )
    return taken


def tile_of_draws(fanout: int) -> tuple[int, int]:
    """`(SLOTS, ROWS)` of `draw_kernel`: draws per destination and destinations per program, powers of 2."""
    slots = power_of_2(fanout)
    return slots, max(1, min(64, _TILE // slots))


def relabel(
    neighbours: Tensor,
    total: Tensor,
    table: Tensor,
    most: int,
    vertices: Tensor,
    count: Tensor,
    known: Tensor,
) -> Tensor:
    """`samplers.device_hops.HopKernels.relabel`, for at least one edge."""
    size, grid = neighbours.numel(), (tiles(neighbours.numel(), _EDGES),)
    flags = torch.empty(size, dtype=torch.int32, device=neighbours.device)
    sources = torch.empty_like(flags)
    number_kernel[grid](neighbours, total, table, most, EDGES=_EDGES)
    first_kernel[grid](neighbours, total, table, most, flags, size, EDGES=_EDGES)
    ranks = torch.cumsum(flags, 0, dtype=torch.int32)
    place_kernel[grid](neighbours, total, table, most, ranks, count, known, sources, vertices, size, EDGES=_EDGES)
    return sources
