"""The emulated NCCL: what it computes, what it refuses, and in which order it lets ranks launch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from emulated_gpu import counting, is_wanted

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not is_wanted(), reason="make test-emulated-gpu runs these")]
SIZE = 2


@pytest.fixture
def pair(ranks):
    """Runs a case on two ranks with a GPU each."""
    if torch.cuda.device_count() < SIZE:
        pytest.skip("ranks share a GPU: no NCCL")
    return ranks(SIZE).run


def _here(*values: float) -> Tensor:
    """On this rank's GPU."""
    return torch.tensor(values, dtype=torch.float32, device=torch.device("cuda", torch.cuda.current_device()))


@contextmanager
def _groups(number: int = 1, timeout_s: float = 60.0) -> Iterator[list[dist.ProcessGroup]]:
    """Groups of both ranks: what fails in them is theirs alone."""
    made = [dist.new_group(list(range(SIZE)), timeout=timedelta(seconds=timeout_s)) for _ in range(number)]
    yield made
    for group in made:
        dist.destroy_process_group(group)


def _told(use: Callable[[], object]) -> str:
    """The error of a use, with its kind."""
    try:
        use()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


# --- what it computes -------------------------------------------------------------------------------------------------


def _computed() -> dict[str, list[float]]:
    rank = dist.get_rank()
    total, copied, rows = _here(rank + 1, 5), _here(rank, rank), _here(*(10 * rank + place for place in range(3)))
    dist.all_reduce(total)
    dist.broadcast(copied, src=1)
    sent = [0, 3] if rank == 0 else [2, 1]  # uneven, and to oneself
    received = [0, 2] if rank == 0 else [3, 1]
    shuffled = rows.new_empty(sum(received))
    dist.all_to_all_single(shuffled, rows, received, sent)
    arrived = torch.empty_like(rows)
    steps = [dist.P2POp(dist.isend, rows, 1 - rank), dist.P2POp(dist.irecv, arrived, 1 - rank)]
    for work in dist.batch_isend_irecv(steps):
        work.wait()
    gathered, share = rows.new_empty(2), rows.new_empty(1)
    dist.all_gather_single(gathered, _here(rank))
    dist.reduce_scatter_single(share, _here(rank, 10 * rank))
    dist.barrier(device_ids=[rank])
    on_host = torch.ones(2)
    dist.all_reduce(on_host)
    found = {
        "total": total,
        "copied": copied,
        "shuffled": shuffled,
        "arrived": arrived,
        "gathered": gathered,
        "share": share,
        "on_host": on_host,
    }
    return {name: value.tolist() for name, value in found.items()}


def test_it_computes_what_nccl_does(pair) -> None:
    same = {"total": [3, 10], "copied": [1, 1], "gathered": [0, 1], "on_host": [2, 2]}
    assert pair(_computed) == [
        {**same, "shuffled": [10, 11], "arrived": [10, 11, 12], "share": [1]},
        {**same, "shuffled": [0, 1, 2, 12], "arrived": [0, 1, 2], "share": [10]},
    ]


def _under_way() -> list[str]:
    total, elsewhere = _here(1), torch.cuda.Stream()
    work = dist.all_reduce(total, async_op=True)
    early = _told(lambda: total + 1)
    with torch.cuda.stream(elsewhere):
        work.wait()  # a stream has waited, the one that the result is used on has not
        there = _told(lambda: total + 1)
    still = _told(lambda: total + 1)
    torch.cuda.current_stream().wait_stream(elsewhere)
    return [early, there, still, str(float(total + 1))]


def test_a_result_is_there_for_streams_that_waited(pair) -> None:
    for early, there, still, value in pair(_under_way):
        assert "wrote by NCCL's all_reduce, and has not waited for it" in early
        assert there == "nothing" and "has not waited for it" in still and value == "3.0"


def _freed() -> str:
    dist.all_reduce(_here(1), async_op=True)  # nobody waits, nobody holds the tensor: torch does
    return _told(torch.cuda.synchronize)


def test_memory_of_an_operation_is_held_until_it_is_over(pair) -> None:
    assert pair(_freed) == ["nothing"] * SIZE


# --- what it refuses --------------------------------------------------------------------------------------------------


def _refused() -> dict[str, str]:
    rank, plain = dist.get_rank(), dist.new_group(backend="nccl")
    other = torch.ones(2, device=torch.device("cuda", 1 - rank))
    dist.all_reduce(_here(1))  # the communicator is that of this GPU from here on
    with _groups() as (group,):  # torch takes no batch in a group after one that failed
        found = {
            "a tensor of the host": lambda: dist.all_reduce(torch.ones(2), group=plain),
            "strides": lambda: dist.all_reduce(_here(1, 2, 3, 4)[::2]),
            "a type": lambda: dist.all_reduce(_here(1).to(torch.int16)),
            "another GPU": lambda: dist.all_reduce(other),
            "no batch": lambda: dist.send(_here(1), 1 - rank),
            "a tag": lambda: dist.batch_isend_irecv([dist.P2POp(dist.isend, _here(1), 1 - rank, group, tag=3)]),
            "not gnnexp's": lambda: dist.reduce(_here(1), 0),
        }
        told = {name: _told(use) for name, use in found.items()}
    dist.destroy_process_group(plain)
    return told


def test_what_nccl_refuses_is_refused(pair) -> None:
    expected = {
        "a tensor of the host": "No backend type associated with device type cpu",
        "strides": "must be contiguous",
        "a type": "data type is not supported for NCCL process group: Short",
        "another GPU": "for the communicator of",
        "no batch": "are in batches",
        "a tag": "knows no tags",
        "not gnnexp's": "does not support reduce",
    }
    for found in pair(_refused):
        for name, words in expected.items():
            assert words in found[name], name


def _one_gpu() -> str:
    with _groups() as (group,):
        return _told(lambda: dist.all_reduce(torch.ones(2, device="cuda:0"), group=group))


def test_two_ranks_on_one_gpu_are_refused(pair) -> None:
    for rank, told in enumerate(pair(_one_gpu)):
        assert f"duplicate GPU: ranks {rank} and {1 - rank} of group" in told and "both on cuda:0" in told


def _alone() -> str:
    with _groups(timeout_s=1) as (group,):
        told = _told(lambda: dist.all_reduce(_here(1), group=group)) if dist.get_rank() == 0 else ""
        dist.barrier()
    return told


def test_all_ranks_make_a_communicator(pair) -> None:
    told, _ = pair(_alone)
    assert "rank 1 of group" in told and "has not come to make the communicator" in told


# --- the order of launches --------------------------------------------------------------------------------------------


def _crossed() -> tuple[str, str, str]:
    with _groups(2) as (one, other):
        for group in (one, other):
            dist.all_reduce(_here(1), group=group)

        def launch() -> None:
            for group in (one, other) if dist.get_rank() == 0 else (other, one):
                dist.all_reduce(_here(1, 2), group=group)

        return _told(launch), one.group_name, other.group_name


@pytest.mark.parametrize("implicit", ["0", "1"])
def test_groups_whose_operations_ranks_launch_in_different_orders_are_named(pair, monkeypatch, implicit) -> None:
    """`NCCL_LAUNCH_ORDER_IMPLICIT` keeps to each rank's order of launches, and so needs the same one on all ranks."""
    monkeypatch.setenv("NCCL_LAUNCH_ORDER_IMPLICIT", implicit)
    for told, one, other in pair(_crossed):
        assert "ranks launch in different orders" in told
        assert f"group {one} (ranks 0 1)" in told and f"group {other} (ranks 0 1)" in told


def _two_threads() -> str:
    """On rank 0 a thread launches an operation that rank 1 has not come to, and the main thread another one."""
    tensor, told = _here(1), ""
    with _groups(2) as (one, other):
        for group in (one, other):
            dist.all_reduce(tensor, group=group)
        if dist.get_rank() == 0:
            thread = threading.Thread(target=partial(dist.all_reduce, tensor, group=one))
            with counting() as counts:
                thread.start()
                while not counts.kernels["launches", "NCCL"]:
                    time.sleep(0.001)
            told = _told(lambda: dist.all_reduce(tensor, group=other))
        dist.barrier()
        if dist.get_rank() == 0:
            thread.join()
        else:
            dist.all_reduce(tensor, group=one)
    return told


def test_two_threads_do_not_launch_at_once(pair) -> None:
    told, _ = pair(_two_threads)
    assert "two threads launch at once: all_reduce of group" in told


def _unlike() -> str:
    with _groups() as (group,):
        return _told(
            lambda: (
                dist.all_reduce(_here(1), group=group) if dist.get_rank() else dist.broadcast(_here(1), 0, group=group)
            )
        )


def test_ranks_whose_operations_are_not_the_same_are_told(pair) -> None:
    for told in pair(_unlike):
        assert "is not the same on all ranks" in told and "all_reduce of Float [1]" in told and "broadcast" in told


# --- captured graphs --------------------------------------------------------------------------------------------------


def _captured_sum() -> tuple[list[list[float]], str]:
    """Sums of three replays, and the error if the group is destroyed while the graph is there."""
    group, rank = dist.new_group(list(range(SIZE)), timeout=timedelta(seconds=60)), dist.get_rank()
    total, graph, stream = _here(0, 0), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    dist.all_reduce(total, group=group)
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        work = dist.all_reduce(total, group=group, async_op=True)
        work.wait()
        del work
    found = []
    for step in range(3):
        total.fill_(rank + step)
        graph.replay()
        found.append(total.tolist())
    told = _told(lambda: dist.destroy_process_group(group))
    del graph
    return found, told


def test_a_captured_operation_exchanges_again_and_its_group_must_outlive_the_graph(pair) -> None:
    for found, told in pair(_captured_sum):
        assert found == [[1, 1], [3, 3], [5, 5]]
        assert "a captured graph uses this group" in told
