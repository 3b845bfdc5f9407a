"""Local SGD (Stich, ICLR 2019): every rank trains a model of its own for a few steps, then all models are averaged.

    for every step:
        w_r = w_r - lr * N * (sum of the gradients of this rank's targets) / (targets of the global batch)
        every `sync_every` steps, and at the end of an epoch:   w_r = mean of w over all N ranks

With `sync_every=1` the mean of the steps is the step of data parallelism: then, and on one rank, it is exact.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import torch

from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.plan import GraphFacts, Plan, Sizes
from gnnexp.job import Job
from gnnexp.paradigms.checks import plain_features, whole_topology
from gnnexp.paradigms.data_parallel import DataParallel, DataParallelTrainer, Loaded
from gnnexp.paradigms.trainer import Trainer


@dataclass(frozen=True)
class LocalSGD(DataParallel):
    """Data parallelism whose ranks meet every few steps.

    Attributes:
        sync_every: steps between two averages.
    """

    sync_every: int = 8

    def __post_init__(self) -> None:
        if self.sync_every < 1:
            raise ConfigError(Problem("paradigm.sync_every", self.sync_every, "must be at least 1",
                                      "paradigm.sync_every=8"))

    def check(self, experiment: Experiment) -> list[Problem]:
        """SGD keeps nothing between steps; another optimizer would have moments that differ from rank to rank."""
        problems = [*super().check(experiment), *plain_features(experiment, "local_sgd"),
                    *whole_topology(experiment, "local_sgd")]
        optimizer = experiment.train.optimizer
        if optimizer != "sgd":
            problems.append(Problem("train.optimizer", optimizer, "local_sgd averages models, not an optimizer's state",
                                    "set train.optimizer=sgd, and a train.lr that fits it (0.1)"))
        return problems

    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        """That of data parallelism; a single rank has nobody to differ from."""
        plan = super().plan(experiment, facts, sizes)
        if experiment.num_ranks == 1 or self.sync_every == 1:
            return plan
        apart = f"ranks train apart for up to {self.sync_every} steps, then are averaged"
        return replace(plan, approximates=apart)

    def trainer(self, job: Job) -> Trainer[Any]:
        """Micro-batches of data parallelism."""
        return LocalSGDTrainer(job, self)


class LocalSGDTrainer(DataParallelTrainer):
    """A model of the rank's own between two averages."""

    # Models differ from rank to rank within an epoch, and a checkpoint holds one: a run stops between epochs.
    resumes_within_epoch = False

    def __init__(self, job: Job, options: LocalSGD) -> None:
        super().__init__(job, options.assign)
        self.sync_every, self._steps = options.sync_every, 0

    def batches(self, epoch: int, first: int = 0) -> Generator[Loaded, None, None]:
        """Those of data parallelism; after the last one the models become one."""
        self._steps = 0
        yield from super().batches(epoch, first)
        if self._steps % self.sync_every:
            self._average()

    def synchronize(self) -> None:
        """Nothing is exchanged; gradients of the global mean loss become those of this rank's share of it."""
        self.gradients.flat.mul_(self.job.comm.size)

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """A step of the rank's own, and every so often the average."""
        super().update(optimizer)
        self._steps += 1
        if self._steps % self.sync_every == 0:
            self._average()

    @torch.no_grad()
    def _average(self) -> None:
        """One all-reduce of all parameters."""
        comm, parameters = self.job.comm, [p for p in self.job.model.parameters() if p.requires_grad]
        with self.job.timer.phase("sync"):
            flat = torch.cat([parameter.flatten() for parameter in parameters]) / comm.size
            comm.all_reduce(flat, "parameters")
            for parameter, mean in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
                parameter.copy_(mean.view_as(parameter))
