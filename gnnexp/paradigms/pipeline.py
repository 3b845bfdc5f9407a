"""Preparing batches: one after the other, or the next ones in the background while this one trains."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

import numba

from gnnexp.job import Job
from gnnexp.measure.phases import Stretch
from gnnexp.samplers.pipeline import prefetched

B = TypeVar("B")




def prepared(job: Job, steps: int, prepare: Callable[[int], B]) -> Generator[B, None, None]:
    """`prepare(0)`, ... `prepare(steps - 1)`, in order; prepared ahead with `train.overlap`.

    Results are the same either way. What the training loop waits for is charged to the phases that the background
    thread was in, all other work of that thread is reported as hidden (`PhaseTimer.settle`).

    Args:
        job: timer, sampler (threads and depth), `train.overlap`.
        steps: batches of the epoch.
        prepare: makes one batch, enters the phases `sample` and `load`; where it communicates it is called by one
            thread only, in order of the steps.
    """
    timer, sampler = job.timer, job.sampler
    if not job.run.train.overlap or steps == 1 or sampler.threads == 0:  # a single batch has none to overlap with
        for step in range(steps):
            yield prepare(step)
        return

    def ahead(step: int) -> tuple[B, Sequence[Stretch]]:
        numba.set_num_threads(1)  # kept per thread: a second OpenMP team would fight the training loop's
        with timer.aside() as stretches:
            return prepare(step), stretches

    with timer.phase("sample"):
        ready = prefetched(ahead, steps, sampler.threads, sampler.prefetch)
    try:
        for _ in range(steps):
            asked = time.perf_counter()
            with timer.phase("sample"):
                batch, stretches = next(ready)
            timer.settle(stretches, "sample", asked, time.perf_counter())
            yield batch
    finally:
        with timer.phase("sample"):
            ready.close()
