"""Collectives of views with any strides: columns, transposes, steps. Gloo itself takes other elements silently."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.distributed as dist
from exchanging import CPU, connect

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import read_environment
from gnnexp.measure.phases import PhaseTimer

Kept = tuple[list[list[float]], list[list[float]]]
VIEWS = 60


def _view(draw: np.random.Generator, own: np.random.Generator, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor of this rank's own numbers and a view of it: `draw` gives its shape on all ranks, `own` the strides."""
    rows, columns = (int(number) for number in draw.integers(1, 6, 2))
    wide = int(own.integers(1, 4))
    whole = torch.from_numpy(own.integers(0, 50, (rows * wide, columns * wide))).to(dtype)
    view = whole[own.integers(0, wide) :: wide, own.integers(0, wide) :: wide][:rows, :columns]
    if own.random() < 0.5:  # the same shape, transposed in memory on this rank
        whole = torch.from_numpy(own.integers(0, 50, (columns * wide, rows * wide))).to(dtype)
        view = whole.t()[::wide, ::wide]
    return whole, (view[:, 0] if draw.random() < 0.3 else view)


def _exchanged(kind: str, seed: int) -> list[tuple[list[float], list[float], list[float], list[float]]]:
    """Of each view: its numbers before and after, and the numbers around it before and after."""
    comm, draw = connect(), np.random.default_rng(seed)
    own, found = np.random.default_rng(seed + 1 + comm.rank), []
    for number in range(VIEWS):
        whole, view = _view(draw, own, torch.float64 if number % 2 else torch.int64)
        before, around = view.clone(), _around(whole, view)
        if kind == "all_reduce":
            comm.all_reduce(view, "gradients")
        else:
            comm.broadcast(view, number % comm.size, "evaluation")
        found.append((before.flatten().tolist(), view.flatten().tolist(), around, _around(whole, view)))
    return found


def _around(whole: torch.Tensor, view: torch.Tensor) -> list[float]:
    """The numbers of `whole` that are not in `view`."""
    mine = torch.zeros_like(whole, memory_format=torch.contiguous_format)
    mine.as_strided(view.shape, view.stride(), view.storage_offset()).fill_(1)
    return whole[mine == 0].tolist()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("kind", ["all_reduce", "broadcast"])
def test_a_view_is_exchanged_and_what_is_around_it_stays(ranks, kind, size):
    found = ranks(size).run(_exchanged, kind, 7)
    for number, of_ranks in enumerate(zip(*found, strict=True)):
        before = np.array([one[0] for one in of_ranks])
        right = before.sum(0) if kind == "all_reduce" else before[number % size]
        for _, after, around, around_after in of_ranks:
            assert after == right.tolist() and around_after == around


def _columns_and_expanded() -> tuple[list[list[float]], list[float], list[float]]:
    comm = connect()
    table = torch.arange(6.0).view(3, 2)
    comm.all_reduce(table[:, 0], "gradients")
    one = torch.full((1,), 5.0 + comm.rank)
    got = one.expand(4) if comm.rank == 0 else torch.zeros(4)  # the source may send a view of one number
    comm.broadcast(got, 0, "evaluation")
    weights = torch.nn.Parameter(torch.arange(4.0).view(2, 2))
    comm.all_reduce(weights[:, 1], "gradients")
    return table.tolist(), got.tolist(), weights.flatten().tolist()


def test_a_column_of_the_report(ranks):
    for found in ranks(2).run(_columns_and_expanded):
        assert found == ([[0, 1], [4, 3], [8, 5]], [5, 5, 5, 5], [0, 2, 2, 6])


def _rows_into_columns() -> tuple[list[list[float]], list[list[float]], list[list[list[float]]], list[list[int]], bool]:
    comm = Communicator(read_environment(), PhaseTimer(), CPU, halved=frozenset({"halo"}))
    counts = [int(other != comm.rank) for other in range(comm.size)]
    rows = (10 * comm.rank + torch.arange(6.0)).view(2, 3).t()[: comm.size - 1]  # [others, 2], not in one piece
    into = torch.full((comm.size - 1, 4), -1.0)
    out = comm.all_to_all(rows, counts, counts, "features", into[:, 1::2])
    halved = torch.full((comm.size - 1, 4), -1.0)
    comm.all_to_all(rows, counts, counts, "halo", halved[:, 1::2])
    gathered = comm.all_gather(rows, [comm.size - 1] * comm.size, "topology")
    numbers = torch.arange(2 * comm.size * 2).view(2, comm.size * 2)[:, ::2].t() + 100 * comm.rank  # [size, 2]
    swapped = comm.swap(numbers)
    return (
        into.tolist(),
        halved.tolist(),
        [one.tolist() for one in gathered],
        swapped.tolist(),
        out.data_ptr() == into[:, 1::2].data_ptr(),
    )


@pytest.mark.parametrize("size", [2, 3])
def test_rows_and_their_memory_need_not_be_in_one_piece(ranks, size):
    rows = [(10 * rank + np.arange(6.0)).reshape(2, 3).T[: size - 1] for rank in range(size)]
    numbers = [np.arange(2 * size * 2).reshape(2, size * 2)[:, ::2].T + 100 * rank for rank in range(size)]
    for rank, (into, halved, gathered, swapped, same) in enumerate(ranks(size).run(_rows_into_columns)):
        others = [other for other in range(size) if other != rank]
        right = np.full((size - 1, 4), -1.0)
        right[:, 1::2] = [rows[other][rank - (other < rank)] for other in others]
        assert same and into == right.tolist() and halved == right.tolist()
        assert gathered == [one.tolist() for one in rows]
        assert swapped == [numbers[other][rank].tolist() for other in range(size)]


def _plain_gloo() -> list[list[float]]:
    table = torch.arange(6.0).view(3, 2)
    dist.all_reduce(table[:, 0])
    return table.tolist()


def test_gloo_itself_takes_other_elements(ranks):
    """If this fails, gloo handles strides, and the copy is not needed any more."""
    for found in ranks(2).run(_plain_gloo):
        assert found != [[0, 1], [4, 3], [8, 5]]
