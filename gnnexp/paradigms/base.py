"""The interface of a training paradigm: options, conflicts with other choices, plan, and the trainer of a rank."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from gnnexp.components.facts import GraphFacts
from gnnexp.errors import Problem, Refusal
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.plan import Drawn, Plan, Sizes
from gnnexp.job import Job
from gnnexp.paradigms.checks import pairs
from gnnexp.paradigms.trainer import Trainer


@dataclass(frozen=True)
class Method(ABC):
    """How a run is made: a `Paradigm` of gnnexp trains, or a `Command` of somebody else does.

    A subclass is a frozen dataclass. Its fields are its options, with the names of its YAML file.

    Attributes:
        version: raised when the same options give other results or counts, or a default changes (CONTRIBUTING.md).
        takes_vertex_cut: whether in-edges of a vertex may have different owners (`Partitioner.vertex_cut`).
        reads_rows_on_gpu: whether each rank reads whole rows of features for its batches: they may be on its GPU.
        reads_narrow_rows: whether all rows of features come from the store onto the device, which may widen them there.
        is_command: whether a command of somebody else trains (`gnnexp.paradigms.external.command.Command`).
    """

    version: ClassVar[int] = 1
    takes_vertex_cut: ClassVar[bool] = False
    reads_rows_on_gpu: ClassVar[bool] = False
    reads_narrow_rows: ClassVar[bool] = False
    is_command: ClassVar[bool] = False

    @abstractmethod
    def wants_partition(self, experiment: Experiment) -> bool:
        """Whether the run needs a partition."""

    def ranks_together(self, experiment: Experiment) -> int:
        """Number of consecutive ranks that share the parts of one partition: all ranks by default.

        With groups (`group_size` of split_parallel), these are the ranks of one group.
        """
        return experiment.num_ranks

    def check(self, experiment: Experiment) -> list[Problem]:
        """Conflicts with the other choices of the experiment."""
        return []

    def refuses_gpu_sampling(self, experiment: Experiment) -> Refusal | None:
        """Why batches are made on the host although the run has GPUs; None: a sampler may make them on a GPU."""
        return Refusal("this paradigm samples on the host")

    def refuses_rounded_rows(self, experiment: Experiment) -> Refusal | None:
        """Why rows between layers cannot be in bfloat16 (`train.activations`); None: they can."""
        return Refusal("this paradigm exchanges other values than the rows of layers: sums, columns or parts of rows")

    def refuses_capture(self, experiment: Experiment) -> Refusal | None:
        """Why a step cannot be captured as a CUDA graph (`train.cuda_graph`); None: it can."""
        return Refusal("its batches differ from step to step, or its steps wait for copies")

    @abstractmethod
    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        """What the run needs for an experiment on a graph.

        Args:
            experiment: an experiment without conflicts.
            facts: sizes of the graph.
            sizes: sizes of the parts, if ranks work on parts that are already cut.
        """


class Paradigm(Method):
    """A way to train on several devices.

    Attributes:
        always_partitioned: whether the paradigm needs a partition, whatever the other choices are.
        reads_stored_rows: whether the first layer gets a batch's rows from the store alone, so it may read them there.
    """

    always_partitioned: ClassVar[bool] = False
    reads_stored_rows: ClassVar[bool] = False

    def wants_partition(self, experiment: Experiment) -> bool:
        """Whether the run needs a partition."""
        return self.always_partitioned or experiment.feature_store.needs_partition

    @abstractmethod
    def trainer(self, job: Job) -> Trainer[Any]:
        """The trainer of this rank. Ranks may communicate to make it."""


def drawn_from_graph(experiment: Experiment, facts: GraphFacts) -> Drawn:
    """Size limits of the topology and of the batches of a rank that samples from the whole graph."""
    targets, seeds = facts.num_train, 1
    if pairs(experiment) and facts.num_links is not None:  # both ends of every link and of its negatives
        targets, seeds = facts.num_links, 2 * (1 + experiment.task.negatives_per_link)
    size = experiment.train.batch_size
    share = min(facts.num_nodes, seeds * -(-min(size or targets, targets) // experiment.num_ranks))
    return Drawn(facts.num_nodes, facts.num_edges, share, facts.num_nodes)
