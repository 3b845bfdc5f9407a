"""DGL's full-graph script (single-device DGL in HongTu's Table 5): every layer runs on the whole graph."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gnnexp.components.facts import GraphFacts
from gnnexp.components.options import rule_problems
from gnnexp.components.plan import Plan, Sizes
from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.paradigms.base import Paradigm, drawn_from_graph
from gnnexp.paradigms.checks import edge_weight_problems
from gnnexp.paradigms.dgl_reference import DGLTrainer, dgl_needs, dgl_problems, epoch_seed
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.trainer import EpochCounts, Trainer
from gnnexp.tasks.base import Examples


@dataclass(frozen=True)
class DGLFullGraph(Paradigm):
    """One rank trains all vertices, in one step per epoch."""

    def check(self, experiment: Experiment) -> list[Problem]:
        """Conflicts: only one worker, one batch, and a model that DGL has."""
        ranks, size = experiment.num_ranks, experiment.train.batch_size
        return dgl_problems(experiment, "dgl_full_graph") + rule_problems(
            (ranks == 1, "hardware.workers", ranks, "dgl_full_graph runs on one worker", "set hardware.workers=1"),
            (
                size is None,
                "train.batch_size",
                size,
                "dgl_full_graph trains on all training vertices at once",
                "set train.batch_size=null",
            ),
        )

    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        """The plan, with memory for DGL's copies of graph and features."""
        return Plan(
            None,
            drawn_from_graph(experiment, facts),
            needs=dgl_needs(facts),
            problems=tuple(edge_weight_problems(facts, "dgl_full_graph")),
            approximates="dropout masks are torch's; otherwise serial full-graph training",
        )

    def trainer(self, job: Job) -> Trainer[Any]:
        """The trainer of DGL's script."""
        return DGLFullGraphTrainer(job)


class DGLFullGraphTrainer(DGLTrainer[Tensor]):
    """Full-graph training with DGL's graph and convolutions."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.graph.create_formats_()
        self.steps = 0

    def batches(self, epoch: int, first: int = 0) -> Generator[Tensor, None, None]:
        """One batch of all training vertices. Each epoch seeds dropout, so that epochs do not depend on each other."""
        torch.manual_seed(epoch_seed(self.job.experiment.seed, epoch, 0))
        yield self.job.task.targets()

    def forward_backward(self, batch: Tensor) -> tuple[Tensor, int]:
        """Compute gradients of the mean loss over all training vertices."""
        timer, count = self.job.timer, int(batch.numel())
        with timer.phase("forward"):
            logits = self.stack([self.graph] * len(self.stack.convs), self.features)
            loss = self.job.task.loss_sum(logits[batch], Examples(batch, count))
        with timer.phase("backward"):
            (loss / count).backward()  # type: ignore[no-untyped-call]
        self.steps += 1
        return loss.detach(), count

    def end_epoch(self) -> EpochCounts:
        """The counts of the epoch: every layer computes every vertex and edge."""
        layers = len(self.stack.convs) * self.steps
        self.steps = 0
        return EpochCounts(
            {"edges_computed": layers * self.graph.num_edges(), "vertices_computed": layers * self.graph.num_nodes()}
        )
