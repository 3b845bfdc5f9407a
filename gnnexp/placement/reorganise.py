"""Which chunks are worked on together, and in which order, so that less has to cross (HongTu, section 5.3).

Algorithm 4 in two phases: chunks that read the same vertices come into the same batch, then batches that read the same
vertices come one after another. It is greedy, so its order is taken only where Equation 4 says that it costs less.
Every rank counts the overlaps of its own vertices; sums over ranks are exact.
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
from gnnexp.experiment.schema import HardwareConfig
from gnnexp.placement.transitions import Dedup, Readings


@dataclass(frozen=True)
class Volumes:
    """Rows over all ranks that one sweep over the batches brings from host memory, and from rank to rank.

    Attributes:
        original: V_ori, sum of |N_ij|.
        inter: V_+p2p, sum of the batches' transition vertices.
        both: V_+ru, of those only what the batch before did not hold.
        intra: sum of |N_ij| without what the same rank's chunk before read: reuse without exchange.
        foreign: rows of N_ij with another home, which the paper approximates by V_ori - V_+p2p.
        foreign_new: of those what the rank's chunk before did not read.
    """

    original: int
    inter: int
    both: int
    intra: int
    foreign: int
    foreign_new: int

    def from_host(self, dedup: Dedup) -> int:
        """Rows that cross from host memory."""
        if dedup.inter:
            return self.both if dedup.intra else self.inter
        return self.intra if dedup.intra else self.original

    def between(self, dedup: Dedup) -> int:
        """Rows that go from rank to rank."""
        return self.foreign_new if dedup.intra else self.foreign

    def cost(self, rates: Rates) -> float:
        """Equation 4."""
        return (self.both / rates.host + (self.original - self.inter) / rates.device
                + (self.inter - self.both) / rates.reuse)


@dataclass(frozen=True)
class Rates:
    """Throughputs of Equation 4, in rows per second.

    Attributes:
        host: host memory to device.
        device: device to device.
        reuse: in place.
        source: where they are from.
    """

    host: float
    device: float
    reuse: float
    source: str

    @staticmethod
    def of(hardware: HardwareConfig, row_bytes: int) -> Rates:
        """Those of the profile; without one only host rows count, at one per second."""
        links, nothing = hardware.links, float("inf")
        if links is None or not links.h2d:
            return Rates(1.0, nothing, nothing, "no figures of hardware.links.h2d: the cost is V_+ru, in rows")
        between = links.d2d or links.network
        return Rates(links.h2d / row_bytes, between / row_bytes if between else nothing,
                     hardware.gather / row_bytes if hardware.gather else nothing, hardware.source or "hardware profile")


@dataclass(frozen=True, eq=False)
class ChunkOrder:
    """The order of the chunks, and what it was chosen for.

    Attributes:
        chunks: `[ranks, n]`, which chunk of a rank is in batch j.
        initial, reorganised: volumes of the order of ranges, and of Algorithm 4 (None where it was not asked for).
        initial_cost, reorganised_cost: Equation 4.
        seconds: that finding it took.
        taken: whether it is Algorithm 4's.
        note: what was chosen and why.
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
        """Of the chosen order."""
        return self.reorganised if self.taken and self.reorganised is not None else self.initial

    def undone(self, why: str) -> ChunkOrder:
        """The order of ranges after all."""
        return replace(self, chunks=ranges(*self.chunks.shape), taken=False, note=why)


def choose_order(found: Readings, comm: Communicator, rates: Rates, *, reorganise: bool) -> ChunkOrder:
    """The order of ranges, or Algorithm 4's where it costs less; called by all ranks, the same on all of them."""
    start = time.perf_counter()
    initial = ranges(len(found.by_rank), len(found.chunks))
    volumes = volumes_of(found, initial, comm)
    cost = volumes.cost(rates)
    if not reorganise:
        return ChunkOrder(initial, volumes, None, cost, None, time.perf_counter() - start, False, "order of ranges")
    chunks = algorithm_4(found, comm)
    after = volumes_of(found, chunks, comm)
    less = after.cost(rates) < cost
    note = "reorganised: Equation 4 falls" if less else "order of ranges: Equation 4 does not fall with Algorithm 4"
    return ChunkOrder(chunks if less else initial, volumes, after, cost, after.cost(rates), time.perf_counter() - start,
                 less, f"{note} ({rates.source})")


def ranges(ranks: int, count: int) -> np.ndarray:
    """`[ranks, n]`: chunks in order of their destinations."""
    return np.tile(np.arange(count), (ranks, 1))


def algorithm_4(found: Readings, comm: Communicator) -> np.ndarray:
    """`[ranks, n]`: the reorganised chunks of every batch."""
    count, readers = len(found.chunks), [_matrix(parts, found.num_own) for parts in found.by_rank]
    chunks = [np.arange(count)]
    union = readers[0]
    for reader in readers[1:]:  # phase 1: join each batch with the chunk of the next rank that shares most with it
        chunks.append(_best_matches(_shared(reader, union, comm)))
        union = _flags(union + reader[:, chunks[-1]])
    path = _greedy_path(_shared(union, union, comm))  # phase 2: each batch after the one that shares most with it
    return np.stack(chunks)[:, path]


def _best_matches(shared: np.ndarray) -> np.ndarray:
    """Per batch j in turn, the chunk k left over with the largest `shared[k, j]`; the lowest on ties."""
    left, chosen = np.ones(shared.shape[0], bool), []
    for batch in range(shared.shape[1]):
        chosen.append(int(np.argmax(np.where(left, shared[:, batch], -1))))
        left[chosen[-1]] = False
    return np.array(chosen)


def _greedy_path(shared: np.ndarray) -> list[int]:
    """From batch 0 always on to the one left over that shares most with the last; the lowest on ties."""
    left, path = np.ones(shared.shape[0], bool), [0]
    left[0] = False
    while left.any():
        path.append(int(np.argmax(np.where(left, shared[path[-1]], -1))))
        left[path[-1]] = False
    return path


def volumes_of(found: Readings, chunks: np.ndarray, comm: Communicator) -> Volumes:
    """Counted over all ranks for one order."""
    num_own = found.num_own
    union: Any = None
    both = intra = foreign = foreign_new = 0
    for rank, parts in enumerate(found.by_rank):
        reader = _matrix([parts[chunk] for chunk in chunks[rank]], num_own)
        union = reader if union is None else _flags(union + reader)
        read, again = int(reader.nnz), _adjacent(reader)
        intra += read - again
        if rank != comm.rank:
            foreign += read
            foreign_new += read - again
    inter = int(union.nnz)
    both = inter - _adjacent(union)
    original = sum(rows.size for rows in found.rows)
    return Volumes(*_summed(np.array([original, inter, both, intra, foreign, foreign_new]), comm).tolist())


def _adjacent(matrix: sparse.csr_array) -> int:
    """How many rows are in column j and in column j - 1, over all j."""
    return int(_follows(matrix).sum())


def _follows(matrix: sparse.csr_array) -> np.ndarray:
    """Of all entries but the first: whether the one before is its left neighbour."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    follows: np.ndarray = (np.diff(matrix.indices) == 1) & (np.diff(rows) == 0)
    return follows


def _matrix(parts: Sequence[np.ndarray], num_rows: int) -> sparse.csr_array:
    """`[num_rows, n]` ones where part j has a row."""
    rows = np.concatenate(parts)
    columns = np.repeat(np.arange(len(parts), dtype=np.int32), [part.size for part in parts])
    matrix = sparse.csr_array((np.ones(rows.size, np.int32), (rows, columns)), shape=(num_rows, len(parts)))
    matrix.sort_indices()
    return matrix


def _flags(matrix: sparse.csr_array) -> sparse.csr_array:
    matrix.data[:] = 1
    matrix.sort_indices()
    return matrix


# A product takes several copies of what it multiplies: that many entries at a time.
_ENTRIES = 1 << 25


def _shared(a: sparse.csr_array, b: sparse.csr_array, comm: Communicator) -> np.ndarray:
    """`[n, n]`: how many rows columns of `a` and `b` have in common, over all ranks."""
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


def volumes_by_batch(found: Readings, chunks: np.ndarray, comm: Communicator) -> dict[str, list[int]]:
    """V_ori, V_+p2p and V_+ru of every batch, over all ranks."""
    count = chunks.shape[1]
    union: Any = None
    original = np.zeros(count, np.int64)
    for rank, parts in enumerate(found.by_rank):
        ordered = [parts[chunk] for chunk in chunks[rank]]
        original += [part.size for part in ordered]
        reader = _matrix(ordered, found.num_own)
        union = reader if union is None else _flags(union + reader)
    inter = np.bincount(union.indices, minlength=count)
    again = np.bincount(union.indices[1:][_follows(union)], minlength=count)
    totals = _summed(np.stack((original, inter, inter - again)), comm).tolist()
    return dict(zip(("original", "inter", "both"), totals, strict=True))
