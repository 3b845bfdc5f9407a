"""Exchanges of tensors on GPUs: by NCCL where each rank has one, staged through gloo where ranks share one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from exchanging import CPU, Sent, counts, rows_for, traffic

from gnnexp.comm.background import Background
from gnnexp.comm.communicator import STAGED, Communicator, _carrier
from gnnexp.comm.environment import read_environment
from gnnexp.comm.mesh import Mesh
from gnnexp.components.schema import HardwareConfig
from gnnexp.measure.phases import PhaseTimer
from gnnexp.training.assemble import choose_device

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")]


def _comm(kind: str, timer: PhaseTimer | None = None) -> Communicator:
    environment = read_environment()
    device = choose_device(HardwareConfig(device=kind), environment)
    return Communicator(environment, timer or PhaseTimer(), device)


def _named() -> tuple[str, str, int]:
    comm = _comm("cuda")
    return _carrier(comm.device), _carrier(CPU), comm.device.index


@pytest.mark.parametrize("size", [2, 4])
def test_what_carries_payloads_is_named(ranks, size: int) -> None:
    """Ranks share a GPU where there are fewer of them; host tensors are gloo's either way."""
    for rank, (carrier, on_host, index) in enumerate(ranks(size).run(_named)):
        assert index == rank % torch.cuda.device_count() and on_host == "gloo"
        assert carrier == STAGED if torch.cuda.device_count() < size else carrier.startswith("nccl")


def _everything(kind: str, group_size: int) -> tuple[list[Any], Sent]:
    whole = _comm(kind)
    comm, device = whole.along(Mesh.of(groups=whole.size // group_size, members=group_size), "members"), whole.device
    total, copied = torch.arange(5.0, device=device) * (whole.rank + 1), torch.full((3, 2), whole.rank, device=device)
    comm.all_reduce(total, "gradients")
    comm.broadcast(copied, 1, "evaluation")
    sent, received = counts(comm)
    rows = torch.cat([rows_for(comm.rank, other, 3, torch.float64) for other in range(comm.size)]).to(device)
    shuffled = comm.all_to_all(rows, sent, received, "features")
    strided = comm.all_to_all(rows.t().contiguous().t(), sent, received, "features")
    nothing = comm.all_to_all(rows[:0], [0] * comm.size, [0] * comm.size, "frontier")
    lengths = [0 if rank == 1 else rank + 2 for rank in range(comm.size)]
    parts = comm.all_gather(torch.full((lengths[comm.rank], 2), float(whole.rank), device=device), lengths, "topology")
    empty = comm.all_gather(torch.zeros(0, 2, device=device), [0] * comm.size, "topology")
    sizes = comm.swap(torch.full((comm.size, 1), whole.rank))
    assert all(part.device == device for part in (total, shuffled, strided, *parts))
    found = [total, copied, shuffled, strided, nothing, *parts, *empty, sizes]
    objects, told = comm.gather_objects(whole.rank), traffic(comm)
    whole.barrier()
    whole.release()
    return [[part.tolist() for part in found], objects], told


@pytest.mark.parametrize(("size", "group_size"), [(2, 2), (4, 4), (4, 2)])
def test_exchanges_on_gpus_give_what_they_give_on_cpu(ranks, size: int, group_size: int) -> None:
    assert ranks(size).run(_everything, "cuda", group_size) == ranks(size).run(_everything, "cpu", group_size)


def _beside() -> list[float]:
    """Exchanges of a thread with a communicator of its own, between those of the loop."""
    timer = PhaseTimer()
    comm = _comm("cuda", timer)
    aside, background = comm.clone_for_thread(comm.device), Background(timer, comm.device)
    found = []
    timer.start_epoch()
    with timer.phase("forward"):
        for step in range(4):
            rows = torch.full((comm.size - 1, 2), float(comm.rank + step), device=comm.device)
            ones = [int(other != comm.rank) for other in range(comm.size)]
            pending = background.start(lambda rows=rows, ones=ones: aside.all_to_all(rows, ones, ones, "activations"))
            rows @ rows.t()  # the loop computes meanwhile
            arrived = pending.result().sum(0)
            comm.all_reduce(arrived, "gradients")
            found.append(float(arrived[0]))
    comm.barrier()
    comm.release()
    return found


@pytest.mark.parametrize("size", [2, 4])
def test_a_thread_exchanges_beside_the_loop(ranks, size: int) -> None:
    expected = [float((size - 1) * sum(rank + step for rank in range(size))) for step in range(4)]
    assert ranks(size).run(_beside) == [expected] * size


def test_what_a_thread_computed_is_there_when_it_is_asked_for() -> None:
    """The loop's stream does not wait for the thread's: the thread does, before it gives its result."""
    timer, device = PhaseTimer(), choose_device(HardwareConfig(device="cuda"), read_environment())
    background, rows = Background(timer, device), torch.ones(1000, device=device)
    timer.start_epoch()
    with timer.phase("forward"):
        for step in range(1, 4):
            doubled = background.start(lambda rows=rows: 2 * rows).result()
            rows = doubled + 1
            assert rows.tolist() == [2.0 ** (step + 1) - 1] * 1000


def _current() -> int:
    return dist.get_rank() - torch.cuda.current_device()


def test_a_rank_begins_on_its_gpu(ranks) -> None:
    expected = [rank - rank % torch.cuda.device_count() for rank in range(2)]
    assert ranks(2).run(_current) == expected
