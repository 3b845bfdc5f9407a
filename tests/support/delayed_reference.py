"""A first layer with weights that miss some updates: one worker with plain copies, and ranks step by step."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from copy import copy, deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gnnexp.comm.environment import read_environment
from gnnexp.experiment.build import experiment_of
from gnnexp.graph.graph import Graph
from gnnexp.models.model import Model
from gnnexp.paradigms.base import trainer_of
from gnnexp.testing.exactness import _serial
from gnnexp.training.assemble import Artifacts, assemble
from gnnexp.training.optimization import Optimization


class Step(NamedTuple):
    """What a rank did in a step: its sum of losses, and all gradients before the update."""

    loss: float
    targets: int
    gradients: dict[str, Tensor]


class Epochs(NamedTuple):
    """The steps of a rank, and what it sent: by tag in every epoch."""

    steps: list[Step]
    sent_bytes: list[dict[str, int]]
    rounds: list[dict[str, int]]
    facts: dict[str, Any]


def reference(
    config: Mapping[str, Any],
    graph: Graph,
    delay: int,
    epochs: int,
    *,
    fresh: Sequence[str] = (),
    too_new: bool = False,
) -> list[Step]:
    """One worker. The first layer of batch t of an epoch is a copy from before the update of batch t - delay.

    Args:
        config: of the ranks.
        graph: the whole graph.
        delay: steps.
        epochs: number of epochs.
        fresh: as a control, these parameters of the first layer have their present values.
        too_new: as a control, the copies miss one update less.
    """
    serial = _serial(config, None)
    serial["model"] = {**serial["model"], "kernel": "torch"}
    with tempfile.TemporaryDirectory() as folder:
        job = assemble(experiment_of(serial), Artifacts(graph), Path(folder), read_environment())
        model, trainer = job.model, trainer_of(job)
        parameters = dict(model.named_parameters())
        make, options = getattr(torch.optim, serial["optimizer"]["_target_"].rpartition(".")[2]), serial["optimizer"]
        optimizer = make(parameters.values(), **{k: v for k, v in options.items() if not k.startswith("_")})
        model.train()
        steps = []
        for epoch in range(epochs):
            history: list[nn.Module] = []
            for number, ready in enumerate(list(trainer.batches(epoch))):
                first = model.layers[0]
                history.append(_copied(first))
                old = _copied(history[min(number, max(0, number - delay) + int(too_new))])
                for name in fresh:
                    old.get_parameter(name).data.copy_(first.get_parameter(name).data)
                _set_first(model, old)
                hidden = model.run_layer(0, ready.batch.blocks[0], ready.features, ready.batch.key)
                _set_first(model, first)
                outputs = ready.own.outputs(model(ready.batch, hidden, first=1), job.group_comm)
                loss = job.task.loss_sum(job.task.decode(outputs, ready.own.examples), ready.own.examples)
                count = ready.own.examples.count
                optimizer.zero_grad()
                (loss / count).backward()
                for present, used in zip(first.parameters(), old.parameters(), strict=True):
                    present.grad = used.grad
                gradients = {name: value.grad.clone() for name, value in parameters.items() if value.grad is not None}
                steps.append(Step(loss.item(), count, gradients))
                optimizer.step()
        job.comm.release()
    return steps


def _set_first(model: Model, layer: nn.Module) -> None:
    model.layers[0] = layer
    model.__dict__.pop("stack", None)  # what the model keeps of its layers


def _copied(layer: nn.Module) -> nn.Module:
    """A layer with parameters of its own, and the same kernels."""
    other = copy(layer)
    other._parameters = {name: deepcopy(value) for name, value in layer._parameters.items()}
    other._modules = {name: deepcopy(child) for name, child in layer._modules.items()}
    return other


def epochs_of_rank(config: Mapping[str, Any], make: Callable[[], Graph], epochs: int) -> Epochs:
    """Runs on a rank of a pool."""
    steps, sent_bytes, rounds = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        job = assemble(experiment_of(config), Artifacts(make()), Path(folder), read_environment())
        trainer = trainer_of(job)
        optimization = Optimization(job, trainer)
        trainer.module.train()
        job.comm.ledger.take()
        for epoch in range(epochs):
            for batch in trainer.batches(epoch):
                loss, count = trainer.forward_backward(batch)
                trainer.synchronize()
                gradients = {
                    name: value.grad.clone().cpu()
                    for name, value in trainer.module.named_parameters()
                    if value.grad is not None
                }
                steps.append(Step(float(loss), count, gradients))
                optimization.step()
            trainer.end_epoch()
            traffic = job.comm.ledger.take()
            sent_bytes.append({tag: one.sent_bytes for tag, one in traffic.items()})
            rounds.append({tag: one.rounds for tag, one in traffic.items()})
        facts = dict(trainer.facts())
        job.comm.release()
    return Epochs(steps, sent_bytes, rounds, facts)
