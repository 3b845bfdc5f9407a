"""Whole parts to everybody: values, gradients by transposition, N rounds of (N-1) copies."""

from __future__ import annotations

import pytest
import torch
from exchanging import Sent, connect, traffic
from small_graphs import sparse_rows

from gnnexp.comm.broadcast import WholeParts
from gnnexp.comm.shuffle import shuffle
from gnnexp.graph.sparse import SparseRows


def lengths(size: int) -> list[int]:
    """None on rank 1."""
    return [0 if rank == 1 else 3 + rank for rank in range(size)]


def part(rank: int, size: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    return torch.rand((lengths(size)[rank], 3), generator=generator, dtype=torch.float64)


def own_first(rank: int, size: int) -> torch.Tensor:
    return torch.cat([part(rank, size), *(part(other, size) for other in range(size) if other != rank)])


def _broadcast() -> tuple[float, float, Sent, Sent]:
    comm = connect()
    halo = WholeParts(lengths(comm.size), comm.rank)
    x = part(comm.rank, comm.size).requires_grad_()
    mixed = shuffle(x, halo, comm, "activations")
    assert isinstance(mixed, torch.Tensor)
    assert torch.equal(mixed.detach(), own_first(comm.rank, comm.size))
    forwards = traffic(comm)
    assert halo.fetch_bytes(x.detach()) == forwards["activations"][0]
    y = torch.rand(mixed.shape, generator=torch.Generator().manual_seed(9 + comm.rank), dtype=torch.float64)
    mixed.backward(y)
    assert x.grad is not None
    return float((mixed.detach() * y).sum()), float((x.detach() * x.grad).sum()), forwards, traffic(comm)


@pytest.mark.parametrize("size", [2, 3])
def test_every_part_everywhere_and_its_transpose(ranks, size):
    found, rows = ranks(size).run(_broadcast), lengths(size)
    assert sum(left for left, _, _, _ in found) == pytest.approx(sum(right for _, right, _, _ in found), rel=1e-13)
    for rank, (_, _, forwards, backwards) in enumerate(found):
        assert forwards == {"activations": ((size - 1) * rows[rank] * 3 * 8, size)}
        assert backwards == {"activations": ((sum(rows) - rows[rank]) * 3 * 8, 1)}


def _sparse() -> Sent:
    comm = connect()
    halo = WholeParts(lengths(comm.size), comm.rank)
    local = sparse_rows(part(comm.rank, comm.size))
    found = shuffle(local, halo, comm, "features")
    assert isinstance(found, SparseRows)
    whole = own_first(comm.rank, comm.size)
    assert torch.equal(found.to_dense(), torch.where(whole > 0.5, whole, 0))
    sent = traffic(comm)
    assert halo.fetch_bytes(local) == sent["features"][0]
    return sent


def test_sparse_rows_go_to_everybody_in_one_round(ranks):
    size = 3
    for rank, sent in enumerate(ranks(size).run(_sparse)):
        entries = int((part(rank, size) > 0.5).sum())
        assert sent["features"] == ((size - 1) * (4 * lengths(size)[rank] + 12 * entries), 1)
