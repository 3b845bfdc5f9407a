"""Preparing ahead: in order, bounded, errors in their place, no thread left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from gnnexp.samplers.pipeline import prefetched, prefetched_in_stages


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("threads", [0, 1, 2, 5])
@pytest.mark.parametrize("depth", [1, 2, 7])
@pytest.mark.parametrize("count", [0, 1, 6, 40])
def test_results_come_in_order(threads: int, depth: int, count: int) -> None:
    assert list(prefetched(lambda number: number * number, count, threads, depth)) == [n * n for n in range(count)]


def test_order_holds_when_later_ones_are_ready_first() -> None:
    later_is_done = threading.Event()

    def make(number: int) -> int:
        if number == 0:
            assert later_is_done.wait(30)
        else:
            later_is_done.set()
        return number

    assert list(prefetched(make, 4, threads=2, depth=3)) == [0, 1, 2, 3]


@pytest.mark.parametrize(("threads", "depth"), [(1, 1), (2, 3), (4, 2)])
def test_never_more_than_depth_ahead(threads: int, depth: int) -> None:
    received, ahead, lock = 0, [], threading.Lock()

    def make(number: int) -> int:
        with lock:
            ahead.append(number - received)
        return number

    for _ in prefetched(make, 50, threads, depth):
        with lock:
            received += 1
    assert max(ahead) <= depth
    assert len(ahead) == 50


def test_depth_results_are_made_while_the_consumer_is_busy() -> None:
    made = threading.Semaphore(0)

    def make(number: int) -> int:
        made.release()
        return number

    ready = prefetched(make, 10, threads=1, depth=3)
    assert next(ready) == 0
    for _ in range(4):  # 0 and the three that wait behind it, although nobody asks for them
        assert made.acquire(timeout=30)
    ready.close()
    assert not made.acquire(blocking=False)


@pytest.mark.parametrize(("taken", "depth"), [(1, 1), (1, 3), (2, 2), (4, 2)])
def test_closed_early_the_same_results_were_made_whatever_the_timing(taken: int, depth: int) -> None:
    made: list[int] = []

    def make(number: int) -> int:
        time.sleep(0.001 * (number % 3))
        made.append(number)
        return number

    ready = prefetched(make, 10, threads=1, depth=depth)
    for _ in range(taken):
        next(ready)
    ready.close()
    assert made == list(range(taken + depth))


def test_nothing_starts_before_it_is_asked_for() -> None:
    calls: list[int] = []
    ready = prefetched(calls.append, 3, threads=2, depth=2)
    assert calls == []
    ready.close()
    assert calls == []


@pytest.mark.parametrize("threads", [0, 2])
def test_an_error_is_raised_in_its_place(threads: int) -> None:
    calls: list[int] = []

    def make(number: int) -> int:
        calls.append(number)
        if number == 2:
            raise LookupError("broken batch")
        return number

    ready = prefetched(make, 1000, threads, depth=4)
    assert [next(ready), next(ready)] == [0, 1]
    with pytest.raises(LookupError, match="broken batch"):
        next(ready)
    assert list(ready) == []
    assert max(calls) <= 2 + 4


def test_closing_waits_for_what_runs_and_what_waits() -> None:
    started, release, finished = threading.Event(), threading.Event(), []

    def make(number: int) -> int:
        if number > 0:
            started.set()
            assert release.wait(30)
        finished.append(number)
        return number

    ready = prefetched(make, 10, threads=1, depth=5)
    assert next(ready) == 0
    assert started.wait(30)
    timer = threading.Timer(0.05, release.set)
    timer.start()
    ready.close()
    timer.join()
    assert finished == [0, 1, 2, 3, 4, 5]


def test_without_threads_the_caller_makes_them() -> None:
    assert set(prefetched(lambda _: threading.get_ident(), 3, threads=0, depth=2)) == {threading.get_ident()}


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("depth", [1, 2, 7])
@pytest.mark.parametrize("count", [0, 1, 6, 40])
def test_stages_finish_in_order_one_at_a_time(threads: int, depth: int, count: int) -> None:
    finished, busy = [], threading.Lock()

    def finish(number: int) -> int:
        assert busy.acquire(blocking=False), "one thread finishes"
        finished.append((number, threading.get_ident()))
        busy.release()
        return -number

    found = list(prefetched_in_stages(lambda number: number, finish, count, threads, depth))
    assert found == [-number for number in range(count)]
    assert [number for number, _ in finished] == list(range(count))
    assert len({thread for _, thread in finished}) == min(count, 1)


def test_a_later_draw_waits_for_its_turn_to_be_finished() -> None:
    later_is_drawn, finished = threading.Event(), []

    def draw(number: int) -> int:
        if number == 0:
            assert later_is_drawn.wait(30)
        else:
            later_is_drawn.set()
        return number

    assert list(prefetched_in_stages(draw, lambda n: finished.append(n) or n, 4, threads=2, depth=3)) == [0, 1, 2, 3]
    assert finished == [0, 1, 2, 3]


@pytest.mark.parametrize(("taken", "threads", "depth"), [(1, 1, 1), (1, 2, 3), (2, 3, 2), (4, 2, 2)])
def test_stages_closed_early_have_made_the_same_results(taken: int, threads: int, depth: int) -> None:
    drawn, finished = [], []
    ready = prefetched_in_stages(
        lambda number: drawn.append(number) or number, lambda n: finished.append(n) or n, 10, threads, depth
    )
    for _ in range(taken):
        next(ready)
    ready.close()
    assert sorted(drawn) == finished == list(range(taken + depth))


@pytest.mark.parametrize("stage", ["draw", "finish"])
def test_an_error_of_a_stage_is_raised_in_its_place(stage: str) -> None:
    def work(name: str) -> Callable[[int], int]:
        def make(number: int) -> int:
            if number == 2 and name == stage:
                raise LookupError("broken batch")
            return number

        return make

    ready = prefetched_in_stages(work("draw"), work("finish"), 1000, 2, depth=4)
    assert [next(ready), next(ready)] == [0, 1]
    with pytest.raises(LookupError, match="broken batch"):
        next(ready)
    assert list(ready) == []
