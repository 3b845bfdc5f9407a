"""Exchanges behind the training loop: their order, their errors, and hidden time apart from time that is waited for."""

from __future__ import annotations

import threading

import numba
import pytest
import torch
from exchanging import CPU, connect, traffic

from gnnexp.comm.background import Background
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import read_environment
from gnnexp.comm.tensor_split import ColumnLayout, even_bounds, to_columns
from gnnexp.measure.phases import PhaseTimer


def test_exchanges_run_one_after_another_in_the_order_in_which_they_were_started():
    timer, order, all_started = PhaseTimer(), list[int](), threading.Event()
    background = Background(timer, CPU)

    def exchange(number: int) -> int:
        assert all_started.wait(60)
        order.append(number)
        return 10 * number

    pending = [background.start(lambda number=number: exchange(number)) for number in range(20)]
    assert order == [], "starting one does not wait for it"
    all_started.set()
    with timer.phase("forward"):
        assert [one.result() for one in reversed(pending)] == [10 * number for number in reversed(range(20))]
    assert order == list(range(20))


def test_one_thread_of_its_own_with_one_numba_thread():
    timer, before = PhaseTimer(), numba.get_num_threads()
    background = Background(timer, CPU)
    with timer.phase("forward"):
        first, second = (
            background.start(lambda: (threading.get_ident(), numba.get_num_threads())).result() for _ in range(2)
        )
    assert first == second and first[0] != threading.get_ident() and first[1] == 1
    assert numba.get_num_threads() == before


def test_an_error_comes_up_where_the_result_is_asked_for_and_nowhere_else():
    timer = PhaseTimer()
    background = Background(timer, CPU)

    def fail() -> int:
        with timer.phase("wait"):
            raise ConnectionResetError("the peer is gone")

    broken, after = background.start(fail), background.start(lambda: 5)
    with timer.phase("forward"):
        assert after.result() == 5
    with pytest.raises(ConnectionResetError, match="the peer is gone"), timer.phase("backward"):
        broken.result()
    assert timer.failed_in == "wait", "as where the training loop itself exchanges"


class Clock:
    """A clock that only the test moves. Threads that wait for `asked` see that the clock was read."""

    def __init__(self) -> None:
        self.now, self.asked = 0.0, threading.Event()

    def perf_counter(self) -> float:
        self.asked.set()
        return self.now


@pytest.mark.parametrize("hidden", [False, True])
def test_what_the_loop_waited_for_is_told_from_what_was_hidden(monkeypatch: pytest.MonkeyPatch, hidden: bool) -> None:
    clock = Clock()
    monkeypatch.setattr("gnnexp.comm.background.time", clock)
    timer = PhaseTimer(clock=lambda: clock.now)
    background = Background(timer, CPU)

    def exchange() -> str:
        if not hidden:
            assert clock.asked.wait(60)
        with timer.phase("wait"):
            clock.now += 1
        start = clock.now
        clock.now += 2
        timer.note_collective(start, clock.now)
        return "rows"

    timer.start_epoch()
    with timer.phase("forward"):
        pending = background.start(exchange)
        if hidden:  # one thread: when this one is done, the other one is
            background.start(lambda: None).result()
        assert pending.result() == "rows"
        clock.now += 4
    times = timer.end_epoch()
    assert times.epoch_s == 7 and times.unaccounted_s == 0
    if hidden:
        assert times.phases["forward"] == 7 and times.phases["wait"] == 0
        assert times.hidden == {"wait": 1, "comm": 2}
    else:
        assert times.phases["forward"] == 6 and times.phases["wait"] == 1
        assert set(times.hidden.values()) == {0}


def _beside_the_loop(many: int) -> tuple[bool, int]:
    """Splits behind the loop's own reductions: the same rows as without, the same bytes."""
    timer = PhaseTimer()
    main = Communicator(read_environment(), timer, CPU)
    aside = main.clone_for_thread(CPU)
    background, rank = Background(timer, CPU), main.rank
    layout = ColumnLayout([3 + other for other in range(main.size)], even_bounds(7, main.size), rank)
    rows = [torch.rand(3 + rank, 7, generator=torch.Generator().manual_seed(10 * step + rank)) for step in range(many)]
    pending = [background.start(lambda one=one: to_columns(one, layout, aside, "activations")) for one in rows]
    with timer.phase("forward"):
        for _ in range(many):
            main.all_reduce(torch.ones(100), "gradients")
        found = [one.result() for one in pending]
        sent = traffic(main)["activations"]
        same = [to_columns(one, layout, main, "activations") for one in rows]
        assert traffic(main)["activations"] == sent
    connect().barrier()
    main.release()
    return all(torch.equal(a, b) for a, b in zip(found, same, strict=True)), sent[1]


def test_the_same_rows_as_without_it(ranks):
    assert ranks(2).run(_beside_the_loop, 10) == [(True, 10)] * 2
