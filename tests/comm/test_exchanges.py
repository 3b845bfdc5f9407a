"""Exchanges: values, gradients by transposition, bytes and rounds by formula, in groups and beside each other."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import pytest
import torch
from small_graphs import sparse_rows

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import Environment, read_environment
from gnnexp.comm.owners import spread_from_owners, sum_at_owners
from gnnexp.comm.rows import exchange_rows
from gnnexp.comm.shuffle import ShuffleIndex, shuffle
from gnnexp.graph.sparse import SparseRows
from gnnexp.measure.phases import PhaseTimer

CPU = torch.device("cpu")
Sent = dict[str, tuple[int, int]]


def connect() -> Communicator:
    return Communicator(read_environment(), PhaseTimer(), CPU)


def alone() -> Communicator:
    return Communicator(Environment(), PhaseTimer(), CPU)


def traffic(comm: Communicator) -> Sent:
    """(bytes, rounds) by tag since the last call."""
    return {tag: (entry.sent_bytes, entry.rounds) for tag, entry in comm.ledger.take().items()}


def how_many(sender: int, receiver: int) -> int:
    """Rows from one rank to another: none for some pairs, another number for every other pair."""
    return 0 if sender == receiver or (sender, receiver) == (1, 0) else 1 + 2 * sender + receiver


def rows_for(sender: int, receiver: int, width: int = 3, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    count = how_many(sender, receiver)
    generator = torch.Generator().manual_seed(10 * sender + receiver)
    return torch.rand((count, width), generator=generator, dtype=torch.float64).to(dtype)


def counts(comm: Communicator) -> tuple[list[int], list[int]]:
    return ([how_many(comm.rank, other) for other in range(comm.size)],
            [how_many(other, comm.rank) for other in range(comm.size)])


# --- all_to_all, swap, all_gather -------------------------------------------------------------------------------------


def _all_to_all(width: int, dtype: torch.dtype) -> tuple[int, int]:
    comm = connect()
    sent, received = counts(comm)
    rows = torch.cat([rows_for(comm.rank, other, width, dtype) for other in range(comm.size)])
    found = comm.all_to_all(rows, sent, received, "features")
    assert torch.equal(found, torch.cat([rows_for(other, comm.rank, width, dtype) for other in range(comm.size)]))
    assert found.dtype == dtype
    ((tag, entry),) = traffic(comm).items()
    assert tag == "features"
    return entry


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize(("width", "dtype"), [(3, torch.float64), (1, torch.float32), (0, torch.float32),
                                              (2, torch.int32)])
def test_all_to_all_delivers_every_row_and_counts_those_that_leave(ranks, size, width, dtype):
    found = ranks(size).run(_all_to_all, width, dtype)
    for rank, entry in enumerate(found):
        rows = sum(how_many(rank, other) for other in range(size))
        assert entry == (rows * width * dtype.itemsize, 1)


def _nothing_and_strided() -> Sent:
    comm = connect()
    none = comm.all_to_all(torch.empty(0, 5), [0] * comm.size, [0] * comm.size, "features")
    assert none.shape == (0, 5)
    flat = comm.all_to_all(torch.arange(2 * comm.size)[::2][: comm.size - 1], _others(comm), _others(comm), "frontier")
    position = [comm.rank - (other < comm.rank) for other in range(comm.size) if other != comm.rank]
    assert flat.tolist() == [2 * place for place in position]
    return traffic(comm)


def _others(comm: Communicator) -> list[int]:
    return [int(other != comm.rank) for other in range(comm.size)]


@pytest.mark.parametrize("size", [2, 4])
def test_nothing_at_all_is_a_round_and_rows_need_not_be_contiguous(ranks, size):
    for found in ranks(size).run(_nothing_and_strided):
        assert found == {"features": (0, 1), "frontier": (8 * (size - 1), 1)}


def _to_oneself() -> bool:
    comm = connect()
    with pytest.raises(AssertionError, match="oneself"):
        comm.all_to_all(torch.zeros(comm.size), [1] * comm.size, [1] * comm.size, "features")
    return True


def test_rows_for_oneself_are_refused_before_anything_is_sent(ranks):
    assert ranks(2).run(_to_oneself) == [True, True]


def _swap(width: int) -> tuple[int, int]:
    comm = connect()
    numbers = torch.tensor([[100 * comm.rank + 10 * other + k for k in range(width)] for other in range(comm.size)])
    expected = [[100 * other + 10 * comm.rank + k for k in range(width)] for other in range(comm.size)]
    assert comm.swap(numbers).tolist() == expected
    ((tag, entry),) = traffic(comm).items()
    assert tag == "sizes"
    return entry


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("width", [1, 4])
def test_swap_tells_sizes(ranks, size, width):
    assert ranks(size).run(_swap, width) == [((size - 1) * width * 8, 1)] * size


def _all_gather() -> tuple[int, int]:
    comm = connect()
    lengths = [0 if rank == 1 else rank + 2 for rank in range(comm.size)]
    parts = [torch.full((length, 2), float(rank), dtype=torch.float32) for rank, length in enumerate(lengths)]
    found = comm.all_gather(parts[comm.rank], lengths, "topology")
    assert len(found) == comm.size
    assert all(torch.equal(a, b) for a, b in zip(found, parts, strict=True))
    ((tag, entry),) = traffic(comm).items()
    assert tag == "topology"
    return entry


@pytest.mark.parametrize("size", [2, 3, 4])
def test_all_gather_has_every_part_everywhere(ranks, size):
    lengths = [0 if rank == 1 else rank + 2 for rank in range(size)]
    assert ranks(size).run(_all_gather) == [((size - 1) * length * 2 * 4, 1) for length in lengths]


# --- rows, dense and sparse -------------------------------------------------------------------------------------------


def sparse_for(sender: int, receiver: int, width: int, dtype: torch.dtype) -> SparseRows:
    """About half of the entries are there; rows may be empty."""
    return sparse_rows(rows_for(sender, receiver, width, dtype))


def _sparse(width: int, dtype: torch.dtype) -> tuple[Sent, int, int]:
    comm = connect()
    sent, received = counts(comm)
    mine = [sparse_for(comm.rank, other, width, dtype) for other in range(comm.size)]
    theirs = [sparse_for(other, comm.rank, width, dtype) for other in range(comm.size)]
    found = exchange_rows(SparseRows.concatenated(mine), sent, received, comm, "features")
    assert isinstance(found, SparseRows)
    expected = SparseRows.concatenated(theirs)
    for name in ("indptr", "columns", "values"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
        assert getattr(found, name).dtype == getattr(expected, name).dtype, name
    assert found.shape == (sum(received), width)
    return traffic(comm), sum(sent), sum(rows.values.numel() for rows in mine)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("width", [1, 9])
def test_sparse_rows_travel_as_lengths_columns_and_values(ranks, size, width, dtype):
    for found, rows, entries in ranks(size).run(_sparse, width, dtype):
        assert found == {"sizes": ((size - 1) * 8, 1), "features": (4 * rows + entries * (4 + dtype.itemsize), 1)}


def _dense() -> Sent:
    comm = connect()
    sent, received = counts(comm)
    rows = torch.cat([rows_for(comm.rank, other) for other in range(comm.size)])
    found = exchange_rows(rows, sent, received, comm, "features")
    assert isinstance(found, torch.Tensor)
    assert torch.equal(found, torch.cat([rows_for(other, comm.rank) for other in range(comm.size)]))
    return traffic(comm)


def test_dense_rows_travel_as_they_are(ranks):
    for rank, found in enumerate(ranks(3).run(_dense)):
        assert found == {"features": (sum(how_many(rank, other) for other in range(3)) * 3 * 8, 1)}


# --- shuffle ----------------------------------------------------------------------------------------------------------


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


# --- sums at owners and their transposes ------------------------------------------------------------------------------

Shape = tuple[int, ...]


def shapes_of(size: int) -> list[list[Shape]]:
    """Two tensors per batch; another number of rows on every rank, none on rank 1."""
    return [[(0, 2), (0,)] if rank == 1 else [(rank + 1, 2), (3 * rank + 2,)] for rank in range(size)]


def numbers_of(size: int) -> list[int]:
    return [sum(torch.Size(shape).numel() for shape in of_rank) for of_rank in shapes_of(size)]


def share_of(rank: int, size: int) -> list[list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(rank)
    return [[torch.rand(shape, generator=generator, dtype=torch.float64) for shape in of_rank]
            for of_rank in shapes_of(size)]


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
    y = [torch.rand(total.shape, generator=torch.Generator().manual_seed(77 + comm.rank), dtype=torch.float64)
         for total in found]
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
        for owner, of_rank in enumerate(parts) for k, part in enumerate(of_rank) if part.grad is not None
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
    assert comm.within(1) is comm and traffic(comm) == {}


# --- groups, and another thread ---------------------------------------------------------------------------------------


def _groups() -> tuple[list[int], Sent, list[Any]]:
    whole = connect()
    pair = whole.within(2)
    assert whole.within(4) is whole
    assert (pair.rank, pair.size, whole.size) == (whole.rank % 2, 2, 4)
    number = torch.tensor([float(1 << whole.rank)])
    pair.all_reduce(number, "gradients")
    swapped = pair.swap(torch.tensor([[10 * whole.rank], [10 * whole.rank + 1]])).flatten().tolist()
    sent = [0, 3] if pair.rank == 0 else [2, 0]
    received = [0, 2] if pair.rank == 0 else [3, 0]
    rows = pair.all_to_all(torch.full((sum(sent), 2), whole.rank), sent, received, "features")
    copied = torch.full((3,), whole.rank)
    pair.broadcast(copied, 1, "evaluation")
    gathered = pair.all_gather(torch.tensor([whole.rank]), [1, 1], "topology")
    everybody = pair.gather_objects(whole.rank)
    everything = [int(number), swapped, rows.tolist(), copied.tolist(), [int(part) for part in gathered], everybody]
    found = traffic(pair)
    assert pair.ledger is whole.ledger, "one ledger for all groups"
    whole.barrier()
    whole.release()
    total = torch.ones(1)
    whole.all_reduce(total, "gradients")  # the run goes on without its groups
    return [int(total), whole.rank], found, everything


def test_groups_of_two_in_four_ranks_keep_to_themselves(ranks):
    for rank, ((total, number), sent, everything) in enumerate(ranks(4).run(_groups)):
        first, place = rank // 2 * 2, rank % 2
        other = first + 1 - place
        assert (total, number) == (4, rank)
        assert everything == [
            (1 << first) + (1 << first + 1), [10 * first + place, 10 * (first + 1) + place],
            [[other, other]] * (2 if place == 0 else 3), [first + 1] * 3, [first, first + 1], [first, first + 1],
        ]
        assert sent == {
            "gradients": (4, 1), "sizes": (8, 1), "features": ((3 if place == 0 else 2) * 2 * 8, 1),
            "evaluation": (24 if place else 0, 1), "topology": (8, 1),
        }


def _beside(rounds: int, group_size: int) -> tuple[Sent, list[int]]:
    """The main thread reduces while another one swaps and exchanges, each at its own pace."""
    timer = PhaseTimer()
    main = Communicator(read_environment(), timer, CPU).within(group_size)
    aside, order = main.beside(), list[int]()
    failures: list[BaseException] = []

    def exchange(step: int) -> None:
        numbers = torch.full((aside.size, 1), 100 * step + aside.rank)
        assert aside.swap(numbers).flatten().tolist() == [100 * step + rank for rank in range(aside.size)]
        rows = torch.full((aside.size - 1, 50), float(aside.rank + step))
        found = aside.all_to_all(rows, _others(aside), _others(aside), "frontier")
        assert found[:, 0].tolist() == [rank + step for rank in range(aside.size) if rank != aside.rank]

    def work() -> None:
        try:
            with timer.aside() as stretches:
                for step in range(rounds):
                    exchange(step)
                    order.append(step)
            assert [stretch.what for stretch in stretches].count("comm") == rounds  # sizes are where ranks meet: `wait`
        except BaseException as error:
            failures.append(error)
            raise

    thread = threading.Thread(target=work)
    thread.start()
    for step in range(3 * rounds):
        tensor = torch.full((1000,), float(main.rank + step))
        main.all_reduce(tensor, "gradients")
        expected = sum(rank + step for rank in range(main.size))
        assert tensor[0] == tensor[-1] == expected
    thread.join(60)
    assert not thread.is_alive() and not failures
    found = traffic(main)
    connect().barrier()
    main.release()
    return found, order


@pytest.mark.parametrize(("size", "group_size"), [(3, 3), (4, 2)])
def test_two_threads_communicate_beside_each_other(ranks, size, group_size):
    rounds = 20
    results = ranks(size).run(_beside, rounds, group_size)
    for found, order in results:
        assert order == list(range(rounds))
        assert found["sizes"] == ((group_size - 1) * 8 * rounds, rounds)
        assert found["frontier"] == ((group_size - 1) * 50 * 4 * rounds, rounds)
        assert found["gradients"][1] == 3 * rounds
    total = sum(found["gradients"][0] for found, _ in results)
    assert total == size // group_size * 2 * (group_size - 1) * 4000 * 3 * rounds


