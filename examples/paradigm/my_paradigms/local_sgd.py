"""Local SGD (Stich, ICLR 2019): every rank trains its own model for a few steps, then all models are averaged.

    for every step:
        w_r = w_r - lr * N * (sum of the gradients of this rank's targets) / (targets of the global batch)
        every `sync_every` steps, and at the end of an epoch:   w_r = mean of w over all N ranks

With `sync_every=1` the mean of the ranks' steps is the step of data parallelism. So it is exact then, and on one rank.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import torch

from gnnexp.components.facts import GraphFacts
from gnnexp.components.plan import Plan, Sizes
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.optimization import entries_of
from gnnexp.paradigms.checks import plain_feature_problems, whole_topology_problems
from gnnexp.paradigms.data_parallel import DataParallel, DataParallelTrainer, Loaded
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.trainer import Trainer


@dataclass(frozen=True)
class LocalSGD(DataParallel):
    """Data parallelism that averages the ranks' models every few steps.

    Attributes:
        sync_every: number of steps between two averages.
    """

    sync_every: int = 8

    def __post_init__(self) -> None:
        if self.sync_every < 1:
            raise ConfigError(
                Problem("paradigm.sync_every", self.sync_every, "must be at least 1", "paradigm.sync_every=8")
            )

    def check(self, experiment: Experiment) -> list[Problem]:
        """Only SGD is allowed: it keeps no state. The moments of another optimizer would differ between the ranks."""
        problems = [
            *super().check(experiment),
            *plain_feature_problems(experiment, "local_sgd"),
            *whole_topology_problems(experiment, "local_sgd"),
        ]
        if entries_of(experiment.optimizer):
            problems.append(
                Problem(
                    "optimizer",
                    experiment.optimizer.target,
                    "local_sgd averages models, not an optimizer's state",
                    "choose optimizer=sgd, and an optimizer.lr that fits it (0.1)",
                )
            )
        if experiment.train.clip_norm is not None:
            problems.append(
                Problem(
                    "train.clip_norm",
                    experiment.train.clip_norm,
                    "the norm of a rank's own gradients is not that of all of them",
                    "set train.clip_norm=null",
                )
            )
        return problems

    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        """The plan of data parallelism, and what is approximated. A single rank approximates nothing."""
        plan = super().plan(experiment, facts, sizes)
        if experiment.num_ranks == 1 or self.sync_every == 1:
            return plan
        apart = f"ranks train separate models for up to {self.sync_every} steps, then average them"
        return replace(plan, approximates=apart)

    def trainer(self, job: Job) -> Trainer[Any]:
        """A trainer that samples the micro-batches of data parallelism."""
        return LocalSGDTrainer(job, self)


class LocalSGDTrainer(DataParallelTrainer):
    """Every rank trains its own model between two averages."""

    # Models differ between ranks within an epoch, and a checkpoint holds one model. So a run stops between epochs only.
    resumes_within_epoch = False

    def __init__(self, job: Job, options: LocalSGD) -> None:
        super().__init__(job, options.assign)
        self.sync_every, self._steps = options.sync_every, 0

    def batches(self, epoch: int, first: int = 0) -> Generator[Loaded, None, None]:
        """The batches of data parallelism. After the last one, the models are averaged."""
        self._steps = 0
        yield from super().batches(epoch, first)
        if self._steps % self.sync_every:
            self._average()

    def synchronize(self) -> None:
        """Exchange nothing. Scale gradients of the global mean loss to those of this rank's share."""
        self.gradients.flat.mul_(self.job.comm.size)

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """Make one step on this rank, and average the models every `sync_every` steps."""
        super().update(optimizer)
        self._steps += 1
        if self._steps % self.sync_every == 0:
            self._average()

    @torch.no_grad()
    def _average(self) -> None:
        """Average all parameters with one all-reduce."""
        comm, parameters = self.job.comm, [p for p in self.job.model.parameters() if p.requires_grad]
        with self.job.timer.phase("sync"):
            flat = torch.cat([parameter.flatten() for parameter in parameters]) / comm.size
            comm.all_reduce(flat, "parameters")
            for parameter, mean in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
                parameter.copy_(mean.view_as(parameter))
