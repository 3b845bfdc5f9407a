"""The training loop: explicit, because order and synchronisation points are what is being published."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gnnexp.errors import ConfigError, DivergedError, Problem
from gnnexp.experiment.schema import TrainConfig
from gnnexp.job import Job
from gnnexp.measure.memory import TensorMeter, host_peak_bytes, reset_host_peak
from gnnexp.measure.record import RankRecord, reduce_epoch, step_losses
from gnnexp.paradigms.trainer import Trainer
from gnnexp.record.records import EpochLog
from gnnexp.training.best import Best
from gnnexp.training.checkpoint import Position
from gnnexp.training.evaluate import Evaluation
from gnnexp.training.interruption import Interruption, Wish
from gnnexp.training.state import Earlier, RunState


def train(job: Job, trainer: Trainer[Any], log: EpochLog, probed: Mapping[str, int]) -> str:
    """Train for `train.epochs` epochs from where the run directory's last checkpoint ends; rank 0 writes the records.

    Args:
        job: of the rank.
        trainer: new.
        log: of the run's records.
        probed: bytes that were measured before (`probe_memory`).

    Returns:
        Empty if the run is over; else who asked it to stop, and it has written a checkpoint to go on from.

    Raises:
        DivergedError: the loss is not finite.
    """
    optimizer = make_optimizer(trainer.module, job.experiment.train)
    evaluation = Evaluation(job, trainer)
    memory = {**trainer.memory(), **probed}
    job.comm.ledger.take()  # what was exchanged before belongs to no epoch
    state, interruption = RunState(job, trainer, optimizer), Interruption(job.comm)
    position, earlier, best = state.restore(log)
    with interruption.listening(), job.timer.activity.during("train"):
        while position.epoch < job.experiment.train.epochs:
            piece = run_epoch(job, trainer, optimizer, position, memory, interruption)
            earlier = earlier.then(piece.record)
            wish = piece.wish
            if piece.ended:
                wish, best = finish_epoch(job, position.epoch, earlier, evaluation, log, wish, best)
                position, earlier = Position(position.epoch + 1), Earlier()
            else:
                position = Position(position.epoch, piece.next_step)
            state.save_if(wish, position, earlier, best)
            if wish == Wish.STOP and position.epoch < job.experiment.train.epochs:
                return interruption.asked_by
            interruption.granted(wish)
    return ""


def finish_epoch(
    job: Job, epoch: int, whole: Earlier, evaluation: Evaluation, log: EpochLog, wish: Wish, best: Best
) -> tuple[Wish, Best]:
    """Evaluate and record an epoch; returns what any rank was asked to do, and the best epoch so far."""
    told: Any = job.comm.gather_objects((whole.record, wish, log.recorded(epoch)))
    ranks = [rank for rank, _, _ in told]
    with job.timer.activity.during("evaluate"):
        metrics = {**reduce_epoch(ranks), **evaluation.after(epoch)}
    log.append(epoch, metrics, ranks, step_losses(ranks), whole.resumed)
    if not torch.isfinite(torch.tensor(metrics["loss/train"])):
        raise DivergedError(f"loss is {metrics['loss/train']} in epoch {epoch}: try a smaller train.lr")
    recorded = told[0][2]  # before, where the epoch is done again
    best = best.after(epoch, recorded or metrics, job.task.primary_metric, metrics if recorded else None)
    return Wish(max(wish for _, wish, _ in told)), best


@dataclass(frozen=True)
class Piece:
    """A stretch of an epoch, most often the whole of it.

    Attributes:
        record: this rank's.
        next_step: the step after its last one.
        ended: whether the epoch is over.
        wish: what the ranks were asked to do; the same on all of them if the epoch is not over.
    """

    record: RankRecord
    next_step: int
    ended: bool
    wish: Wish


def run_epoch(
    job: Job, trainer: Trainer[Any], optimizer: torch.optim.Optimizer, start: Position, memory: dict[str, int],
    interruption: Interruption,
) -> Piece:
    """An epoch of this rank from step `start.step` on, timed, to its end or to where the ranks are asked to stop."""
    trainer.module.train()
    reset_host_peak()
    if job.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(job.device)
    losses: list[tuple[Tensor, int]] = []
    timer, step, wish = job.timer, start.step, Wish.NOTHING
    job.comm.barrier()  # what ranks did before it (starting, evaluation, the log) is not this epoch's waiting
    timer.start_epoch()
    with closing(trainer.batches(start.epoch, start.step)) as batches:
        for batch in batches:
            losses.append(trainer.forward_backward(batch))
            trainer.synchronize()
            with timer.phase("update"):
                trainer.update(optimizer)
            step += 1
            if trainer.resumes_within_epoch and (wish := interruption.after_step()) != Wish.NOTHING:
                break
    counts = trainer.end_epoch()
    times = timer.end_epoch().without(counts.untimed)
    if losses and start.step == 0 and wish == Wish.NOTHING and (phase := timer.without_delay):
        raise ConfigError(Problem("hardware.straggler.phase", phase, f"rank {job.comm.rank} has no such phase in this "
                                  "paradigm: nothing was delayed", "name a phase that its record has (docs/record.md)"))
    traffic = job.comm.ledger.take()
    memory = {**memory, "host_peak_bytes": host_peak_bytes()}
    if job.device.type == "cuda":
        memory["device_peak_bytes"] = torch.cuda.max_memory_allocated(job.device)
    numbers = [(float(loss), count) for loss, count in losses]
    record = RankRecord(job.comm.rank, times, traffic, counts.work, memory, numbers, counts.batches)
    return Piece(record, step, wish == Wish.NOTHING, wish or interruption.at_epoch_end())


def make_optimizer(module: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """The optimizer of `train.optimizer`; `weight_decay_on=first` decays the first layer's parameters only."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    first = parameters
    if config.weight_decay_on == "first":
        layers = getattr(module, "layers", None)
        assert layers is not None, "weight_decay_on=first needs a model with layers"
        chosen = {id(p) for p in layers[0].parameters()}
        first = [p for p in parameters if id(p) in chosen]
    rest = [p for p in parameters if not any(p is q for q in first)]
    groups = [{"params": first, "weight_decay": config.weight_decay}]
    if rest:
        groups.append({"params": rest, "weight_decay": 0.0})
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=config.lr)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, lr=config.lr, fused=True)


def probe_memory(job: Job) -> dict[str, int]:
    """Bytes by kind, from one untimed pass over the first batch, of which every tensor is counted; nothing on a GPU.

    On CPU this is the emulated device tier: batch, activations and gradients, beside the held parts. The pass is that
    of a trainer that is thrown away: the one that trains has seen no batch.
    """
    if job.device.type == "cuda":
        return {}
    trainer = job.experiment.paradigm.trainer(job)
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
    if job.tier.peak_bytes:  # work in chunks: what is outside of them is in the host tier
        return {"intermediate_bytes": meter.peak_bytes, "device_peak_bytes": job.tier.peak_bytes}
    parameters = sum(p.numel() * p.element_size() for p in module.parameters())
    return {
        "intermediate_bytes": meter.peak_bytes,
        "device_peak_bytes": meter.peak_bytes + parameters + held.get("buffers_bytes", 0),
    }
