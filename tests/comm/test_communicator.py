"""Collectives are right, also in groups and in two threads at once, and every byte, round and wait is counted."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from exchanging import CPU, Sent, alone, connect, counts, how_many, rows_for, traffic

from gnnexp.comm.communicator import Communicator, _has_own_gpus
from gnnexp.comm.environment import Environment, read_environment
from gnnexp.comm.mesh import Mesh
from gnnexp.measure.memory import TensorMeter
from gnnexp.measure.phases import PhaseTimer


def _all_reduce(length: int, dtype: torch.dtype) -> tuple[list[float], int, int]:
    comm = Communicator(read_environment(), PhaseTimer(), CPU)
    tensor = torch.full((length,), float(comm.rank + 1), dtype=dtype)
    comm.all_reduce(tensor, "gradients")
    traffic = comm.ledger.take()["gradients"]
    return tensor.tolist(), traffic.sent_bytes, traffic.rounds


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("length", [0, 1, 7, 100])
def test_all_reduce_sums_and_counts(ranks, size, length):
    results = ranks(size).run(_all_reduce, length, torch.float64)
    expected = [size * (size + 1) / 2] * length
    assert all(values == expected for values, _, _ in results)
    assert sum(sent for _, sent, _ in results) == 2 * (size - 1) * length * 8
    assert all(rounds == 1 for _, _, rounds in results)


def _broadcast(source: int) -> tuple[list[float], int]:
    comm = Communicator(read_environment(), PhaseTimer(), CPU)
    tensor = torch.full((5, 3), float(comm.rank))
    comm.broadcast(tensor, source, "evaluation")
    return tensor.flatten().tolist(), comm.ledger.take()["evaluation"].sent_bytes


@pytest.mark.parametrize("source", [0, 2])
def test_broadcast(ranks, source):
    results = ranks(3).run(_broadcast, source)
    assert all(values == [float(source)] * 15 for values, _ in results)
    assert [sent for _, sent in results] == [2 * 15 * 4 if rank == source else 0 for rank in range(3)]


def _late(rank_that_is_late: int) -> tuple[float, float]:
    comm = Communicator(read_environment(), timer := PhaseTimer(), CPU)
    comm.barrier()
    timer.start_epoch()
    if comm.rank == rank_that_is_late:
        with timer.phase("forward"):
            time.sleep(0.2)
    with timer.phase("sync"):
        comm.all_reduce(torch.zeros(10), "gradients")
    phases = timer.end_epoch().phases
    return phases["wait"], phases["sync"]


@pytest.mark.slow  # it compares measured times: not for a busy machine
def test_waiting_for_a_slow_rank_is_wait_not_sync(ranks):
    (wait_fast, sync_fast), (wait_slow, sync_slow) = ranks(2).run(_late, 1)
    assert wait_fast > 0.15
    assert wait_slow < 0.15
    assert max(sync_fast, sync_slow) < 0.1


def test_a_single_rank_sends_nothing():
    comm = Communicator(Environment(), PhaseTimer(), CPU)
    tensor = torch.ones(3)
    comm.all_reduce(tensor, "gradients")
    comm.broadcast(tensor, 0, "evaluation")
    assert tensor.tolist() == [1, 1, 1]
    assert comm.gather_objects("x") == ["x"]
    assert comm.ledger.take() == {}


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
@pytest.mark.parametrize(
    ("width", "dtype"), [(3, torch.float64), (1, torch.float32), (0, torch.float32), (2, torch.int32)]
)
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


def _counted() -> Sent:
    comm = connect()
    sent, received = counts(comm)
    rows = torch.cat([rows_for(comm.rank, other) for other in range(comm.size)])
    found, came = comm.counted_all_to_all(rows, sent, "frontier")
    assert came == received
    assert torch.equal(found, torch.cat([rows_for(other, comm.rank) for other in range(comm.size)]))
    return traffic(comm)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_counted_exchange_tells_counts_first(ranks, size):
    for rank, found in enumerate(ranks(size).run(_counted)):
        rows = sum(how_many(rank, other) for other in range(size))
        assert found == {"sizes": (8 * (size - 1), 1), "frontier": (rows * 3 * 8, 1)}


def test_one_rank_exchanges_nothing_with_itself():
    rows, came = alone().counted_all_to_all(torch.empty(0, 3), [0], "frontier")
    assert rows.shape == (0, 3) and came == [0]


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


def _gathered_bytes(rows: int, columns: int) -> int:
    """The most bytes that an exchange of equal parts allocates in addition to the parts."""
    comm, part = connect(), torch.ones(rows, columns)
    with TensorMeter([part]) as meter:
        comm.all_gather(part, [rows] * comm.size, "topology")
    return meter.peak_bytes


@pytest.mark.parametrize("size", [3, 4])
def test_all_gather_makes_no_copy_for_every_peer(ranks, size):
    """It sent one concatenated copy to each: size - 1 payloads more than what is received."""
    assert max(ranks(size).run(_gathered_bytes, 1000, 16)) <= size * 1000 * 16 * 4


# --- groups, and another thread ---------------------------------------------------------------------------------------


def _groups() -> tuple[list[int], Sent, list[Any]]:
    whole = connect()
    pair = whole.along(Mesh.of(pairs=2, members=2), "members")
    assert whole.along(Mesh.of(pairs=1, members=4), "members") is whole
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
            (1 << first) + (1 << first + 1),
            [10 * first + place, 10 * (first + 1) + place],
            [[other, other]] * (2 if place == 0 else 3),
            [first + 1] * 3,
            [first, first + 1],
            [first, first + 1],
        ]
        assert sent == {
            "gradients": (4, 1),
            "sizes": (8, 1),
            "features": ((3 if place == 0 else 2) * 2 * 8, 1),
            "evaluation": (24 if place else 0, 1),
            "topology": (8, 1),
        }


def _beside(rounds: int, group_size: int) -> tuple[Sent, list[int]]:
    """The main thread reduces while another one swaps and exchanges, each at its own pace."""
    timer = PhaseTimer()
    whole = Communicator(read_environment(), timer, CPU)
    main = whole.along(Mesh.of(groups=whole.size // group_size, members=group_size), "members")
    aside, order = main.clone_for_thread(), list[int]()
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


# --- an emulated link -------------------------------------------------------------------------------------------------


class Clock:
    """Stands for the module `time`: every look at it takes `step` seconds, sleeping is noted and takes no time."""

    def __init__(self, step: float) -> None:
        self.step, self.now, self.slept = step, 0.0, list[float]()

    def perf_counter(self) -> float:
        self.now += self.step
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def _throttled(rate: float | None, step: float) -> tuple[list[float], dict[str, float]]:
    """What a rank slept in one exchange of each kind, and the seconds that were recorded for them."""
    clock = Clock(step)
    with patch("gnnexp.comm.communicator.time", clock):
        comm = Communicator(read_environment(), PhaseTimer(), CPU, throttle=rate)
        comm.all_reduce(torch.zeros(300), "gradients")
        comm.broadcast(torch.zeros(100), 0, "parameters")
        sent, received = counts(comm)
        comm.all_to_all(torch.zeros(sum(sent), 2), sent, received, "features")
        comm.all_gather(torch.zeros(10 * (comm.rank + 1)), [10 * (rank + 1) for rank in range(comm.size)], "topology")
        comm.swap(torch.zeros(comm.size, 1))
        comm.barrier()
        comm.clone_for_thread().all_reduce(torch.zeros(30), "evaluation")
        seconds = {tag: entry.seconds for tag, entry in comm.ledger.take().items()}
    connect().barrier()
    comm.release()
    return clock.slept, seconds


def throttled_bytes(rank: int, size: int) -> dict[str, int]:
    """Bytes in the fuller direction, by the exchanges of `_throttled`."""
    sent = sum(how_many(rank, other) for other in range(size))
    received = sum(how_many(other, rank) for other in range(size))
    copies, others = (size - 1) * 10 * (rank + 1), sum(10 * (other + 1) for other in range(size) if other != rank)
    return {
        "gradients": 2 * (size - 1) * 300 * 4 // size,
        "parameters": (1 if rank else size - 1) * 100 * 4,
        "features": max(sent, received) * 2 * 4,
        "topology": max(copies, others) * 4,
        "evaluation": 2 * (size - 1) * 30 * 4 // size,
    }


def test_an_emulated_link_takes_bytes_over_rate_less_what_the_exchange_took(ranks):
    rate, step, size = 1000.0, 0.01, 3
    for rank, (slept, seconds) in enumerate(ranks(size).run(_throttled, rate, step)):
        expected = throttled_bytes(rank, size)
        assert slept == pytest.approx([num_bytes / rate - step for num_bytes in expected.values()])
        assert seconds.pop("sizes") == 0
        assert seconds == pytest.approx({tag: num_bytes / rate + step for tag, num_bytes in expected.items()})


def test_a_link_that_is_slower_than_its_emulation_is_not_slowed_down(ranks):
    for slept, seconds in ranks(2).run(_throttled, 1e9, 5.0):
        assert slept == [0.0] * 5
        assert seconds.pop("sizes") == 0 and set(seconds.values()) == {10.0}


def test_nobody_sleeps_without_a_throttle(ranks):
    for slept, _ in ranks(2).run(_throttled, None, 0.01):
        assert slept == []


@pytest.mark.parametrize(
    ("gpus", "own"),
    [
        (("GPU-a", "GPU-b", "GPU-c"), True),
        (("GPU-a", "GPU-b", "GPU-a"), False),
        (("GPU-a", "", "GPU-c"), False),
    ],
)
def test_nccl_is_for_ranks_with_a_gpu_each_whatever_their_numbers(gpus: tuple[str, ...], own: bool) -> None:
    """A task of SLURM sees its GPU alone, as number 0; ranks that share one see the same."""
    store = dist.HashStore()
    for rank in (1, 2):
        store.set(f"gnnexp/gpu/{rank}", gpus[rank])
    seen = SimpleNamespace(uuid=gpus[0])
    with patch("torch.cuda.get_device_properties", return_value=seen):
        assert _has_own_gpus(Environment(0, 3, 0, 3), torch.device("cuda", 0), store) is own
    assert store.get("gnnexp/gpu/0") == gpus[0].encode()
    assert not _has_own_gpus(Environment(0, 3, 0, 3), CPU, store)
