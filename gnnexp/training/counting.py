"""Counts what ranks would record, without computing (`train.count_only`): one process runs all of them.

Ranks are threads that take turns (`gnnexp.comm.virtual`). They run the code of training: batches are drawn, ids are
exchanged, caches are asked. Rows of features, and all that is computed from them, have shapes and no values. So bytes,
rounds, rows and edges are those of a training run, to the byte.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from math import sqrt
from pathlib import Path
from statistics import stdev
from typing import Any

from gnnexp.comm.environment import Environment
from gnnexp.comm.virtual import Turns
from gnnexp.experiment.experiment import Experiment
from gnnexp.launchers.interrupts import handling
from gnnexp.measure.phases import PhaseTimer, PhaseTimes
from gnnexp.measure.record import (
    RankRecord,
    record_of,
    reduce_batches,
    reduce_memory,
    reduce_traffic,
    reduce_work,
)
from gnnexp.paradigms.base import trainer_of
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.trainer import Trainer
from gnnexp.provenance.code import RunCode
from gnnexp.record.heartbeat import Heartbeat
from gnnexp.record.records import EpochLog
from gnnexp.training.assemble import Artifacts, assemble
from gnnexp.training.result import note_ranks, write_result

# What a counting run cannot know: names of metrics, or their beginnings.
LACKS = ("time/", "loss/", "memory/device_peak_bytes", "memory/host_peak_bytes", "memory/intermediate_bytes")


class _StoppedError(Exception):
    """The run was asked to stop."""


@dataclass(eq=False)
class _Stage:
    """What virtual ranks share.

    Attributes:
        turns: whose turn it is.
        timer: its marks show the launcher that the run makes progress.
        asked_by: the signal that asked the run to stop; empty if none did.
    """

    turns: Turns
    timer: PhaseTimer = field(default_factory=PhaseTimer)
    asked_by: str = ""

    def step(self) -> None:
        """A rank has made a step."""
        self.timer.activity.marks += 1
        if self.asked_by:
            raise _StoppedError

    def stop(self, number: int, frame: object) -> None:
        """Handle a signal."""
        self.asked_by = signal.Signals(number).name


def count(
    run_dir: Path,
    request: Mapping[str, Any],
    experiment: Experiment,
    artifacts: Artifacts,
    environment: Environment,
    code: RunCode,
    started: list[PhaseTimer],
    heartbeat: Heartbeat,
) -> str:
    """Run all ranks of an experiment in this process, and write what they count; arguments as for a training rank.

    Returns:
        Empty if the run is over, else who asked it to stop. Epochs that were counted stay.

    Raises:
        UncountableError: a count depends on a computed value. Any other error of a rank.
    """
    experiment = replace(experiment, train=replace(experiment.train, overlap=False))
    stage = _Stage(Turns())
    started.append(stage.timer)
    heartbeat.watch(stage.timer)

    def rank(number: int) -> None:
        size = experiment.num_ranks
        where = Environment(
            number, size, number % experiment.hardware.workers, experiment.hardware.workers, environment.host
        )
        _count_rank(run_dir, request, experiment, artifacts, where, code, stage)

    with (
        handling({signal.SIGTERM: stage.stop, signal.SIGUSR2: stage.stop}),
        stage.timer.activity.during("train"),
    ):
        take_turns(experiment.num_ranks, rank, stage.turns)
    return stage.asked_by if isinstance(stage.turns.failed, _StoppedError) else ""


def take_turns(size: int, rank: Callable[[int], None], turns: Turns) -> None:
    """Run all ranks to their end, one at a time. The first error of a rank is raised, unless it was a wish to stop."""

    def run(number: int) -> None:
        with turns.lock:
            if turns.failed is None:
                try:
                    rank(number)
                except BaseException as error:
                    turns.fail(error)

    threads = [threading.Thread(target=run, args=(number,), name=f"rank {number}") for number in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if turns.failed is not None and not isinstance(turns.failed, _StoppedError):
        raise turns.failed


def _count_rank(
    run_dir: Path,
    request: Mapping[str, Any],
    experiment: Experiment,
    artifacts: Artifacts,
    environment: Environment,
    code: RunCode,
    stage: _Stage,
) -> None:
    """One virtual rank, from its components to the end of the run."""
    job = assemble(experiment, artifacts, run_dir, environment, turns=stage.turns)
    note_ranks(run_dir, job.comm, code)
    trainer = trainer_of(job)
    trainer.module.train()
    log, memory = EpochLog(run_dir, environment.rank), trainer.memory()
    (known, *_) = job.comm.gather_objects(log.num_epochs)
    job.comm.ledger.take()  # earlier traffic belongs to no epoch
    alike = trainer.resumes_within_epoch and trainer.own_state is None
    for epoch in range(known if alike else 0, experiment.train.epochs):
        steps = _count_epoch(job, trainer, epoch, memory, stage)
        ranks = [[record_of(step) for step in of_rank] for of_rank in job.comm.gather_objects(steps)]
        if environment.rank == 0:
            log.append(epoch, counted(ranks), [_joined(of_rank) for of_rank in ranks], [])
    if environment.rank == 0:
        write_result(run_dir, request, job, trainer)


def _count_epoch(
    job: Job, trainer: Trainer[Any], epoch: int, memory: Mapping[str, int], stage: _Stage
) -> list[dict[str, Any]]:
    """What this rank counts in each step, or in the whole epoch if the trainer counts only that."""
    steps: list[dict[str, Any]] = []

    def note() -> None:
        counts = trainer.end_epoch()
        traffic = job.comm.ledger.take()
        nothing = PhaseTimes(0.0, {})
        steps.append(asdict(RankRecord(job.comm.rank, nothing, traffic, counts.work, memory, [], counts.batches)))

    job.timer.start_epoch()
    with closing(trainer.batches(epoch)) as batches:
        for batch in batches:
            trainer.forward_backward(batch)
            trainer.synchronize()
            trainer.clear_gradients()
            stage.step()
            if trainer.resumes_within_epoch:
                note()
    if not trainer.resumes_within_epoch or not steps:
        note()
    return steps


def counted(ranks: Sequence[Sequence[RankRecord]]) -> dict[str, float]:
    """Metrics of an epoch, with the names of a training run, and their standard errors over batches.

    Args:
        ranks: `[ranks][steps]` records.

    Returns:
        The metrics; `counts/batches`, the number of batches, and `se/<metric>` for sums over two batches or more: the
        standard error of the sum, from the spread of the batches.
    """
    whole = [_joined(of_rank) for of_rank in ranks]
    metrics = {**reduce_traffic(whole), **reduce_work(whole), **reduce_batches(whole), **reduce_memory(whole)}
    steps = [_sums(of_step) for of_step in zip(*ranks, strict=True)]
    metrics["counts/batches"] = len(steps)
    if len(steps) > 1:
        for name in steps[0]:
            metrics[f"se/{name}"] = sqrt(len(steps)) * stdev(step.get(name, 0) for step in steps)
    return metrics


def _sums(ranks: Sequence[RankRecord]) -> dict[str, float]:
    """Sums over ranks of one step."""
    found = {**reduce_traffic(ranks), **reduce_work(ranks), **reduce_batches(ranks)}
    return {name: value for name, value in found.items() if not name.startswith(("imbalance/", "comm/rounds"))}


def _joined(steps: Sequence[RankRecord]) -> RankRecord:
    """One record of all steps of a rank."""
    whole = steps[0]
    for step in steps[1:]:
        whole = whole.joined(step)
    return whole
