"""Preparing batches: one after the other, or the next ones in the background while this one trains."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

from gnnexp.job import Job
from gnnexp.kernels.threads import begin_thread, threads_next_to
from gnnexp.measure.phases import Phase, Stretch
from gnnexp.measure.tally import Counts, Tally
from gnnexp.samplers.pipeline import prefetched

B = TypeVar("B")


def prepared(
    job: Job, steps: range, prepare: Callable[[int], B], work: Counts, *, waits_in: Phase = "sample",
    threads: int | None = None, depth: int | None = None,
) -> Generator[B, None, None]:
    """`prepare(step)` of all steps, in order; prepared ahead with `train.overlap`.

    Results are the same either way. What the training loop waits for is charged to the phases that the background
    thread was in, all other work of that thread is reported as hidden (`PhaseTimer.charge_wait`). What a batch adds to
    counts and traffic is added when the loop takes it: batches that are ready when the generator is closed are not
    counted.

    Args:
        job: timer, ledger, store, sampler (threads and depth), `train.overlap`.
        steps: whose batches are wanted.
        prepare: makes one batch, enters the phases `sample` and `load`; where it communicates it is called by one
            thread only, in order of the steps.
        work: the paradigm's counts.
        waits_in: phase that waiting belongs to where the background is in none.
        threads: that prepare; None: `sampler.threads`.
        depth: prepared or in preparation at once; None: `sampler.prefetch`.
    """
    timer = job.timer
    threads = job.sampler.threads if threads is None else threads
    depth = job.sampler.prefetch if depth is None else depth
    # One batch has none to overlap with; rows that are trained are others after every step.
    if not job.experiment.train.overlap or len(steps) == 1 or threads == 0 or job.trained_rows is not None:
        for step in steps:
            yield prepare(step)
        return

    of_kernels = threads_next_to(job.device, threads)
    tallies: Sequence[Tally[Any, Any]] = (work, job.comm.ledger, *job.store.tallies)

    def ahead(number: int) -> tuple[B, Sequence[Stretch], Sequence[dict[Any, Any]]]:
        begin_thread(job.device, of_kernels)
        with timer.aside() as stretches, ExitStack() as apart:
            counted = [apart.enter_context(tally.apart()) for tally in tallies]
            return prepare(steps[number]), stretches, counted

    with timer.phase(waits_in):
        ready = prefetched(ahead, len(steps), threads, depth)
    try:
        for _ in steps:
            asked = time.perf_counter()
            with timer.phase(waits_in):
                batch, stretches, counted = next(ready)
            timer.charge_wait(stretches, waits_in, asked, time.perf_counter())
            for tally, amounts in zip(tallies, counted, strict=True):
                tally.add(amounts)
            yield batch
    finally:
        with timer.phase(waits_in):
            ready.close()
