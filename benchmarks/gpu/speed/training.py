"""Trains epochs of a configuration on one rank, and says why a configuration cannot be trained here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gnnexp.comm.environment import Environment
from gnnexp.experiment.build import experiment_of, read
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition
from gnnexp.measure.phases import PhaseTimes
from gnnexp.measure.trace import tracing
from gnnexp.paradigms.base import trainer_of
from gnnexp.testing.steps import optimizer, small_config
from gnnexp.training.assemble import Artifacts, assemble
from gnnexp.training.optimization import Optimization

MODELS: Mapping[str, Mapping[str, Any]] = {
    "sage": {"_target_": "gnnexp.models.sage.SAGEOptions", "hidden": 256},
    "gat": {"_target_": "gnnexp.models.gat.GATOptions", "hidden": 256, "heads": 4},
    "gcn": {"_target_": "gnnexp.models.gcn.GCNOptions", "hidden": 128},
}


@dataclass(frozen=True)
class Trained:
    """An epoch.

    Attributes:
        times: of its phases.
        steps: number of steps.
        work: counts of the record.
        trace: figures of `measure.trace`, empty without a trace.
        loss: sum of the losses of the last step.
    """

    times: PhaseTimes
    steps: int
    work: Mapping[str, int]
    trace: Mapping[str, float]
    loss: float


def sampled(model: str, kernel: str, *, steps: int, quick: bool, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """The configuration of mini-batches in float32 on the GPU: three layers, 1024 targets, fanouts 15, 10, 5.

    Args:
        model: name in `MODELS`.
        kernel: of its layers.
        steps: of an epoch.
        quick: whether all sizes are small, and an epoch has one step.
        changes: other keys: values of groups, or values without a group.
    """
    batch_size, fanouts, steps = (4, [2, 2, 2], 1) if quick else (1024, [15, 10, 5], steps)
    sizes = {"hidden": 16} if quick else {}
    groups = {group: value for group, value in changes.items() if isinstance(value, Mapping)}
    alone = {key: value for key, value in changes.items() if key not in groups}
    train = {
        "batch_size": batch_size,
        "steps_per_epoch": steps,
        "dtype": "float32",
        "epochs": 100,
        "eval_every": None,
        **groups.pop("train", {}),
    }
    config = small_config(
        {**MODELS[model], **sizes, "layers": len(fanouts), "kernel": kernel, "input_dropout": 0.0},
        hardware={"device": "cuda"},
        train=train,
        sampler={"fanouts": fanouts, **groups.pop("sampler", {})},
        **groups,
    )
    return {**config, "seed": 0, "optimizer": optimizer(fused=True), **alone}


def refusal(config: Mapping[str, Any]) -> str:
    """Why the configuration cannot be trained; empty if it can."""
    return "; ".join(f"{problem.key}={problem.value}: {problem.allowed}" for problem in read(config).problems)


class Training:
    """Training on this rank, epoch by epoch.

    Args:
        config: resolved configuration.
        graph: the graph.
        partition: the partition, if the paradigm needs one.
    """

    def __init__(self, config: Mapping[str, Any], graph: Graph, partition: Partition | None = None) -> None:
        self._job = job = assemble(experiment_of(config), Artifacts(graph, partition), Path(), Environment())
        self._trainer = trainer_of(job)
        self._optimization = Optimization(job, self._trainer)
        self._trainer.module.train()

    def epoch(self, epoch: int, trace: Path | None = None) -> Trained:
        """Train an epoch, and trace it into the file `trace`, if there is one."""
        job, trainer, loss, steps = self._job, self._trainer, torch.zeros(()), 0
        with tracing(job.device, trace) as figures:
            job.timer.start_epoch()
            for batch in trainer.batches(epoch):
                loss, _ = trainer.forward_backward(batch)
                trainer.synchronize()
                with job.timer.phase("update"):
                    self._optimization.step()
                steps += 1
            counts = trainer.end_epoch()
            times = job.timer.end_epoch()
        return Trained(times, steps, counts.work, figures, float(loss))

    def release(self) -> None:
        """Leave the groups of ranks."""
        self._job.comm.release()


def epochs_of(
    config: Mapping[str, Any],
    graph: Graph,
    count: int,
    *,
    partition: Partition | None = None,
    trace: Path | None = None,
) -> list[Trained]:
    """`count` epochs after one that warms up. The last one is traced into the file `trace`, if there is one."""
    training = Training(config, graph, partition)
    found = [training.epoch(epoch, trace if epoch == count else None) for epoch in range(count + 1)]
    training.release()
    return found[1:]
