"""The training loop: explicit, because order and synchronisation points are what is being published."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gnnexp.config.schema import TrainConfig
from gnnexp.errors import RunError
from gnnexp.evaluate import Evaluation
from gnnexp.job import Job
from gnnexp.measure.memory import TensorMeter, host_peak_bytes, reset_host_peak
from gnnexp.measure.record import RankRecord, reduce_epoch, step_losses
from gnnexp.paradigms.base import Paradigm
from gnnexp.records import EpochLog


def train(job: Job, paradigm: Paradigm[Any], log: EpochLog) -> None:
    """Train for `train.epochs` epochs; rank 0 writes one record per epoch.

    Raises:
        RunError: the loss is not finite.
    """
    optimizer = make_optimizer(paradigm.module, job.run.train)
    evaluation = Evaluation(job, paradigm)
    memory = probe_memory(job, paradigm)
    for epoch in range(job.run.train.epochs):
        record = run_epoch(job, paradigm, optimizer, epoch, memory)
        ranks = [rank for rank in job.comm.gather_objects(record) if isinstance(rank, RankRecord)]
        metrics = {**reduce_epoch(ranks), **evaluation.after(epoch)}
        log.append(epoch, metrics, ranks, step_losses(ranks))
        if not torch.isfinite(torch.tensor(metrics["loss/train"])):
            raise RunError(f"loss is {metrics['loss/train']} in epoch {epoch}: try a smaller train.lr")


def run_epoch(
    job: Job, paradigm: Paradigm[Any], optimizer: torch.optim.Optimizer, epoch: int, memory: dict[str, int]
) -> RankRecord:
    """One epoch of this rank, timed."""
    paradigm.module.train()
    reset_host_peak()
    if job.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(job.device)
    losses: list[tuple[Tensor, int]] = []
    timer = job.timer
    job.comm.barrier()  # what ranks did before it (starting, evaluation, the log) is not this epoch's waiting
    timer.start_epoch()
    for batch in paradigm.batches(epoch):
        losses.append(paradigm.forward_backward(batch))
        paradigm.synchronize()
        with timer.phase("update"):
            optimizer.step()
            paradigm.clear_gradients()
    work, batches = paradigm.end_epoch(), paradigm.batch_counts()
    times = timer.end_epoch()
    traffic = job.comm.ledger.take()
    memory = {**memory, "host_peak_bytes": host_peak_bytes()}
    if job.device.type == "cuda":
        memory["device_peak_bytes"] = torch.cuda.max_memory_allocated(job.device)
    numbers = [(float(loss), count) for loss, count in losses]
    return RankRecord(job.comm.rank, times, traffic, work, memory, numbers, batches)


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


def probe_memory(job: Job, paradigm: Paradigm[Any]) -> dict[str, int]:
    """Bytes by kind, from one untimed pass over the first batch: every tensor it makes is counted.

    On CPU this is the emulated device tier: batch, activations and gradients, beside the held parts.
    """
    held = paradigm.memory()
    if job.device.type == "cuda":
        return held
    paradigm.module.train()
    batches = paradigm.batches(0)
    first = next(batches)
    existing = [t for p in paradigm.module.parameters() for t in (p, p.grad) if isinstance(t, Tensor)]
    with TensorMeter(existing) as meter:
        paradigm.forward_backward(first)
    batches.close()
    paradigm.clear_gradients()
    paradigm.end_epoch()
    paradigm.batch_counts()
    paradigm.forget_batches()
    job.comm.ledger.take()
    parameters = sum(p.numel() * p.element_size() for p in paradigm.module.parameters())
    return {
        **held,
        "intermediate_bytes": meter.peak_bytes,
        "device_peak_bytes": meter.peak_bytes + parameters + held.get("buffers_bytes", 0),
    }
