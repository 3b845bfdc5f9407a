"""The steps of `kernels.cuda.sample` in plain torch: for a GPU without Triton, for an emulated one, and for a CPU.

The host never waits for the device here. So it does not know how many vertices and edges a hop has. Arrays have the
size of an upper bound, and what follows the real entries has no meaning. Real sizes are tensors of one entry. An entry
without meaning is written to one more entry at the end of `vertices` and of `table`, which nobody reads.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gnnexp.kernels.words import absorb, bounded, draw


def count_edges(indptr: Tensor, vertices: Tensor, count: Tensor, fanout: int, loops: int) -> Tensor:
    """Number of edges of every destination: `kernels.cuda.sample.count_edges`."""
    inside = torch.arange(vertices.numel(), device=vertices.device) < count
    own = torch.where(inside, vertices, 0).long()
    degree = indptr[own + 1] - indptr[own]
    return torch.where(inside, (degree if fanout < 0 else degree.clamp(max=fanout)) + loops, 0)


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
    """The edges that destinations draw: `kernels.cuda.sample.draw_edges`."""
    inside = torch.arange(vertices.numel(), device=vertices.device) < count
    own = torch.where(inside, vertices, 0).long()
    start = indptr[own]
    degree = indptr[own + 1] - start
    slots = torch.arange(fanout, device=vertices.device)
    taken = inside.unsqueeze(1) & (slots < degree.unsqueeze(1))
    chosen = start.unsqueeze(1) + _floyd((degree - fanout).clamp(min=0), absorb(keys, _named(names, own)), fanout)
    # What is not taken goes to the last entry.
    places = torch.where(taken, bounds[:-1].unsqueeze(1) + slots, num_edges).flatten()
    positions = indptr.new_empty(num_edges + 1)
    positions[places] = chosen.flatten()
    if loops:
        positions[torch.where(inside, bounds[1:] - 1, num_edges)] = -1 - own
    positions = positions[:num_edges]
    real = torch.arange(num_edges, device=vertices.device) < bounds[-1]
    looped = real & (positions < 0)
    edges = indices if indices.numel() else indices.new_zeros(1)
    drawn = edges[torch.where(real & ~looped, positions, 0)]
    neighbours = torch.where(looped, (-1 - positions).to(indices.dtype), drawn)
    return neighbours, torch.where(looped, -1, positions) if wants_positions else None


def _named(names: Tensor | None, own: Tensor) -> Tensor:
    return own if names is None else names[own].long()


def _floyd(room: Tensor, own: Tensor, fanout: int) -> Tensor:
    """`[D, fanout]` offsets of the draws of every destination; 0, 1, ... where `room`, degree - fanout, is 0."""
    numbers = torch.arange(fanout, device=room.device)
    last = room.unsqueeze(1) + numbers
    chosen = torch.where(room.unsqueeze(1) == 0, numbers, bounded(draw(own.unsqueeze(1), numbers), last + 1))
    for number in range(1, fanout):
        again = (chosen[:, :number] == chosen[:, number : number + 1]).any(1)
        chosen[:, number] = torch.where(again, last[:, number], chosen[:, number])
    return chosen


def relabel(
    neighbours: Tensor,
    total: Tensor,
    table: Tensor,
    most: int,
    vertices: Tensor,
    count: Tensor,
    known: Tensor,
) -> Tensor:
    """The position of every source; new vertices are appended: `kernels.cuda.sample.relabel`."""
    edge, nobody = torch.arange(neighbours.numel(), device=neighbours.device), table.numel() - 1
    real = (edge < total) & (neighbours >= 0)
    vertex = torch.where(real, neighbours, nobody).long()
    number = edge + most
    table.scatter_reduce_(0, vertex, number.int(), "amin")
    place = table[vertex].long()
    first = (place == number) & real
    ranks = first.cumsum(0)
    position = torch.where(place < most, place, count - 1 + ranks[(place - most).clamp(0, edge.numel() - 1)])
    vertices[torch.where(first, position, vertices.numel() - 1)] = neighbours
    table[torch.where(first, vertex, nobody)] = position.int()
    torch.add(count, ranks[-1:], out=known)
    return position.int()


def sort_by_owner(ids: Tensor, count: Tensor, owner: Tensor, num_parts: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sort vertices by owner; vertices of the same owner keep their order: `kernels.samplers.split.group_by_owner`.

    Args:
        ids: `[n]` vertices, of which the first `count` are real.
        count: `[1]`.
        owner: `[V]` part of each vertex.
        num_parts: P.

    Returns:
        `[P + 1]` int64 bounds of each owner's vertices, `[n]` the sorted vertices, and `[n]` int64 position of each
        vertex among them.
    """
    place = torch.arange(ids.numel(), device=ids.device)
    inside = place < count
    parts = torch.where(inside, owner[torch.where(inside, ids, 0).long()], num_parts)
    ordered, order = torch.sort(parts, stable=True)
    bounds = torch.searchsorted(ordered, torch.arange(num_parts + 1, dtype=ordered.dtype, device=ids.device))
    return bounds, ids[order], torch.empty_like(place).index_copy_(0, order, place)
