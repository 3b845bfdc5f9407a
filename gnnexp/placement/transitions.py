"""The rows on a rank's device in every batch of offloaded training, and the transfers in between (HongTu, 5 and 6).

- batch j: the j-th chunks of all ranks, which are computed at the same time.
- N_ij: the sources of rank i's chunk in batch j, including its destinations.
- T_ij: the transition vertices, which are own vertices of rank i that any chunk of batch j reads.
- held rows: T_ij and N_ij in one buffer (section 6, "data buffer deduplication").

In the forward pass a batch fetches the rows that the batch before it does not hold. In the backward pass the gradients
of these rows leave together. Rows of other ranks come from their owners, which read them from host memory first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.placement.chunks import Chunk, cut, rank_bounds
from gnnexp.placement.halo import RankLayer, shuffle_index


@dataclass(frozen=True)
class Dedup:
    """Which duplicate rows are not fetched from host memory again (+P2P and +RU in Figure 9).

    Attributes:
        inter: rows that chunks of several ranks read in a batch; the owner fetches them once and sends them to others.
        intra: rows that the rank's next chunk reads again; they stay in their places.
    """

    inter: bool
    intra: bool


BOTH = Dedup(inter=True, intra=True)


@dataclass(frozen=True, eq=False)
class Move:
    """The rows that enter a rank's buffer with a batch, and the rows that other ranks take.

    Attributes:
        own: `[a]` int64 numbers of the rank's own rows that come from host memory.
        own_places: `[a]` int64 places of these rows in the buffer.
        sent: `[b]` int64 rows that other ranks take, by rank: with `inter` places in the buffer, else numbers of own
            rows.
        sent_counts: number of rows sent to each rank.
        places: `[c]` int64 places in the buffer for rows of other ranks, by rank.
        counts: number of rows received from each rank.
    """

    own: Tensor
    own_places: Tensor
    sent: Tensor
    sent_counts: tuple[int, ...]
    places: Tensor
    counts: tuple[int, ...]

    def to(self, device: torch.device, inter: bool) -> Move:
        """Move the indices of buffer places to the device; indices of host rows stay on the host."""
        sent = self.sent.to(device) if inter else self.sent
        return replace(self, own_places=self.own_places.to(device), sent=sent, places=self.places.to(device))

    def nbytes(self) -> int:
        """Bytes of all indices."""
        return sum(x.nbytes for x in (self.own, self.own_places, self.sent, self.places))


@dataclass(frozen=True, eq=False)
class Visit:
    """The work of one rank in a batch.

    Attributes:
        chunk: the rank's chunk; its sources are places in the buffer.
        forward: rows that come in if the buffer holds the batch before; in the backward pass their gradients leave
            after the batch.
        back: rows that come in if the buffer holds the batch after; None if the backward pass runs no layer again.
    """

    chunk: Chunk
    forward: Move
    back: Move | None

    def to(self, device: torch.device, inter: bool) -> Visit:
        """The visit with the indices of its moves on `device` where needed; the chunk's topology stays on the host."""
        back = None if self.back is None else self.back.to(device, inter)
        return replace(self, forward=self.forward.to(device, inter), back=back)


@dataclass(frozen=True, eq=False)
class Transitions:
    """The visits of a rank in the order of batches, and the number of rows that its buffer needs."""

    visits: tuple[Visit, ...]
    capacity: int


@dataclass(frozen=True, eq=False)
class Readings:
    """The rows that every chunk reads.

    Attributes:
        level: graph of the rank: its own vertices first, then foreign vertices by owner.
        chunks: chunks of the rank, in the order of their destinations.
        rows: for each chunk, the rows of the level that it reads, ascending.
        by_rank: for each rank and each of its chunks, the own rows of *this* rank that the chunk reads, ascending.
    """

    level: RankLayer
    chunks: tuple[Chunk, ...]
    rows: tuple[np.ndarray, ...]
    by_rank: tuple[tuple[np.ndarray, ...], ...]

    @property
    def num_own(self) -> int:
        """Number of vertices that the rank owns."""
        return self.level.block.num_dst


def readings(level: RankLayer, own: Tensor, count: int, comm: Communicator) -> Readings:
    """Cut a rank's destinations into `count` ranges, and tell the owners of foreign rows which range reads which rows.

    Ranges are balanced by edges plus vertices, as in Gemini, which the paper cites (4.1). All ranks call this.

    Args:
        level: graph of the rank; destinations are its own vertices, and no foreign vertex is cached.
        own: `[n]` ids of the own vertices, ascending.
        count: number of chunks, the same on all ranks; chunks may be empty.
        comm: communicator of all ranks for host tensors.
    """
    block, bounds = level.block, rank_bounds(level.block, count)
    chunks = tuple(_chunks(level, bounds))
    rows = tuple(_rows(chunk, block.num_src) for chunk in chunks)
    index = shuffle_index(level.wanted, level.fetched, level.num_local, own, comm)
    starts = level.num_local + np.concatenate(([0], np.cumsum(level.fetched)))
    wanted = [
        [part[np.searchsorted(part, first) : np.searchsorted(part, last)] - first for part in rows]
        for first, last in pairwise(starts)
    ]
    counts = torch.tensor([[part.size for part in of_home] for of_home in wanted])
    asked = comm.swap(counts)
    positions = np.concatenate([part for of_home in wanted for part in of_home]).astype(np.int32)
    received = comm.all_to_all(
        torch.from_numpy(positions), counts.sum(1).tolist(), asked.sum(1).tolist(), "frontier"
    ).numpy()
    by_rank: list[tuple[np.ndarray, ...]] = []
    pieces, sends = np.split(received, np.cumsum(asked.flatten().numpy())[:-1]), index.send_rows.numpy()
    first_row = np.concatenate(([0], np.cumsum(index.sent)))
    for rank in range(comm.size):
        if rank == comm.rank:
            by_rank.append(tuple(part[: np.searchsorted(part, level.num_local)] for part in rows))
            continue
        own_rows = sends[first_row[rank] : first_row[rank + 1]]
        by_rank.append(tuple(own_rows[piece] for piece in pieces[rank * count : (rank + 1) * count]))
    return Readings(level, chunks, rows, tuple(by_rank))


def _chunks(level: RankLayer, bounds: Sequence[int]) -> Iterable[Chunk]:
    """The chunks of all ranges; an empty range gives an empty chunk."""
    filled = sorted(set(bounds))
    made = iter(cut(level.block, filled) if level.block.num_dst else ())
    for first, last in pairwise(bounds):
        yield next(made) if last > first else empty_chunk(level, first)


def empty_chunk(level: RankLayer, first: int = 0) -> Chunk:
    """A chunk without destinations, before destination `first`; it has the same optional arrays as other chunks."""
    block, edge = level.block, int(level.block.indptr[first])
    nothing = torch.empty(0, dtype=torch.int64)
    parts: dict[str, Any] = {
        name: None if (held := getattr(block, name)) is None else held[:0] for name in ("in_degree", "in_weight")
    }
    empty = replace(
        block,
        indptr=torch.zeros(1, dtype=torch.int64),
        sources=block.sources[:0],
        src_ids=block.src_ids[:0],
        num_dst=0,
        **parts,
        **block.of_edges(slice(0)),
    )
    return Chunk(empty, nothing, first, first, slice(edge, edge))


def _rows(chunk: Chunk, num_src: int) -> np.ndarray:
    found: np.ndarray = np.arange(num_src) if chunk.rows is None else np.sort(chunk.rows.numpy())
    return found


# Sorting n rows costs about as much as scanning this many times n flags.
_SORTING = 16


class _Held(NamedTuple):
    """The buffer of a rank in one batch: rows of the level, ascending, and their places in the buffer."""

    rows: np.ndarray
    places: np.ndarray


def transitions(readings: Readings, orders: np.ndarray, dedup: Dedup, rank: int, *, again: bool) -> Transitions:
    """The places of all rows in every batch, and the moves between batches.

    Args:
        readings: the rows that every chunk reads.
        orders: `[ranks, n]`, the chunk of each rank in batch j.
        dedup: which duplicate rows are not fetched again.
        rank: number of this rank.
        again: whether the backward pass fetches rows again.
    """
    count, num_rows = orders.shape[1], readings.level.block.num_src
    wanted = [held_rows(readings, orders, dedup, rank, batch) for batch in range(count)]
    held, capacity = _places(wanted, num_rows, dedup.intra)
    place, inside = np.zeros(num_rows, np.int64), np.zeros(num_rows, bool)
    visits = []
    for batch in range(count):
        place[held[batch].rows] = held[batch].places
        moves = [
            _move(readings, orders, dedup, rank, (batch, other), held, place, inside)
            for other in ((batch - 1, batch + 1) if again else (batch - 1,))
        ]
        chunk = readings.chunks[orders[rank, batch]]
        visits.append(
            Visit(_placed(chunk, readings, place, held[batch], capacity), moves[0], moves[1] if again else None)
        )
    return Transitions(tuple(visits), capacity)


def transition_rows(readings: Readings, orders: np.ndarray, batch: int) -> np.ndarray:
    """T_ij: the own rows of this rank that any chunk of the batch reads."""
    of_ranks = [readings.by_rank[rank][orders[rank, batch]] for rank in range(orders.shape[0])]
    rows: np.ndarray = of_ranks[0]
    if len(of_ranks) > 1 and sum(part.size for part in of_ranks) * _SORTING < readings.num_own:
        rows = np.unique(np.concatenate(of_ranks))
    elif len(of_ranks) > 1:
        read = np.zeros(readings.num_own, bool)
        for part in of_ranks:
            read[part] = True
        rows = np.flatnonzero(read)
    return rows


def held_rows(found: Readings, orders: np.ndarray, dedup: Dedup, rank: int, batch: int) -> np.ndarray:
    """The rows of the level that the rank's buffer holds in a batch, ascending."""
    read: np.ndarray = found.rows[orders[rank, batch]]
    if not dedup.inter:
        return read
    foreign = read[np.searchsorted(read, found.num_own) :]
    held: np.ndarray = np.concatenate((transition_rows(found, orders, batch), foreign))
    return held


def _places(wanted: Sequence[np.ndarray], num_rows: int, stay: bool) -> tuple[list[_Held], int]:
    """The places of the rows of every batch, and the number of places that the buffer needs.

    With `stay`, rows that the next batch also holds keep their places (section 6, "in-place"), and new rows take the
    lowest free places.
    """
    if not stay:
        return [_Held(rows, np.arange(rows.size)) for rows in wanted], max(rows.size for rows in wanted)
    places: list[_Held] = []
    place, inside = np.full(num_rows, -1, np.int64), np.zeros(num_rows, bool)
    free, capacity, before = np.empty(0, np.int64), 0, np.empty(0, np.int64)
    for rows in wanted:
        left = _without(before, rows, inside)
        free = np.sort(np.concatenate((free, place[left])))
        place[left] = -1
        entering = rows[place[rows] < 0]
        fresh = np.arange(capacity, capacity + max(0, entering.size - free.size))
        capacity += fresh.size
        place[entering] = np.concatenate((free, fresh))[: entering.size]
        free, before = free[entering.size :], rows
        places.append(_Held(rows, place[rows]))
    return places, capacity


def _without(rows: np.ndarray, others: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """The `rows` that are not in `others`; `inside` is working memory, all False before and after."""
    inside[others] = True
    left: np.ndarray = rows[~inside[rows]]
    inside[others] = False
    return left


def _move(
    readings: Readings,
    orders: np.ndarray,
    dedup: Dedup,
    rank: int,
    pair: tuple[int, int],
    held: Sequence[_Held],
    place: np.ndarray,
    inside: np.ndarray,
) -> Move:
    """The move into batch `pair[0]` if the buffer holds batch `pair[1]`, or no batch if that number is out of range."""
    batch, other = pair
    stays = dedup.intra and 0 <= other < orders.shape[1]
    rows = _without(held[batch].rows, held[other].rows, inside) if stays else held[batch].rows
    own, foreign = np.split(rows, [np.searchsorted(rows, readings.num_own)])
    bounds = readings.num_own + np.concatenate(([0], np.cumsum(readings.level.fetched)))
    sent = []
    for reader, of_rank in enumerate(readings.by_rank):
        read = of_rank[orders[reader, batch]]
        if reader == rank:
            read = read[:0]
        elif stays:
            read = _without(read, of_rank[orders[reader, other]], inside)
        sent.append(read)
    gone = np.concatenate(sent).astype(np.int64)
    return Move(
        _tensor(own),
        _tensor(place[own]),
        _tensor(place[gone] if dedup.inter else gone),
        tuple(part.size for part in sent),
        _tensor(place[foreign]),
        tuple(np.diff(np.searchsorted(foreign, bounds)).tolist()),
    )


def _placed(chunk: Chunk, found: Readings, place: np.ndarray, held: _Held, capacity: int) -> Chunk:
    """The chunk with its sources replaced by their places in the buffer."""
    block, rows = chunk.block, torch.arange(found.level.block.num_src) if chunk.rows is None else chunk.rows
    ids = torch.zeros(capacity, dtype=found.level.block.src_ids.dtype)
    ids[_tensor(held.places)] = found.level.block.src_ids[_tensor(held.rows)]
    at = torch.from_numpy(place)[rows]
    placed = replace(
        block, sources=at[block.sources.long()].int(), src_ids=ids, dst_positions=at[: block.num_dst].contiguous()
    )
    return replace(chunk, block=placed, rows=None)


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, np.int64))
