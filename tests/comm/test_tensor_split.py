"""Split and gather: columns of all rows and back again, each the other's inverse and transpose, bytes by formula."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from exchanging import Sent, alone, connect, traffic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnnexp.comm.tensor_split import (
    ColumnLayout,
    even_bounds,
    even_sizes,
    gather,
    gather_all_rows,
    split,
    to_columns,
    to_rows,
)

Case = tuple[tuple[int, ...], tuple[int, ...], int]
SIZES = [2, 3]


@given(st.integers(0, 10_000), st.integers(1, 300))
def test_even_shares_differ_by_one_at_most(count: int, num_ranks: int) -> None:
    sizes, bounds = even_sizes(count, num_ranks), even_bounds(count, num_ranks)
    assert len(sizes) == num_ranks and sum(sizes) == count and max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)
    assert bounds[0] == 0 and [last - first for first, last in pairwise(bounds)] == sizes


@st.composite
def cases(draw: st.DrawFn, size: int) -> Case:
    """Rows of every rank, bounds of the columns of every rank (even ones, or any), and a seed."""
    rows = draw(st.lists(st.integers(0, 9), min_size=size, max_size=size))
    width = draw(st.integers(size, 11))
    inner = draw(st.lists(st.integers(0, width), min_size=size - 1, max_size=size - 1))
    bounds = draw(st.sampled_from([even_bounds(width, size), [0, *sorted(inner), width]]))
    return tuple(rows), tuple(bounds), draw(st.integers(0, 99))


def whole(case: Case, kind: int = 0) -> torch.Tensor:
    """`[V, D]`: what all ranks have together."""
    rows, bounds, seed = case
    generator = torch.Generator().manual_seed(2 * seed + kind)
    return torch.rand((sum(rows), bounds[-1]), generator=generator, dtype=torch.float64)


def _there_and_back(many: list[Case]) -> list[list[int]]:
    """Per case the bytes of split, gather, and of the ways back of their gradients."""
    comm, sent = connect(), []
    for case in many:
        rows, bounds, _ = case
        sizes = ColumnLayout(rows, bounds, comm.rank)
        first = sum(rows[: comm.rank])
        own = slice(first, first + rows[comm.rank])
        x, y = whole(case)[own].clone().requires_grad_(), whole(case, 1)
        columns = split(x, sizes, comm, "activations")
        of_case = [traffic(comm)]
        assert columns.shape[1] == sizes.width
        assert torch.equal(columns.detach(), whole(case)[:, sizes.columns])
        back = gather(columns, sizes, comm, "activations")
        of_case.append(traffic(comm))
        assert torch.equal(back.detach(), x.detach())
        back.backward(y[own])
        assert x.grad is not None and torch.equal(x.grad, y[own]), "two permutations, one the other's transpose"
        of_case.append(traffic(comm))
        assert torch.equal(
            to_columns(to_rows(columns.detach(), sizes, comm, "features"), sizes, comm, "features"), columns.detach()
        )
        traffic(comm)
        assert [entry["activations"][1] for entry in of_case] == [1, 1, 2]
        sent.append([entry["activations"][0] for entry in of_case])
    return sent


@pytest.mark.parametrize("size", SIZES)
@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_gather_is_the_inverse_of_split_and_each_value_travels_once(ranks, size: int, data: st.DataObject) -> None:
    many = data.draw(st.lists(cases(size), min_size=1, max_size=6))
    found = ranks(size).run(_there_and_back, many)
    for number, (rows, bounds, _) in enumerate(many):
        widths = [stop - start for start, stop in pairwise(bounds)]
        for rank in range(size):
            out = rows[rank] * (bounds[-1] - widths[rank]) * 8
            home = (sum(rows) - rows[rank]) * widths[rank] * 8
            assert found[rank][number] == [out, home, out + home]
        kept = sum(count * width for count, width in zip(rows, widths, strict=True))
        assert sum(of_rank[number][0] for of_rank in found) == (sum(rows) * bounds[-1] - kept) * 8


def _share() -> tuple[Sent, Sent]:
    comm = connect()
    rows = [0 if rank == 1 else 2 + rank for rank in range(comm.size)]
    case = (tuple(rows), tuple(even_bounds(4, comm.size)), 5)
    own = torch.split_with_sizes(whole(case), rows)[comm.rank].clone().requires_grad_()
    everyone = gather_all_rows(own, rows, comm, "activations")
    assert torch.equal(everyone.detach(), whole(case))
    forwards = traffic(comm)
    everyone.backward(whole(case, 1) * 2.0**comm.rank)
    total = whole(case, 1) * (2.0**comm.size - 1)
    assert own.grad is not None
    assert torch.allclose(own.grad, torch.split_with_sizes(total, rows)[comm.rank], rtol=1e-14, atol=0)
    return forwards, traffic(comm)


@pytest.mark.parametrize("size", SIZES)
def test_shared_rows_are_everywhere_and_their_gradients_are_summed_at_home(ranks, size):
    rows = [0 if rank == 1 else 2 + rank for rank in range(size)]
    for rank, (forwards, backwards) in enumerate(ranks(size).run(_share)):
        assert forwards == {"activations": ((size - 1) * rows[rank] * 4 * 8, 1)}
        assert backwards == {"activations": ((sum(rows) - rows[rank]) * 4 * 8, 1)}


def test_a_single_rank_has_all_rows_and_columns():
    comm, rows = alone(), torch.rand(4, 3)
    sizes = ColumnLayout([4], [0, 3], 0)
    assert to_columns(rows, sizes, comm, "features") is rows and to_rows(rows, sizes, comm, "features") is rows
    assert gather_all_rows(rows, [4], comm, "features") is rows and traffic(comm) == {}
