"""Prepare batches in the background, in order, and a limited number at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


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
    waiting: deque[Future[T]] = deque()
    pool = ThreadPoolExecutor(min(threads, depth), thread_name_prefix="prefetch")
    cancel = True
    try:
        for number in range(min(depth, count)):
            waiting.append(pool.submit(make, number))
        for number in range(depth, count + depth):
            if not waiting:
                return
            result = waiting.popleft().result()
            if number < count:
                waiting.append(pool.submit(make, number))
            try:
                yield result
            except GeneratorExit:
                cancel = False
                raise
            del result  # otherwise it would live until the next result: one batch more than `depth` in memory
    finally:
        pool.shutdown(wait=True, cancel_futures=cancel)
