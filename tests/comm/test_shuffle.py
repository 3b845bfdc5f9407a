"""Shuffles: values spelt out, gradients by transposition, bytes and rounds by formula."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from exchanging import Sent, connect, traffic
from small_graphs import sparse_rows

from gnnexp.comm.shuffle import ShuffleIndex, shuffle
from gnnexp.graph.sparse import SparseRows


def indices(size: int) -> list[ShuffleIndex]:
    """For every rank: the same local row may go to several ranks, to each at most once."""
    generator = torch.Generator().manual_seed(size)
    local = [6 + 2 * rank for rank in range(size)]
    sends = [[torch.empty(0, dtype=torch.int64) if a == b or (a, b) == (1, 0)
              else torch.randperm(local[a], generator=generator)[: 2 + b] for b in range(size)] for a in range(size)]
    return [
        ShuffleIndex(torch.cat(sends[rank]), tuple(part.numel() for part in sends[rank]),
                     tuple(sends[other][rank].numel() for other in range(size)), local[rank])
        for rank in range(size)
    ]


def local_rows(size: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + size)
    return [torch.rand((index.num_local, 3), generator=generator, dtype=torch.float64) for index in indices(size)]


def shuffled(size: int, rank: int) -> torch.Tensor:
    """What rank `rank` should have, spelt out."""
    rows, every = local_rows(size), indices(size)
    parts = [rows[rank]]
    for other in range(size):
        before = sum(every[other].sent[:rank])
        parts.append(rows[other][every[other].send_rows[before : before + every[other].sent[rank]]])
    return torch.cat(parts)


def _shuffle() -> tuple[float, float, Sent, Sent]:
    comm = connect()
    index = indices(comm.size)[comm.rank]
    x = local_rows(comm.size)[comm.rank].requires_grad_()
    mixed = shuffle(x, index, comm, "activations")
    assert isinstance(mixed, torch.Tensor)
    assert index.num_foreign == sum(index.received)
    assert torch.equal(mixed.detach(), shuffled(comm.size, comm.rank))
    forwards = traffic(comm)
    y = torch.rand(mixed.shape, generator=torch.Generator().manual_seed(comm.rank), dtype=torch.float64)
    mixed.backward(y)
    assert x.grad is not None
    return float((mixed.detach() * y).sum()), float((x.detach() * x.grad).sum()), forwards, traffic(comm)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_shuffle_and_its_transpose(ranks, size):
    found = ranks(size).run(_shuffle)
    assert sum(left for left, _, _, _ in found) == pytest.approx(sum(right for _, right, _, _ in found), rel=1e-13)
    for index, (_, _, forwards, backwards) in zip(indices(size), found, strict=True):
        assert forwards == {"activations": (sum(index.sent) * 3 * 8, 1)}
        assert backwards == {"activations": (sum(index.received) * 3 * 8, 1)}


def _shuffle_gradient() -> torch.Tensor:
    comm = connect()
    x = local_rows(comm.size)[comm.rank].requires_grad_()
    mixed = shuffle(x, indices(comm.size)[comm.rank], comm, "activations")
    assert isinstance(mixed, torch.Tensor)
    (mixed * (comm.rank + 1)).sum().backward()
    assert x.grad is not None
    return x.grad


def test_the_gradient_of_a_row_comes_from_everybody_who_has_it(ranks):
    size = 3
    for rank, (index, gradient) in enumerate(zip(indices(size), ranks(size).run(_shuffle_gradient), strict=True)):
        expected = torch.full((index.num_local, 3), float(rank + 1), dtype=torch.float64)
        for other, (first, last) in enumerate(pairwise([sum(index.sent[:n]) for n in range(size + 1)])):
            expected[index.send_rows[first:last]] += other + 1
        assert torch.equal(gradient, expected)


def _shuffle_sparse() -> bool:
    comm = connect()
    every = [sparse_rows(rows) for rows in local_rows(comm.size)]
    found = shuffle(every[comm.rank], indices(comm.size)[comm.rank], comm, "features")
    assert isinstance(found, SparseRows)
    kept = shuffled(comm.size, comm.rank)
    return torch.equal(found.to_dense(), torch.where(kept > 0.5, kept, 0))


def test_sparse_rows_are_shuffled_too(ranks):
    assert ranks(3).run(_shuffle_sparse) == [True] * 3
