"""What is learned: the loss over a batch's examples, and the metrics of an evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.plan import GraphFacts, Need
from gnnexp.graph.block import BatchKey
from gnnexp.graph.graph import Graph
from gnnexp.tiers.tier import across

HOST = torch.device("cpu")
Scores = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Examples:
    """A rank's part of a global batch, as its loss wants it; a task may add what it needs.

    Attributes:
        vertices: `[m]` original ids, unique: whose outputs are read, in this order. Where the loss is computed they
            are on its device, and have the dtype of the batch's ids.
        count: how many of the task's training examples these are.
    """

    vertices: Tensor
    count: int

    @property
    def nbytes(self) -> int:
        """Bytes that cross to the device with them, beside the batch's blocks."""
        return 0

    def to(self, device: torch.device, vertices: Tensor | None = None) -> Self:
        """The same with what the loss reads on `device`.

        Args:
            device: of the rank.
            vertices: those of the examples, where they are on the device already; None: they cross.
        """
        return replace(self, vertices=across(self.vertices, device) if vertices is None else vertices)


class Task(ABC):
    """Loss and metrics of one kind of prediction.

    A training example is a vertex, or (`pairs`) a link, whose ends may be anywhere: a paradigm then brings their
    outputs to the rank that has the link. What is learned beside the model is the `decoder`.

    Attributes:
        exclude_targets: whether no message passes along a batch's own links.
        negatives_per_link: drawn in training, where examples are links.
        num_relations: R of the links, once the task is set up; 0 where they have no types, or there are none.
    """

    pairs: ClassVar[bool] = False
    exclude_targets: bool = False
    negatives_per_link: int = 1
    num_relations: int = 0

    @property
    @abstractmethod
    def primary_metric(self) -> str:
        """The metric that chooses the best epoch by validation (`acc`, `mrr`, …); higher is better."""

    @abstractmethod
    def check(self, graph: Graph) -> list[Problem]:
        """Why this task cannot be run on `graph`."""

    def needs(self, experiment: Experiment, facts: GraphFacts) -> list[Need]:
        """What a rank will need for it, for the preflight; `facts` have the model's outputs as classes."""
        return []

    @abstractmethod
    def setup(self, graph: Graph, device: torch.device = HOST) -> None:
        """Take what is needed of the graph; what every loss reads goes to `device`, where losses are computed."""

    # --- training --------------------------------------------------------------------------------------------------
    @abstractmethod
    def targets(self) -> Tensor:
        """Training examples `[n]` int64: original ids of vertices, or numbers of links."""

    def homes(self, targets: Tensor) -> Tensor:
        """`[t]` the vertex whose owner has each of `targets`, where these go to owners."""
        return targets

    def num_outputs(self, graph: Graph, hidden: int) -> int:
        """Columns of the model's output, whose hidden layers have `hidden`."""
        return graph.num_classes

    def decoder(self, num_outputs: int, *, seed: int, dtype: torch.dtype, device: torch.device) -> nn.Module | None:
        """What is learned beside the model, if anything: a pure function of the seed, the same on every rank."""
        return None

    def examples(self, chosen: Tensor, batch: Tensor, key: BatchKey) -> Examples:
        """A rank's part of a global batch.

        Args:
            chosen: `[t]` its targets, in any order.
            batch: `[T]` those of all ranks, the same on each.
            key: of the batch: what is drawn is a pure function of it and of the target, never of the rank.
        """
        return Examples(chosen, chosen.numel())

    def decode(self, outputs: Tensor, examples: Examples) -> Tensor:
        """Scores of the examples from the model's `outputs` `[m, C]` of their vertices."""
        return outputs

    def hidden_links(self, batch: Tensor) -> Tensor | None:
        """`[T, 2 | 3]` links (head, relation, tail) of a global `batch` that no message may pass along; None: none."""
        return None

    @abstractmethod
    def loss_sum(self, scores: Tensor, examples: Examples) -> Tensor:
        """Sum (never a mean) of the examples' losses, from what `decode` gave: the caller divides globally."""

    # --- evaluation ------------------------------------------------------------------------------------------------
    def held_out(self, graph: Graph) -> dict[str, Tensor]:
        """What is evaluated, by split (`val`, `test`): original ids of vertices, or numbers of links."""
        return {"val": graph.splits.val, "test": graph.splits.test}

    def score(self, outputs: Tensor, ids: Tensor) -> Scores:
        """What metrics need of the vertices `ids` `[n]` with `outputs` `[n, C]`: arrays that concatenate."""
        raise NotImplementedError("a task of vertices scores vertices")

    def score_pairs(self, split: str, outputs: Tensor, chosen: Tensor, budget: int) -> Iterator[Scores]:
        """What metrics need of some held-out links, piece by piece: arrays that concatenate over pieces and ranks.

        Args:
            split: a key of `held_out`.
            outputs: `[V, C]` of all vertices, in memory or mapped.
            chosen: a rank's share of the split's links.
            budget: bytes that it may take beside.
        """
        raise NotImplementedError("a task of pairs scores pairs")

    @abstractmethod
    def metrics(self, scores: Sequence[Scores]) -> dict[str, float]:
        """Metrics from the scores of all pieces of all ranks, without the split's name."""


def wanted_device(experiment: Experiment) -> str:
    """`cpu` or `cuda`, where a run will train if this machine is one of its nodes."""
    device: str = experiment.hardware.device
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device
