"""A way of training on several devices: its options, what they do not go with, what they want, and who trains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.plan import Drawn, GraphFacts, Plan, Sizes
from gnnexp.job import Job
from gnnexp.paradigms.checks import pairs
from gnnexp.paradigms.trainer import Trainer


@dataclass(frozen=True)
class Paradigm(ABC):
    """A subclass is a frozen dataclass whose fields are its options, under the names that its YAML file has.

    Attributes:
        always_partitioned: whether something is placed by owner, whatever the other choices are.
        takes_vertex_cut: whether edges of a vertex may have different owners (`Partitioner.vertex_cut`).
    """

    always_partitioned: ClassVar[bool] = False
    takes_vertex_cut: ClassVar[bool] = False

    def wants_partition(self, experiment: Experiment) -> bool:
        """Whether something is placed by owner."""
        return self.always_partitioned or experiment.feature_store.options.needs_partition

    def ranks_together(self, experiment: Experiment) -> int:
        """Consecutive ranks that share the parts of one partition; all of them, unless a paradigm forms groups."""
        return experiment.num_ranks

    def check(self, experiment: Experiment) -> list[Problem]:
        """Conflicts of this paradigm with the other choices of the experiment."""
        return []

    @abstractmethod
    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        """What is wanted for an experiment on a graph.

        Args:
            experiment: checked.
            facts: of the graph.
            sizes: of the parts, where ranks work on parts that have been cut.
        """

    @abstractmethod
    def trainer(self, job: Job) -> Trainer[Any]:
        """Who trains on this rank; ranks may communicate."""


def drawn_from_graph(experiment: Experiment, facts: GraphFacts) -> Drawn:
    """What a rank draws its batches from, where that is the whole graph."""
    targets, seeds = facts.num_train, 1
    if pairs(experiment) and facts.num_links is not None:  # both ends of every link and of its negatives
        targets, seeds = facts.num_links, 2 * (1 + experiment.task.options.negatives_per_link)
    size = experiment.train.batch_size
    share = min(facts.num_nodes, seeds * -(-min(size or targets, targets) // experiment.num_ranks))
    return Drawn(facts.num_nodes, facts.num_edges, share, facts.num_nodes)
