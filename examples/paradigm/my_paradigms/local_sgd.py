"""Local SGD (Stich, ICLR 2019): every rank trains a model of its own for a few steps, then all models are averaged.

    for every step:
        w_r = w_r - lr * N * (sum of the gradients of this rank's targets) / (targets of the global batch)
        every `sync_every` steps, and at the end of an epoch:   w_r = mean of w over all N ranks

With `sync_every=1` the mean of the steps is the step of data parallelism: then, and on one rank, it is exact.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

import torch

from gnnexp.errors import ConfigError, Problem
from gnnexp.job import Job
from gnnexp.paradigms.checks import plain_features, whole_topology
from gnnexp.paradigms.data_parallel import DataParallel, Loaded


class LocalSGD(DataParallel):
    """Data parallelism whose ranks meet every few steps.

    Args:
        sync_every: steps between two averages.
    """

    # Models differ from rank to rank within an epoch, and a checkpoint holds one: a run stops between epochs.
    resumes_within_epoch = False

    def __init__(self, sync_every: int = 8) -> None:
        if sync_every < 1:
            raise ConfigError(Problem("paradigm.sync_every", sync_every, "must be at least 1", "paradigm.sync_every=8"))
        super().__init__()
        self.sync_every, self.exact = sync_every, sync_every == 1
        self.approximates = "" if self.exact else f"ranks train apart for up to {sync_every} steps, then are averaged"

    def check(self, config: Mapping[str, Any]) -> list[Problem]:
        """SGD keeps nothing between steps; another optimizer would have moments that differ from rank to rank."""
        problems = [*super().check(config), *plain_features(config, "local_sgd"), *whole_topology(config, "local_sgd")]
        optimizer = config["train"].get("optimizer", "adam")
        if optimizer != "sgd":
            problems.append(Problem("train.optimizer", optimizer, "local_sgd averages models, not an optimizer's state",
                                    "set train.optimizer=sgd, and a train.lr that fits it (0.1)"))
        return problems

    def setup(self, job: Job) -> None:
        """Take the parts; parameters of all ranks are the same now."""
        super().setup(job)
        self._steps = 0
        if job.comm.size == 1:
            self.exact, self.approximates = True, ""

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
