"""Prepare batches in the background, in order, and a limited number at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
A = TypeVar("A")


def prefetched(make: Callable[[int], T], count: int, threads: int, depth: int) -> Generator[T, None, None]:
    """Yield `make(0)`, `make(1)`, ... `make(count - 1)`, which threads prepare ahead.

    Threads start when the first result is requested. An error of `make(i)` is raised in place of result i, and no
    further call starts after it. When the generator ends or is closed, its threads have ended.

    A generator that is closed early has made exactly `depth` results after the last one that it yielded. So if `make`
    exchanges data between ranks, all ranks take part in the same exchanges.

    Args:
        make: function that several threads may call at the same time.
        count: number of results.
        threads: number of worker threads; 0: each result is made when it is requested.
        depth: number of results that wait or are being made, at least 1, without the result that the consumer has.
    """
    if threads == 0:
        for number in range(count):
            yield make(number)
        return
    pool = ThreadPoolExecutor(min(threads, depth), thread_name_prefix="prefetch")
    yield from _in_order(lambda number: pool.submit(make, number), count, depth, pool)


def prefetched_in_stages(
    draw: Callable[[int], A], finish: Callable[[A], T], count: int, threads: int, depth: int
) -> Generator[T, None, None]:
    """Yield `finish(draw(0))`, `finish(draw(1))`, ...: threads draw, and one further thread finishes in order.

    Everything else is as with `prefetched`. So `finish` may exchange data between ranks, and `draw` may not.

    Args:
        draw: function that several threads may call at the same time.
        finish: function that takes the results of `draw` in order, one at a time.
        count: number of results.
        threads: number of threads that draw, at least 1.
        depth: number of results that wait, are drawn or are finished, at least 1.
    """
    drawing = ThreadPoolExecutor(min(threads, depth), thread_name_prefix="prefetch")
    finishing = ThreadPoolExecutor(1, thread_name_prefix="exchange")

    def submit(number: int) -> Future[T]:
        drawn = drawing.submit(draw, number)
        return finishing.submit(lambda: finish(drawn.result()))

    yield from _in_order(submit, count, depth, drawing, finishing)


def _in_order(
    submit: Callable[[int], Future[T]], count: int, depth: int, *pools: ThreadPoolExecutor
) -> Generator[T, None, None]:
    """Results of what is submitted, in order. At the end, the pools are shut down one after the other."""
    waiting: deque[Future[T]] = deque()
    cancel = True
    try:
        for number in range(min(depth, count)):
            waiting.append(submit(number))
        for number in range(depth, count + depth):
            if not waiting:
                return
            result = waiting.popleft().result()
            if number < count:
                waiting.append(submit(number))
            try:
                yield result
            except GeneratorExit:
                cancel = False
                raise
            del result  # otherwise it would live until the next result: one batch more than `depth` in memory
    finally:
        for pool in pools:
            pool.shutdown(wait=True, cancel_futures=cancel)
