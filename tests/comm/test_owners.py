"""Sums at owners and spreading from them: values, gradients by transposition, bytes and rounds by formula."""

from __future__ import annotations

import pytest
import torch
from exchanging import Sent, alone, connect, traffic
from small_graphs import sparse_rows

from gnnexp.comm.mesh import Mesh
from gnnexp.comm.owners import spread_from_owners, sum_at_owners
from gnnexp.comm.rows import exchange_rows
from gnnexp.comm.shuffle import ShuffleIndex, shuffle

Shape = tuple[int, ...]


def shapes_of(size: int) -> list[list[Shape]]:
    """Two tensors per batch; another number of rows on every rank, none on rank 1."""
    return [[(0, 2), (0,)] if rank == 1 else [(rank + 1, 2), (3 * rank + 2,)] for rank in range(size)]


def numbers_of(size: int) -> list[int]:
    return [sum(torch.Size(shape).numel() for shape in of_rank) for of_rank in shapes_of(size)]


def share_of(rank: int, size: int) -> list[list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(rank)
    return [
        [torch.rand(shape, generator=generator, dtype=torch.float64) for shape in of_rank]
        for of_rank in shapes_of(size)
    ]


def dot(first: list[torch.Tensor], second: list[torch.Tensor]) -> float:
    return sum(float((a.detach() * b.detach()).sum()) for a, b in zip(first, second, strict=True))


def flat(parts: list[list[torch.Tensor]]) -> list[torch.Tensor]:
    return [part for of_rank in parts for part in of_rank]


def gradients(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    found = [tensor.grad for tensor in tensors]
    assert None not in found
    return [gradient for gradient in found if gradient is not None]


def _sum_at_owners() -> tuple[float, float, Sent, Sent]:
    comm = connect()
    parts = share_of(comm.rank, comm.size)
    for part in flat(parts):
        part.requires_grad_()
    found = sum_at_owners(parts, comm, "activations")
    for k, total in enumerate(found):
        expected = torch.zeros_like(total)
        for rank in range(comm.size):  # in order of rank: bit for bit
            expected = expected + share_of(rank, comm.size)[comm.rank][k]
        assert torch.equal(total.detach(), expected)
    forwards = traffic(comm)
    y = [
        torch.rand(total.shape, generator=torch.Generator().manual_seed(77 + comm.rank), dtype=torch.float64)
        for total in found
    ]
    torch.autograd.backward(found, y)
    return dot(found, y), dot(flat(parts), gradients(flat(parts))), forwards, traffic(comm)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_sums_at_owners_and_their_transpose(ranks, size):
    found, numbers = ranks(size).run(_sum_at_owners), numbers_of(size)
    assert sum(left for left, _, _, _ in found) == pytest.approx(sum(right for _, right, _, _ in found), rel=1e-13)
    for rank, (_, _, forwards, backwards) in enumerate(found):
        assert forwards == {"activations": ((sum(numbers) - numbers[rank]) * 8, 1)}
        assert backwards == {"activations": ((size - 1) * numbers[rank] * 8, 1)}


def _spread_from_owners() -> tuple[float, float, Sent, Sent]:
    comm = connect()
    own = [tensor.requires_grad_() for tensor in share_of(comm.rank, comm.size)[comm.rank]]
    found = spread_from_owners(own, shapes_of(comm.size), comm, "activations")
    for rank, of_rank in enumerate(found):
        expected = share_of(rank, comm.size)[rank]
        assert all(torch.equal(a.detach(), b) for a, b in zip(of_rank, expected, strict=True))
    forwards = traffic(comm)
    y = flat(share_of(50 + comm.rank, comm.size))
    torch.autograd.backward(flat(found), y)
    return dot(flat(found), y), dot(own, gradients(own)), forwards, traffic(comm)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_spreading_from_owners_and_its_transpose(ranks, size):
    found, numbers = ranks(size).run(_spread_from_owners), numbers_of(size)
    assert sum(left for left, _, _, _ in found) == pytest.approx(sum(right for _, right, _, _ in found), rel=1e-13)
    for rank, (_, _, forwards, backwards) in enumerate(found):
        assert forwards == {"activations": ((size - 1) * numbers[rank] * 8, 1)}
        assert backwards == {"activations": ((sum(numbers) - numbers[rank]) * 8, 1)}


def _unused() -> bool:
    """Of two tensors a rank uses one: the other's gradients are zeros, and everybody takes part."""
    comm = connect()
    parts = share_of(comm.rank, comm.size)
    for part in flat(parts):
        part.requires_grad_()
    found = sum_at_owners(parts, comm, "activations")
    found[comm.rank % 2].sum().backward()
    return all(
        torch.equal(part.grad, torch.full_like(part, float(k == owner % 2)))
        for owner, of_rank in enumerate(parts)
        for k, part in enumerate(of_rank)
        if part.grad is not None
    )


def test_gradients_where_only_some_tensors_are_used(ranks):
    assert ranks(3).run(_unused) == [True] * 3


def test_a_single_rank_keeps_everything_and_sends_nothing() -> None:
    comm = alone()
    rows = torch.rand(4, 2, requires_grad=True)
    index = ShuffleIndex(torch.empty(0, dtype=torch.int64), (0,), (0,), 4)
    assert shuffle(rows, index, comm, "activations") is rows
    (total,) = sum_at_owners([[rows]], comm, "activations")
    ((spread,),) = spread_from_owners([rows], [[(4, 2)]], comm, "activations")
    assert torch.equal(total, rows) and torch.equal(spread, rows)
    (total * 2 + spread * 3).sum().backward()
    assert rows.grad is not None and torch.equal(rows.grad, torch.full((4, 2), 5.0))
    assert comm.swap(torch.tensor([[3]])).tolist() == [[3]]
    assert comm.all_gather(rows, [4], "topology")[0] is rows
    assert comm.all_to_all(rows[:0], [0], [0], "features").shape == (0, 2)
    sparse = exchange_rows(sparse_rows(rows.detach()).rows(torch.empty(0)), [0], [0], comm, "features")
    assert sparse.shape == (0, 2)
    assert comm.along(Mesh.of(members=1), "members") is comm and traffic(comm) == {}
