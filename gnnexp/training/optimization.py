"""The part of a training step after the backward pass: clipping, optimizer step, and learning rate schedule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.optimization import reads_metric
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.trainer import Trainer


class Optimization:
    """Clips gradients, steps the optimizer, and follows the schedule of the learning rate.

    Trained rows have a separate optimizer in their feature store. Both optimizers follow the same schedule.

    Args:
        job: job of this rank.
        trainer: computes the gradients.
    """

    def __init__(self, job: Job, trainer: Trainer[Any]) -> None:
        experiment, rows = job.experiment, job.trained_rows
        self.optimizer = make_optimizer(trainer.module, experiment)
        self._trainer, self._schedule, self._max_norm = trainer, experiment.schedule, experiment.train.clip_norm
        self._optimizers = [self.optimizer, *([] if rows is None else [rows.optimizer])]
        self._schedulers = [] if self._schedule is None else [self._schedule.make(one) for one in self._optimizers]

    @property
    def learning_rates(self) -> dict[str, float]:
        """`train/lr` for the record if there is a schedule, else empty."""
        return {"train/lr": float(self.optimizer.param_groups[0]["lr"])} if self._schedulers else {}

    def step(self) -> None:
        """Clip the gradients, step parameters and trained rows, and drop the gradients."""
        if self._max_norm is not None:
            self._trainer.clip_gradients(self._max_norm)
        self._trainer.update(self.optimizer)
        if self._schedule is not None and self._schedule.interval == "step":
            for scheduler in self._schedulers:
                scheduler.step()

    def end_epoch(self, metrics: Mapping[str, float]) -> None:
        """Advance a schedule that counts epochs. If it reads a metric that the epoch does not have, it stays."""
        if self._schedule is None or self._schedule.interval == "step":
            return
        for scheduler in self._schedulers:
            if not reads_metric(scheduler):
                scheduler.step()
            elif self._schedule.monitor in metrics:
                scheduler.step(metrics[self._schedule.monitor])  # type: ignore[arg-type]

    def state_dict(self) -> dict[str, Any]:
        """Current options of the optimizers, and the state of the schedule. Empty without a schedule."""
        if not self._schedulers:
            return {}
        groups = [
            [{key: value for key, value in group.items() if key != "params"} for group in one.param_groups]
            for one in self._optimizers
        ]
        return {"groups": groups, "schedulers": [_plain(one.state_dict()) for one in self._schedulers]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        if not self._schedulers:
            return
        for optimizer, groups in zip(self._optimizers, state["groups"], strict=True):
            for group, options in zip(optimizer.param_groups, groups, strict=True):
                group.update(options)
        for scheduler, one in zip(self._schedulers, state["schedulers"], strict=True):
            scheduler.load_state_dict(one)


def make_optimizer(module: nn.Module, experiment: Experiment) -> Optimizer:
    """The optimizer of a module's parameters. With `weight_decay_on=first`, only the first layer has weight decay."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    if experiment.train.weight_decay_on == "all":
        return experiment.optimizer.make([{"params": parameters}])
    layers = getattr(module, "layers", None)
    assert layers is not None, "weight_decay_on=first needs a model with layers"
    chosen = {id(p) for p in layers[0].parameters()}
    groups: list[dict[str, Any]] = [{"params": [p for p in parameters if id(p) in chosen]}]
    if rest := [p for p in parameters if id(p) not in chosen]:
        groups.append({"params": rest, "weight_decay": 0.0})
    return experiment.optimizer.make(groups)


def _plain(state: Mapping[str, Any]) -> dict[str, Any]:
    """State without callables, because a checkpoint holds only tensors and plain values."""
    return {key: value for key, value in state.items() if not callable(value)}
