"""Rows, sums and gradients that come some epochs late: which ones are used when, and that all travel at once."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch
from exchanging import Sent, alone, connect, indices, local_rows, traffic

from gnnexp.comm.arrival import Arrival, ExchangePoint, KeptExchanges, Late
from gnnexp.comm.background import Background
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.shuffle import ShuffleIndex, reduce_home, shuffle

EPOCHS, SIZE = 5, 3


def beside(comm: Communicator) -> tuple[Background, Communicator]:
    """On what exchanges run while the loop computes, and among whom."""
    thread = Background(comm._timer, comm.device)
    return thread, comm.clone_for_thread(comm.device, thread)


def rows_in(epoch: int, rank: int) -> torch.Tensor:
    return local_rows(SIZE)[rank] + epoch


def whole_rows_in(epoch: int, rank: int) -> torch.Tensor:
    """`[num_local + F, 3]`, other ones in every epoch."""
    index = indices(SIZE)[rank]
    generator = torch.Generator().manual_seed(1000 * epoch + rank)
    return torch.rand((index.num_local + index.num_foreign, 3), generator=generator, dtype=torch.float64)


def _gathers(delay: int, stop_after: int | None, ahead: bool) -> list[Sent]:
    comm = connect()
    index, sent = indices(comm.size)[comm.rank], []
    count, place = index.num_local, Arrival("late", delay).at(index, background=beside(comm) if ahead else None)
    with comm._timer.phase("forward"):
        for epoch in range(EPOCHS):
            if stop_after == epoch:
                place = restored(place, delay)
            x = rows_in(epoch, comm.rank).requires_grad_()
            mixed = place.gather(x, epoch, comm, "activations")
            y = whole_rows_in(epoch, comm.rank)
            mixed.backward(y)
            sent.append(traffic(comm))
            late = epoch - delay
            foreign = torch.zeros(index.num_foreign, 3, dtype=torch.float64)
            home = torch.zeros(count, 3, dtype=torch.float64)
            if late >= 0:
                arrived = shuffle(rows_in(late, comm.rank), index, comm, "features")
                assert isinstance(arrived, torch.Tensor)
                foreign = arrived[count:]
                home = reduce_home(whole_rows_in(late, comm.rank), index, comm, "features")
                home = home - whole_rows_in(late, comm.rank)[:count]
            assert torch.equal(mixed.detach(), torch.cat((x.detach(), foreign)))
            assert x.grad is not None and torch.allclose(x.grad, y[:count] + home, rtol=0, atol=1e-14)
            if isinstance(place, Late):
                assert len(place.forwards) == len(place.backwards) == min(epoch + 1, delay)
            traffic(comm)
    return sent


def _reduces(delay: int, stop_after: int | None, ahead: bool) -> list[Sent]:
    comm = connect()
    index, sent = indices(comm.size)[comm.rank], []
    count, place = index.num_local, Arrival("late", delay).at(index, background=beside(comm) if ahead else None)
    with comm._timer.phase("forward"):
        for epoch in range(EPOCHS):
            if stop_after == epoch:
                place = restored(place, delay)
            rows = whole_rows_in(epoch, comm.rank).requires_grad_()
            home = place.reduce(rows, epoch, comm, "activations")
            y = rows_in(epoch, comm.rank)
            home.backward(y)
            sent.append(traffic(comm))
            late = epoch - delay
            others = torch.zeros(count, 3, dtype=torch.float64)
            gradient = torch.zeros(index.num_foreign, 3, dtype=torch.float64)
            if late >= 0:
                then = whole_rows_in(late, comm.rank)
                others = reduce_home(then, index, comm, "features") - then[:count]
                arrived = shuffle(rows_in(late, comm.rank), index, comm, "features")
                assert isinstance(arrived, torch.Tensor)
                gradient = arrived[count:]
            assert torch.allclose(home.detach(), rows.detach()[:count] + others, rtol=0, atol=1e-14)
            assert rows.grad is not None and torch.equal(rows.grad, torch.cat((y, gradient)))
            traffic(comm)
    return sent


def restored(place: ExchangePoint, delay: int) -> ExchangePoint:
    """Another one with the same things under way, as a checkpoint keeps them."""
    late = Arrival("late", delay)
    again, device = late.at(place.halo), torch.device("cpu")
    KeptExchanges(late, [again], device).load_state_dict(KeptExchanges(late, [place], device).state_dict())
    return again


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("exchange", [_gathers, _reduces])
@pytest.mark.parametrize(("delay", "stop_after"), [(0, None), (1, None), (2, None), (2, 3)])
def test_what_comes_late_is_that_of_so_many_epochs_before(ranks, exchange, delay, stop_after, ahead):
    """With no delay it is the exchange itself; the traffic is the same either way."""
    for index, sent in zip(indices(SIZE), ranks(SIZE).run(exchange, delay, stop_after, ahead), strict=True):
        assert sent == [{"activations": ((sum(index.sent) + sum(index.received)) * 3 * 8, 2)}] * EPOCHS


def test_a_single_rank_waits_for_nobody():
    comm, rows = alone(), torch.rand(4, 2)
    place = Late(ShuffleIndex(torch.empty(0, dtype=torch.int64), (0,), (0,), 4), Arrival("late", 2))
    assert place.gather(rows, 0, comm, "features") is rows and place.reduce(rows, 0, comm, "features") is rows
    assert not place.forwards and traffic(comm) == {}


def _charged() -> int:
    """How often the loop waited for an exchange, forwards and backwards, over all epochs."""
    comm = connect()
    index = indices(comm.size)[comm.rank]
    place = Arrival("late", 2).at(index, background=beside(comm))
    with comm._timer.phase("forward"), patch.object(comm._timer, "charge_wait") as charge:
        for epoch in range(EPOCHS):
            mixed = place.gather(rows_in(epoch, comm.rank).requires_grad_(), epoch, comm, "activations")
            assert isinstance(mixed, torch.Tensor) and mixed.shape[0] == index.num_local + index.num_foreign
            mixed.backward(whole_rows_in(epoch, comm.rank))
    comm.release()
    return charge.call_count


def test_the_loop_waits_for_an_exchange_once_and_only_when_it_is_due(ranks) -> None:
    """Those of the last two epochs are under way at the end, and releasing the communicator waits for them."""
    assert ranks(SIZE).run(_charged) == [2 * (EPOCHS - 2)] * SIZE
