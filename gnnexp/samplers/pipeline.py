"""Batches prepared in the background, in order and bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def prefetched(make: Callable[[int], T], count: int, threads: int, depth: int) -> Generator[T, None, None]:
    """Yield `make(0)`, `make(1)`, ... `make(count - 1)`, prepared ahead by threads.

    Nothing starts before the first result is asked for. An error of `make(i)` is raised where result i would have been
    yielded, after which nothing more is started. When the generator ends or is closed, its threads have ended; closed
    early, it has made result `depth` after the last one that was yielded, no more and no fewer: where making a result
    takes an exchange between ranks, they all take part in the same ones.

    Args:
        make: safe to call from several threads at once.
        count: number of results.
        threads: worker threads, 0 = make each result when it is asked for.
        depth: results waiting or being made at any time, at least 1 (what the consumer holds is not counted).
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
            del result  # or it would live until the next one is there: one batch more than `depth` in memory
    finally:
        pool.shutdown(wait=True, cancel_futures=cancel)
