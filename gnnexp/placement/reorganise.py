"""Select the chunks of every batch and the order of batches, so that fewer rows are transferred (HongTu, section 5.3).

Algorithm 4 has two phases. First, chunks that read the same vertices come into the same batch. Then batches that read
the same vertices come one after another. The algorithm is greedy, so its order is used only if its cost by Equation 4
is lower. Every rank counts the overlaps of its own vertices, and sums over ranks are exact.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy import sparse

from gnnexp.comm.communicator import Communicator
from gnnexp.components.schema import HardwareConfig
from gnnexp.placement.transitions import Dedup, Readings


@dataclass(frozen=True)
class Volumes:
    """Rows that one pass over all batches transfers from host memory and between ranks, summed over ranks.

    Attributes:
        original: V_ori, sum of |N_ij|.
        inter: V_+p2p, sum of the numbers of transition vertices of the batches.
        both: V_+ru, the transition vertices that the batch before did not hold.
        intra: sum of |N_ij| without the rows that the rank's chunk before has read: reuse without exchange.
        foreign: rows of N_ij that another rank owns; the paper approximates them by V_ori - V_+p2p.
        foreign_new: rows of `foreign` that the rank's chunk before has not read.
    """

    original: int
    inter: int
    both: int
    intra: int
    foreign: int
    foreign_new: int

    def from_host(self, dedup: Dedup) -> int:
        """Rows that come from host memory."""
        if dedup.inter:
            return self.both if dedup.intra else self.inter
        return self.intra if dedup.intra else self.original

    def between(self, dedup: Dedup) -> int:
        """Rows that go from rank to rank."""
        return self.foreign_new if dedup.intra else self.foreign

    def cost(self, rates: Rates) -> float:
        """The cost by Equation 4, in seconds if `rates` has figures of the hardware."""
        return (
            self.both / rates.host
            + (self.original - self.inter) / rates.device
            + (self.inter - self.both) / rates.reuse
        )


@dataclass(frozen=True)
class Rates:
    """The throughputs of Equation 4, in rows per second.

    Attributes:
        host: throughput from host memory to device.
        device: throughput from device to device.
        reuse: throughput of reuse in place.
        source: origin of the figures, for messages.
    """

    host: float
    device: float
    reuse: float
    source: str

    @staticmethod
    def of(hardware: HardwareConfig, row_bytes: int) -> Rates:
        """The rates of the hardware profile; without a profile only host rows count, at one row per second."""
        links, nothing = hardware.links, float("inf")
        if links is None or not links.h2d:
            return Rates(1.0, nothing, nothing, "no figures of hardware.links.h2d: the cost is V_+ru, in rows")
        between = links.d2d or links.network
        return Rates(
            links.h2d / row_bytes,
            between / row_bytes if between else nothing,
            hardware.gather / row_bytes if hardware.gather else nothing,
            hardware.source or "hardware profile",
        )


@dataclass(frozen=True, eq=False)
class ChunkOrder:
    """The order of the chunks, and the figures that decided it.

    Attributes:
        chunks: `[ranks, n]`, the chunk of each rank in batch j.
        initial, reorganised: volumes of the order of ranges, and of Algorithm 4 (None if it did not run).
        initial_cost, reorganised_cost: costs of both orders by Equation 4.
        seconds: time to find the order.
        taken: whether the order is that of Algorithm 4.
        note: the chosen order and the reason.
    """

    chunks: np.ndarray
    initial: Volumes
    reorganised: Volumes | None
    initial_cost: float
    reorganised_cost: float | None
    seconds: float
    taken: bool
    note: str

    @property
    def volumes(self) -> Volumes:
        """The volumes of the chosen order."""
        return self.reorganised if self.taken and self.reorganised is not None else self.initial

    def undone(self, why: str) -> ChunkOrder:
        """The order of ranges in place of this order, with `why` as note."""
        return replace(self, chunks=ranges(*self.chunks.shape), taken=False, note=why)


def choose_order(readings: Readings, comm: Communicator, rates: Rates, *, reorganise: bool) -> ChunkOrder:
    """The order of ranges, or that of Algorithm 4 if it costs less; all ranks call this and get the same order."""
    start = time.perf_counter()
    initial = ranges(len(readings.by_rank), len(readings.chunks))
    volumes = volumes_of(readings, initial, comm)
    cost = volumes.cost(rates)
    if not reorganise:
        return ChunkOrder(initial, volumes, None, cost, None, time.perf_counter() - start, False, "order of ranges")
    chunks = algorithm_4(readings, comm)
    after = volumes_of(readings, chunks, comm)
    less = after.cost(rates) < cost
    note = "reorganised: Equation 4 falls" if less else "order of ranges: Equation 4 does not fall with Algorithm 4"
    return ChunkOrder(
        chunks if less else initial,
        volumes,
        after,
        cost,
        after.cost(rates),
        time.perf_counter() - start,
        less,
        f"{note} ({rates.source})",
    )


def ranges(ranks: int, count: int) -> np.ndarray:
    """The order of ranges `[ranks, n]`: chunks in the order of their destinations."""
    return np.tile(np.arange(count), (ranks, 1))


def algorithm_4(found: Readings, comm: Communicator) -> np.ndarray:
    """The order of Algorithm 4: `[ranks, n]`, the chunk of each rank in every batch."""
    count, readers = len(found.chunks), [_matrix(parts, found.num_own) for parts in found.by_rank]
    chunks = [np.arange(count)]
    union = readers[0]
    for reader in readers[1:]:  # phase 1: join each batch with the chunk of the next rank that shares most with it
        chunks.append(_best_matches(_shared(reader, union, comm)))
        union = _flags(union + reader[:, chunks[-1]])
    path = _greedy_path(_shared(union, union, comm))  # phase 2: each batch after the one that shares most with it
    return np.stack(chunks)[:, path]


def _best_matches(shared: np.ndarray) -> np.ndarray:
    """For each batch j in order, the unused chunk k with the largest `shared[k, j]`, the lowest k on ties."""
    left, chosen = np.ones(shared.shape[0], bool), []
    for batch in range(shared.shape[1]):
        chosen.append(int(np.argmax(np.where(left, shared[:, batch], -1))))
        left[chosen[-1]] = False
    return np.array(chosen)


def _greedy_path(shared: np.ndarray) -> list[int]:
    """A path over all batches from batch 0: next is the unused batch that shares most with the last, lowest on ties."""
    left, path = np.ones(shared.shape[0], bool), [0]
    left[0] = False
    while left.any():
        path.append(int(np.argmax(np.where(left, shared[path[-1]], -1))))
        left[path[-1]] = False
    return path


def volumes_of(readings: Readings, chunks: np.ndarray, comm: Communicator) -> Volumes:
    """The volumes of one order, summed over all ranks."""
    num_own = readings.num_own
    union: Any = None
    both = intra = foreign = foreign_new = 0
    for rank, parts in enumerate(readings.by_rank):
        reader = _matrix([parts[chunk] for chunk in chunks[rank]], num_own)
        union = reader if union is None else _flags(union + reader)
        read, again = int(reader.nnz), _adjacent(reader)
        intra += read - again
        if rank != comm.rank:
            foreign += read
            foreign_new += read - again
    inter = int(union.nnz)
    both = inter - _adjacent(union)
    original = sum(rows.size for rows in readings.rows)
    return Volumes(*_summed(np.array([original, inter, both, intra, foreign, foreign_new]), comm).tolist())


def _adjacent(matrix: sparse.csr_array) -> int:
    """The number of rows in both column j and column j - 1, summed over all j."""
    return int(_follows(matrix).sum())


def _follows(matrix: sparse.csr_array) -> np.ndarray:
    """For every entry except the first: whether the entry before is its left neighbour in the same row."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    follows: np.ndarray = (np.diff(matrix.indices) == 1) & (np.diff(rows) == 0)
    return follows


def _matrix(parts: Sequence[np.ndarray], num_rows: int) -> sparse.csr_array:
    """A sparse matrix `[num_rows, n]` with 1 in column j for every row in `parts[j]`."""
    rows = np.concatenate(parts)
    columns = np.repeat(np.arange(len(parts), dtype=np.int32), [part.size for part in parts])
    matrix = sparse.csr_array((np.ones(rows.size, np.int32), (rows, columns)), shape=(num_rows, len(parts)))
    matrix.sort_indices()
    return matrix


def _flags(matrix: sparse.csr_array) -> sparse.csr_array:
    matrix.data[:] = 1
    matrix.sort_indices()
    return matrix


# Most matrix entries multiplied at one time, because a product needs several copies of its operands.
_ENTRIES = 1 << 25


def _shared(a: sparse.csr_array, b: sparse.csr_array, comm: Communicator) -> np.ndarray:
    """The number of rows that each column of `a` shares with each column of `b`, summed over all ranks: `[n, n]`."""
    counts = np.zeros((a.shape[1], b.shape[1]), np.int64)
    pieces = max(1, (a.nnz + b.nnz) // _ENTRIES)
    for first, last in pairwise([a.shape[0] * piece // pieces for piece in range(pieces + 1)]):
        counts += (a[first:last].T.astype(np.int64) @ b[first:last].astype(np.int64)).toarray()
    return _summed(counts, comm)


def _summed(counts: np.ndarray, comm: Communicator) -> np.ndarray:
    total = torch.from_numpy(np.ascontiguousarray(counts, np.int64))
    comm.all_reduce(total, "sizes")
    summed: np.ndarray = total.numpy()
    return summed


def volumes_by_batch(readings: Readings, chunks: np.ndarray, comm: Communicator) -> dict[str, list[int]]:
    """V_ori, V_+p2p and V_+ru of every batch, summed over all ranks."""
    count = chunks.shape[1]
    union: Any = None
    original = np.zeros(count, np.int64)
    for rank, parts in enumerate(readings.by_rank):
        ordered = [parts[chunk] for chunk in chunks[rank]]
        original += [part.size for part in ordered]
        reader = _matrix(ordered, readings.num_own)
        union = reader if union is None else _flags(union + reader)
    inter = np.bincount(union.indices, minlength=count)
    again = np.bincount(union.indices[1:][_follows(union)], minlength=count)
    totals = _summed(np.stack((original, inter, inter - again)), comm).tolist()
    return dict(zip(("original", "inter", "both"), totals, strict=True))
