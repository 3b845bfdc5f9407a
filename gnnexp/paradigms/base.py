"""The interface of a training paradigm: options, conflicts with other choices, plan, and the trainer of a rank."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from gnnexp.components.facts import GraphFacts
from gnnexp.components.locate import outdated_members, target_of
from gnnexp.components.plan import Drawn
from gnnexp.errors import ConfigError
from gnnexp.experiment.experiment import Experiment, Method
from gnnexp.paradigms.checks import has_pairs
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.trainer import Trainer


class Paradigm(Method):
    """A way to train on several devices.

    Attributes:
        always_partitioned: whether the paradigm needs a partition, whatever the other choices are.
    """

    always_partitioned: ClassVar[bool] = False

    def wants_partition(self, experiment: Experiment) -> bool:
        """Whether the run needs a partition."""
        return self.always_partitioned or experiment.feature_store.needs_partition

    @abstractmethod
    def trainer(self, job: Job) -> Trainer[Any]:
        """The trainer of this rank. Ranks may communicate to make it."""


def trainer_of(job: Job) -> Trainer[Any]:
    """The trainer of this rank. Ranks may communicate to make it.

    Raises:
        ConfigError: its class has members of before 0.2.0. The launcher sees those of an annotated class only.
    """
    paradigm = job.experiment.paradigm
    assert isinstance(paradigm, Paradigm), "a command has no job"
    trainer = paradigm.trainer(job)
    outdated = outdated_members("paradigm._target_", target_of(paradigm), type(trainer))
    ConfigError.raise_all([] if outdated is None else [outdated])
    return trainer


def drawn_from_graph(experiment: Experiment, facts: GraphFacts) -> Drawn:
    """Size limits of the topology and of the batches of a rank that samples from the whole graph."""
    targets, seeds = facts.num_train, 1
    if has_pairs(experiment) and facts.num_links is not None:  # both ends of every link and of its negatives
        targets, seeds = facts.num_links, 2 * (1 + experiment.task.negatives_per_link)
    size = experiment.train.batch_size
    share = min(facts.num_nodes, seeds * -(-min(size or targets, targets) // experiment.num_ranks))
    return Drawn(facts.num_nodes, facts.num_edges, share, facts.num_nodes)
