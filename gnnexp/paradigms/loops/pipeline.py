"""Preparation of batches: one after another, or the next ones in the background during training."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

import numba

from gnnexp.kernels.threads import begin_thread, threads_next_to
from gnnexp.measure.ledger import Counts, Tally
from gnnexp.measure.phases import Phase, Stretch
from gnnexp.paradigms.job import Job
from gnnexp.samplers.base import threads_inside
from gnnexp.samplers.pipeline import prefetched, prefetched_in_stages

A = TypeVar("A")
B = TypeVar("B")
# What a thread made, when it was in which phase, and what it counted in each tally.
Aside = tuple[B, Sequence[Stretch], Sequence[tuple[Tally[Any, Any], dict[Any, Any]]]]


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
    threads = job.sampler.options.threads if threads is None else threads
    depth = job.sampler.options.prefetch if depth is None else depth
    if threads == 0 or not prepares_ahead(job, len(steps)):
        for step in steps:
            yield prepare(step)
        return
    make = _aside(job, work, prepare, threads)
    ready = prefetched(lambda number: make(steps[number]), len(steps), threads, depth)
    yield from _taken(job, ready, len(steps), waits_in)


def prepared_in_stages(
    job: Job, steps: range, draw: Callable[[int], A], finish: Callable[[A], B], work: Counts
) -> Generator[B, None, None]:
    """The results of `finish(draw(step))` for all steps, as with `prepared`. One thread calls `finish`, in order.

    Args:
        job: as for `prepared`; `sampler.threads` threads draw.
        steps: steps whose batches are prepared.
        draw: function that does what needs no other rank.
        finish: function that does the rest. It may communicate.
        work: counts of the paradigm.
    """
    threads, depth = job.sampler.options.threads, job.sampler.options.prefetch
    if threads == 0 or not prepares_ahead(job, len(steps)):
        for step in steps:
            yield finish(draw(step))
        return
    drawing, finishing = _aside(job, work, draw, threads), _aside(job, work, finish, threads)

    def rest(drawn: Aside[A]) -> Aside[B]:
        batch, stretches, counted = finishing(drawn[0])
        return batch, [*drawn[1], *stretches], [*drawn[2], *counted]

    ready = prefetched_in_stages(lambda number: drawing(steps[number]), rest, len(steps), threads, depth)
    yield from _taken(job, ready, len(steps), "sample")


def prepares_ahead(job: Job, num_steps: int) -> bool:
    """Whether batches may be prepared before the loop needs them.

    A single batch has nothing to overlap with. Trained rows change after every step.
    """
    return job.experiment.train.overlap and num_steps > 1 and job.trained_rows is None


def sampling_threads(job: Job, num_steps: int, *, alone: bool = True) -> tuple[int, int]:
    """Most batches that are sampled at the same time, and threads inside each of them.

    Args:
        job: job of the rank; `sampler.threads` threads sample.
        num_steps: number of batches.
        alone: whether the rank samples without exchanges. Otherwise it samples one batch at a time.
    """
    chosen = job.sampler.options
    ahead = alone and prepares_ahead(job, num_steps)
    at_once = max(1, min(chosen.threads, chosen.prefetch)) if ahead else 1
    return at_once, min(threads_inside(chosen.threads, at_once), numba.config.NUMBA_NUM_THREADS)


def sampling_facts(job: Job, num_steps: int, *, alone: bool = True) -> Mapping[str, Any]:
    """What is recorded of `sampling_threads`: nothing with at most one thread."""
    if job.sampler.options.threads < 2:
        return {}
    at_once, inside = sampling_threads(job, num_steps, alone=alone)
    return {"sampling": {"batches_at_once": at_once, "threads_in_each": inside}}


def _aside(job: Job, work: Counts, make: Callable[[A], B], threads: int) -> Callable[[A], Aside[B]]:
    """`make` for one of `threads` threads next to the training loop, with its phases and counts kept apart."""
    of_kernels = threads_next_to(job.device, threads)
    tallies: Sequence[Tally[Any, Any]] = (work, job.comm.ledger, *job.store.tallies)

    def made(order: A) -> Aside[B]:
        begin_thread(job.device, of_kernels)
        with job.timer.aside() as stretches, ExitStack() as apart:
            counted = [(tally, apart.enter_context(tally.apart())) for tally in tallies]
            return make(order), stretches, counted

    return made


def _taken(job: Job, ready: Generator[Aside[B], None, None], count: int, waits_in: Phase) -> Generator[B, None, None]:
    """Take `count` results of other threads: charge the wait for each, and add its counts."""
    timer = job.timer
    try:
        for _ in range(count):
            asked = time.perf_counter()
            with timer.waiting(waits_in):
                batch, stretches, counted = next(ready)
            timer.charge_wait(stretches, waits_in, asked, time.perf_counter())
            for tally, amounts in counted:
                tally.add(amounts)
            yield batch
    finally:
        with timer.phase(waits_in):
            ready.close()
