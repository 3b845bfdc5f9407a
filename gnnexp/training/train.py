"""The training loop. It is explicit, because we publish the times of its phases: order and waiting must be visible."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gnnexp.errors import DivergedError
from gnnexp.measure.ledger import Traffic
from gnnexp.measure.memory import TensorMeter, host_peak_bytes, reset_host_peak
from gnnexp.measure.record import RankRecord, record_of, reduce_epoch, step_losses
from gnnexp.measure.trace import tracing
from gnnexp.paradigms.base import trainer_of
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.trainer import Trainer
from gnnexp.record.records import EpochLog
from gnnexp.training.best import Best, ending
from gnnexp.training.checkpoint import Position
from gnnexp.training.evaluate import Evaluation
from gnnexp.training.interruption import Interruption, StopRequest
from gnnexp.training.optimization import Optimization
from gnnexp.training.state import PartialEpoch, RunState


def train(job: Job, trainer: Trainer[Any], log: EpochLog, probed: Mapping[str, int]) -> str:
    """Train from the last checkpoint of the run directory until the `ending` of the run. Rank 0 writes the records.

    Args:
        job: job of this rank.
        trainer: a new trainer, which has not seen a batch.
        log: the log of the run's records.
        probed: bytes that `probe_memory` measured.

    Returns:
        Empty if the run is over. If it was asked to stop: who asked. It then has written a checkpoint.

    Raises:
        DivergedError: the loss is not finite.
    """
    optimization = Optimization(job, trainer)
    evaluation = Evaluation(job, trainer)
    memory = {**trainer.memory(), **probed}
    job.comm.ledger.take()  # earlier traffic belongs to no epoch
    state, interruption = RunState(job, trainer, optimization), Interruption(job.comm)
    position, partial, best = state.restore(log)
    with interruption.listening(), job.timer.activity.during("train"):
        while not ending(job.experiment.train, position, best):
            segment = run_epoch(job, trainer, optimization, position, memory, interruption)
            partial = partial.then(segment.record)
            request = segment.request
            if segment.ended:
                request, best = finish_epoch(job, position.epoch, partial, optimization, evaluation, log, request, best)
                position, partial = Position(position.epoch + 1), PartialEpoch()
            else:
                position = Position(position.epoch, segment.next_step)
            last = bool(ending(job.experiment.train, position, best))
            state.save_if(request, position, partial, best, last=last)
            if request == StopRequest.STOP and not last:
                return interruption.asked_by
            interruption.granted(request)
    return ""


def finish_epoch(
    job: Job,
    epoch: int,
    whole: PartialEpoch,
    optimization: Optimization,
    evaluation: Evaluation,
    log: EpochLog,
    request: StopRequest,
    best: Best,
) -> tuple[StopRequest, Best]:
    """Evaluate and record an epoch. Returns the largest request of all ranks, and the best epoch so far."""
    assert whole.record is not None, "an epoch that ended has a record"
    gathered = job.comm.gather_objects((asdict(whole.record), request, log.recorded(epoch)))
    ranks = [record_of(record) for record, _, _ in gathered]
    with job.timer.activity.during("evaluate"):
        metrics = {**reduce_epoch(ranks), **optimization.learning_rates, **evaluation.after(epoch)}
    optimization.end_epoch(metrics)
    log.append(epoch, metrics, ranks, step_losses(ranks), whole.resumed)
    if not torch.isfinite(torch.tensor(metrics["loss/train"])):
        raise DivergedError(f"loss is {metrics['loss/train']} in epoch {epoch}: try a smaller optimizer.lr")
    recorded = gathered[0][2]  # metrics of an earlier attempt, if this epoch is repeated
    best = best.after(epoch, recorded or metrics, job.task.primary_metric, metrics if recorded else None)
    return StopRequest(max(request for _, request, _ in gathered)), best


@dataclass(frozen=True)
class EpochSegment:
    """The steps of an epoch that run without interruption, usually all.

    Attributes:
        record: measurements of this rank.
        next_step: the step after the last step of the segment.
        ended: whether the epoch is over.
        request: what this rank was asked to do. If the epoch is not over, it is the same on all ranks.
    """

    record: RankRecord
    next_step: int
    ended: bool
    request: StopRequest


def run_epoch(
    job: Job,
    trainer: Trainer[Any],
    optimization: Optimization,
    start: Position,
    memory: dict[str, int],
    interruption: Interruption,
) -> EpochSegment:
    """Run and time an epoch from step `start.step`, to its end or until the ranks handle a request."""
    trainer.module.train()
    reset_host_peak()
    if job.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(job.device)
    losses: list[tuple[Tensor, int]] = []
    timer, step, request = job.timer, start.step, StopRequest.NOTHING
    job.comm.barrier()  # waiting for slower starts, evaluation or the log is not part of the epoch
    with tracing(job.device, trace_file(job, start)) as trace:
        timer.start_epoch()
        with closing(trainer.batches(start.epoch, start.step)) as batches:
            for batch in batches:
                losses.append(trainer.forward_backward(batch))
                trainer.synchronize()
                with timer.phase("update"):
                    optimization.step()
                step += 1
                if trainer.resumes_within_epoch and (request := interruption.after_step()) != StopRequest.NOTHING:
                    break
        counts = trainer.end_epoch()
        times = timer.end_epoch().without(counts.untimed)
    job.comm.ledger.add({tag: Traffic(seconds=seconds) for tag, seconds in timer.take_exchanges().items()})
    traffic = job.comm.ledger.take()
    memory = {**memory, "host_peak_bytes": host_peak_bytes()}
    if job.device.type == "cuda":
        memory["device_peak_bytes"] = max(torch.cuda.max_memory_allocated(job.device), counts.captured_bytes)
    numbers = [(float(loss), count) for loss, count in losses]
    record = RankRecord(job.comm.rank, times, traffic, counts.work, memory, numbers, counts.batches, trace)
    return EpochSegment(record, step, request == StopRequest.NOTHING, request or interruption.at_epoch_end())


def trace_file(job: Job, start: Position) -> Path | None:
    """Where this rank's trace of the epoch goes; None if the epoch is not traced, or began before `start`."""
    if start.epoch != job.experiment.trace or start.step:
        return None
    return job.directory / "traces" / f"epoch_{start.epoch}_rank_{job.comm.rank}.json.gz"


def probe_memory(job: Job) -> dict[str, int]:
    """Peak bytes by kind, from one untimed pass over the first batch that counts every tensor. Empty on a GPU.

    On CPU these are the bytes of the emulated device tier: batch, activations and gradients, plus parameters and
    buffers. A separate trainer makes the pass, so that the trainer of the run has not seen a batch.
    """
    if job.device.type == "cuda":
        return {}
    trainer = trainer_of(job)
    held, module = trainer.memory(), trainer.module
    module.train()
    batches = trainer.batches(0)
    first = next(batches)
    existing = [t for p in module.parameters() for t in (p, p.grad) if isinstance(t, Tensor)]
    with TensorMeter(existing) as meter, job.tier.measured():
        trainer.forward_backward(first)
    batches.close()
    trainer.clear_gradients()
    trainer.end_epoch()
    if job.tier.peak_bytes:  # chunked work: tensors outside of chunks are in the host tier
        return {"intermediate_bytes": meter.peak_bytes, "device_peak_bytes": job.tier.peak_bytes}
    parameters = sum(p.numel() * p.element_size() for p in module.parameters())
    return {
        "intermediate_bytes": meter.peak_bytes,
        "device_peak_bytes": meter.peak_bytes + parameters + held.get("buffers_bytes", 0),
    }
