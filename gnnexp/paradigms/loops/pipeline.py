"""Preparation of batches: one after another, or the next ones in the background during training."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

from gnnexp.kernels.threads import begin_thread, threads_next_to
from gnnexp.measure.ledger import Counts, Tally
from gnnexp.measure.phases import Phase, Stretch
from gnnexp.paradigms.job import Job
from gnnexp.samplers.pipeline import prefetched

B = TypeVar("B")


def prepared(
    job: Job,
    steps: range,
    prepare: Callable[[int], B],
    work: Counts,
    *,
    waits_in: Phase = "sample",
    threads: int | None = None,
    depth: int | None = None,
) -> Generator[B, None, None]:
    """The results of `prepare(step)` for all steps, in order; prepared in advance with `train.overlap`.

    Results are the same in both cases. The time that the training loop waits is charged to the phases of the background
    thread in that time. All other work of that thread is reported as hidden (`PhaseTimer.charge_wait`). Counts and
    traffic of a batch are added when the loop takes the batch. If the generator is closed, batches that are ready are
    not counted.

    Args:
        job: timer, ledger, store, sampler (threads and depth), `train.overlap`.
        steps: steps whose batches are prepared.
        prepare: function that makes one batch, in the phases `sample` and `load`. If it communicates, only one thread
            calls it, in order of the steps.
        work: counts of the paradigm.
        waits_in: phase for waiting time in which the background thread is in no phase.
        threads: number of threads that prepare; None: `sampler.threads`.
        depth: most batches that are ready or in preparation; None: `sampler.prefetch`.
    """
    timer = job.timer
    threads = job.sampler.options.threads if threads is None else threads
    depth = job.sampler.options.prefetch if depth is None else depth
    # A single batch has nothing to overlap with. Trained rows change after every step.
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
            with timer.waiting(waits_in):
                batch, stretches, counted = next(ready)
            timer.charge_wait(stretches, waits_in, asked, time.perf_counter())
            for tally, amounts in zip(tallies, counted, strict=True):
                tally.add(amounts)
            yield batch
    finally:
        with timer.phase(waits_in):
            ready.close()
