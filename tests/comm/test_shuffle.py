"""Shuffles: values spelt out, gradients by transposition, bytes and rounds by formula."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from exchanging import Sent, alone, connect, indices, local_rows, traffic
from small_graphs import sparse_rows

from gnnexp.comm.shuffle import ShuffleIndex, reduce_home, reduce_max_home, shuffle
from gnnexp.graph.sparse import SparseRows


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


def partial_rows(size: int) -> list[torch.Tensor]:
    """For every rank `[num_local + F, 3]`: its own rows, then what it has to add to those of others."""
    generator = torch.Generator().manual_seed(200 + size)
    return [
        torch.rand((index.num_local + index.num_foreign, 3), generator=generator, dtype=torch.float64) - 0.5
        for index in indices(size)
    ]


def parts_at_home(size: int, rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """(places among the rank's own rows, rows that belong there) of every other rank, in order of rank."""
    every, partial, found = indices(size), partial_rows(size), []
    for other in range(size):
        start = sum(every[rank].sent[:other])
        places = every[rank].send_rows[start : start + every[rank].sent[other]]
        first = every[other].num_local + sum(every[other].received[:rank])
        found.append((places, partial[other][first : first + places.numel()]))
    return found


def _reduce_home() -> tuple[float, float, Sent, Sent]:
    comm = connect()
    index = indices(comm.size)[comm.rank]
    rows = partial_rows(comm.size)[comm.rank].requires_grad_()
    home = reduce_home(rows, index, comm, "activations")
    expected = rows.detach()[: index.num_local].clone()
    for places, part in parts_at_home(comm.size, comm.rank):  # in order of rank: bit for bit
        expected[places] += part
    assert torch.equal(home.detach(), expected)
    forwards = traffic(comm)
    y = local_rows(comm.size)[comm.rank]
    home.backward(y)
    assert rows.grad is not None
    assert torch.equal(rows.grad, shuffled(comm.size, comm.rank)), "the gradient of a sum goes to all its parts"
    return float((home.detach() * y).sum()), float((rows.detach() * rows.grad).sum()), forwards, traffic(comm)


@pytest.mark.parametrize("size", [2, 3])
def test_sums_at_home_are_the_transpose_of_a_shuffle(ranks, size):
    found = ranks(size).run(_reduce_home)
    assert sum(left for left, _, _, _ in found) == pytest.approx(sum(right for _, right, _, _ in found), rel=1e-13)
    for index, (_, _, forwards, backwards) in zip(indices(size), found, strict=True):
        assert forwards == {"activations": (sum(index.received) * 3 * 8, 1)}
        assert backwards == {"activations": (sum(index.sent) * 3 * 8, 1)}


def _reduce_max_home() -> tuple[torch.Tensor, Sent]:
    comm = connect()
    index = indices(comm.size)[comm.rank]
    found = reduce_max_home(partial_rows(comm.size)[comm.rank].requires_grad_(), index, comm, "activations")
    assert not found.requires_grad
    return found, traffic(comm)


@pytest.mark.parametrize("size", [2, 3])
def test_the_largest_of_all_copies_is_at_every_copy(ranks, size):
    largest = []
    for rank, index in enumerate(indices(size)):
        own = partial_rows(size)[rank][: index.num_local].clone()
        for places, part in parts_at_home(size, rank):
            own[places] = torch.maximum(own[places], part)
        largest.append(own)
    for rank, (index, (found, sent)) in enumerate(zip(indices(size), ranks(size).run(_reduce_max_home), strict=True)):
        foreign = [
            largest[other][indices(size)[other].send_rows[first : first + index.received[other]]]
            for other in range(size)
            for first in [sum(indices(size)[other].sent[:rank])]
        ]
        assert torch.equal(found, torch.cat([largest[rank], *foreign]))
        assert sent == {"activations": ((sum(index.received) + sum(index.sent)) * 3 * 8, 2)}


def test_a_single_rank_is_at_home():
    comm, rows = alone(), torch.rand(4, 2, requires_grad=True)
    index = ShuffleIndex(torch.empty(0, dtype=torch.int64), (0,), (0,), 4)
    assert reduce_home(rows, index, comm, "activations") is rows
    largest = reduce_max_home(rows, index, comm, "activations")
    assert torch.equal(largest, rows) and not largest.requires_grad
    assert traffic(comm) == {}


def test_what_a_fetch_sends_is_told_before():
    index = indices(3)[0]
    assert index.fetch_bytes(torch.zeros(index.num_local, 5, dtype=torch.float32)) == sum(index.sent) * 5 * 4
    rows = sparse_rows(local_rows(3)[0])
    kept = int((local_rows(3)[0] > 0.5)[index.send_rows].sum())
    assert index.fetch_bytes(rows) == sum(index.sent) * 4 + kept * (4 + 8)
    assert index.nbytes() == sum(index.sent) * 8
