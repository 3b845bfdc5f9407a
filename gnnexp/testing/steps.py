"""Trains step by step, in the process of a test or on a rank of a pool."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gnnexp.comm.environment import read_environment
from gnnexp.experiment.build import experiment_of
from gnnexp.feature_stores.embedding import EmbeddingStore
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition
from gnnexp.paradigms.base import trainer_of
from gnnexp.paradigms.job import Job
from gnnexp.training.assemble import Artifacts, assemble
from gnnexp.training.optimization import Optimization

MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"_target_": "gnnexp.models.gcn.GCNOptions"},
    "sage": {"_target_": "gnnexp.models.sage.SAGEOptions"},
    "gin": {"_target_": "gnnexp.models.gin.GINOptions"},
    "gat": {"_target_": "gnnexp.models.gat.GATOptions", "heads": 2, "attention_dropout": 0.3},
}


def optimizer(name: str = "Adam", **options: object) -> dict[str, Any]:
    """The group `optimizer` for a class of `torch.optim`. The default learning rate is 0.01."""
    return {"_target_": f"torch.optim.{name}", "_partial_": True, "lr": 0.01, **options}


def small_config(model: Mapping[str, Any], **changes: Mapping[str, Any]) -> dict[str, Any]:
    """A resolved configuration with float64, batches of 8 targets, and fanouts 4 and 3.

    Args:
        model: `_target_` and arguments. Defaults: hidden size 16, 2 layers, dropout of inputs and hidden layers.
        changes: values that are merged into groups, such as `train={"dtype": "float32"}`.
    """
    config: dict[str, Any] = {
        "dataset": {"_target_": "gnnexp.datasets.published.digits.Digits"},
        "partitioner": {"_target_": "gnnexp.partitioners.random.RandomPartitioner"},
        "tracker": {"_target_": "gnnexp.trackers.none.NoTracker"},
        "sampler": {"_target_": "gnnexp.samplers.fused.FusedOptions", "fanouts": [4, 3], "key": "global"},
        "feature_store": {"_target_": "gnnexp.feature_stores.local.LocalOptions"},
        "model": {"hidden": 16, "layers": 2, "dropout": 0.5, "input_dropout": 0.2, **model},
        "task": {"_target_": "gnnexp.tasks.node_classification.NodeClassificationOptions"},
        "paradigm": {"_target_": "gnnexp.paradigms.data_parallel.DataParallel"},
        "hardware": {
            "launcher": {"_target_": "gnnexp.launchers.local.LocalLauncher"},
            "nodes": 1,
            "workers": 1,
            "device": "cpu",
            "threads": 1,
        },
        "optimizer": optimizer(fused=True),
        "train": {"epochs": 1, "batch_size": 8, "dtype": "float64", "overlap": False},
        "seed": 3,
    }
    for group, values in changes.items():
        config[group] = {**config[group], **values}
    return config


@dataclass(frozen=True)
class Curve:
    """Losses, gradients and counts of a rank.

    Attributes:
        losses: for each step, the sum of losses of this rank's targets, and their number.
        gradients: gradients of the first step by parameter, on the host; `rows`: gradients of all trained rows.
        sent_bytes: bytes that this rank sent in all steps, by tag.
        rounds: rounds of all steps, by tag.
        work: counters of the trainer over all steps.
    """

    losses: list[tuple[float, int]]
    gradients: dict[str, torch.Tensor]
    sent_bytes: dict[str, int]
    rounds: dict[str, int]
    work: dict[str, int]


def run_steps(
    config: Mapping[str, Any],
    graph: Graph,
    steps: int,
    partition: Partition | None = None,
    frequency: torch.Tensor | None = None,
) -> Curve:
    """Train some steps on this rank.

    Args:
        config: resolved configuration.
        graph: the whole graph.
        steps: number of global batches, over as many epochs as needed.
        partition: the partition, if the paradigm needs one.
        frequency: `[V]` how often each vertex is read, for caches.
    """
    with tempfile.TemporaryDirectory() as folder:
        artifacts = Artifacts(graph, partition, frequency)
        job = assemble(experiment_of(config), artifacts, Path(folder), read_environment())
        trainer = trainer_of(job)
        optimization = Optimization(job, trainer)
        losses: list[tuple[float, int]] = []
        gradients: dict[str, torch.Tensor] = {}
        job.comm.ledger.take()
        epoch = 0
        trainer.module.train()
        while len(losses) < steps:
            for batch in trainer.batches(epoch):
                loss, count = trainer.forward_backward(batch)
                trainer.synchronize()
                if not gradients:
                    gradients = {
                        name: p.grad.clone().cpu()
                        for name, p in trainer.module.named_parameters()
                        if p.grad is not None
                    } | _row_gradients(job)
                optimization.step()
                losses.append((float(loss), count))
                if len(losses) == steps:
                    break
            optimization.end_epoch({})
            epoch += 1
        traffic = job.comm.ledger.take()
        work = trainer.end_epoch().work
        job.comm.release()
    return Curve(
        losses,
        gradients,
        {t: v.sent_bytes for t, v in traffic.items()},
        {t: v.rounds for t, v in traffic.items()},
        work,
    )


def _row_gradients(job: Job) -> dict[str, torch.Tensor]:
    """Gradients of all trained rows `[V, D]`, joined from all ranks; empty if rows are not trained."""
    store = job.trained_rows
    if store is None:
        return {}
    assert isinstance(store, EmbeddingStore)
    table = store._table
    own = torch.zeros_like(table, requires_grad=False) if table.grad is None else table.grad.to_dense()
    pieces: Any = job.comm.gather_objects((store._ids.cpu(), store.dims, own.cpu()))
    whole = torch.zeros(job.graph.num_nodes, store.options.dim, dtype=table.dtype)
    for ids, columns, piece in pieces:
        whole[ids, columns] += piece
    return {"rows": whole}


def global_losses(curves: list[Curve]) -> list[float]:
    """Mean loss of each global batch."""
    steps = zip(*(curve.losses for curve in curves), strict=True)
    return [sum(loss for loss, _ in step) / sum(count for _, count in step) for step in steps]


def worst(errors: Iterable[float]) -> float:
    """The largest error, or NaN if one is NaN, which Python's `max` would ignore."""
    return float(torch.tensor([0.0, *errors], dtype=torch.float64).max())


def worst_loss_error(found: Iterable[float], expected: Iterable[float]) -> float:
    """Largest relative difference of losses over all steps; NaN if a loss is NaN."""
    return worst(abs(a - b) / abs(b) for a, b in zip(found, expected, strict=True))


def worst_gradient_error(curve: Curve, reference: Curve) -> float:
    """Largest error of a gradient, relative to the largest entry of its tensor, or to 1e-3 of the largest of all.

    If all gradients of the reference are zero, there is no scale: the error is 0 if the others are zero too, else inf.
    It is NaN if a gradient has a NaN.
    """
    largest = {name: _largest(expected) for name, expected in reference.gradients.items()}
    floor = 1e-3 * max(largest.values(), default=0.0)
    errors = []
    for name, expected in reference.gradients.items():
        error, scale = _largest(curve.gradients[name] - expected), max(largest[name], floor)
        errors.append(error / scale if scale else math.inf if error else 0.0)
    return worst(errors)


def _largest(values: torch.Tensor) -> float:
    """Largest absolute value; NaN if one is NaN, 0 if there are no values."""
    return float(values.abs().max()) if values.numel() else 0.0
