"""Deep gradient compression (Lin et al., ICLR 2018), in short: a rank sends its largest gradients, and keeps the rest.

m_r = m_r + g_r;   ranks send the largest entries of m_r, which become 0 there;   g = sum of what was sent
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

import torch

from gnnexp.components.facts import GraphFacts
from gnnexp.components.plan import Plan, Sizes
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.paradigms.data_parallel import DataParallel, DataParallelTrainer, Loaded
from gnnexp.paradigms.job import Job


@dataclass(frozen=True)
class Largest(DataParallel):
    """Data parallelism that sends the `share` of each rank's gradients with the largest absolute values."""

    share: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ConfigError(Problem("paradigm.share", self.share, "must be above 0, at most 1", "paradigm.share=0.1"))

    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        plan = super().plan(experiment, facts, sizes)
        late = f"a rank sends {self.share:.0%} of its gradients in a step, and the others later or never"
        return plan if self.share == 1 else replace(plan, approximates=late)

    def trainer(self, job: Job) -> LargestTrainer:
        return LargestTrainer(job, self)


class LargestTrainer(DataParallelTrainer):
    resumes_within_epoch = False  # a checkpoint does not have what ranks keep

    def __init__(self, job: Job, options: Largest) -> None:
        super().__init__(job, options.assign)
        self.share = options.share

    def batches(self, epoch: int, first: int = 0) -> Generator[Loaded, None, None]:
        self.kept = torch.zeros_like(self.gradients.flat)
        yield from super().batches(epoch, first)

    def synchronize(self) -> None:
        comm, flat, kept = self.job.comm, self.gradients.flat, self.kept
        with self.job.timer.phase("sync"):
            kept += flat
            places = kept.abs().topk(max(1, round(self.share * flat.numel()))).indices
            values, lengths = kept[places], [places.numel()] * comm.size
            kept[places], flat[:] = 0, 0
            gathered = (comm.all_gather(part, lengths, "gradients") for part in (places, values))
            for where, sent in zip(*gathered, strict=True):
                flat[where] += sent
