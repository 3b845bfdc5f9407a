"""The interface of tasks: the loss of a batch's examples, and the metrics of an evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from gnnexp.components.facts import GraphFacts, Need
from gnnexp.components.setting import Setting
from gnnexp.errors import Problem
from gnnexp.graph.block import BatchKey
from gnnexp.graph.graph import Graph
from gnnexp.kernels.crossing import across

HOST = torch.device("cpu")
Scores = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Examples:
    """The inputs of the loss for a rank's part of a global batch. Tasks add attributes in subclasses.

    Attributes:
        vertices: `[m]` original ids, unique. The model computes outputs of these vertices, in this order. The loss
            gets them on its device, with the dtype of the batch's ids.
        count: number of training examples.
    """

    vertices: Tensor
    count: int

    @property
    def nbytes(self) -> int:
        """Bytes that are copied to the device, in addition to the batch's blocks."""
        return 0

    def to(self, device: torch.device, vertices: Tensor | None = None) -> Self:
        """A copy whose tensors for the loss are on `device`.

        Args:
            device: device of the rank.
            vertices: the examples' vertices if they are on the device already; None: they are copied.
        """
        return replace(self, vertices=across(self.vertices, device) if vertices is None else vertices)


class TaskOptions(ABC):
    """The options of a task. The launcher checks them, and each rank makes its `Task` of them.

    A subclass is a frozen dataclass. Its fields are its options, with the names of its YAML file.

    Attributes:
        version: raised when the same options give other results or counts, or a default changes (CONTRIBUTING.md).
        pairs: whether a training example is a link, and not a vertex.
        exclude_targets: whether message passing leaves out the links of the batch itself.
    """

    version: ClassVar[int] = 1
    pairs: ClassVar[bool] = False
    exclude_targets: bool = False

    @property
    def negatives_per_link(self) -> int:
        """Number of negatives that training draws for each link."""
        return 1

    @property
    @abstractmethod
    def usual_metric(self) -> str:
        """The metric that decides the best validation epoch, if the data ask for no other one (`Task.primary_metric`).

        Higher is better, except for `gnnexp.measure.merit.ERRORS`.
        """

    @abstractmethod
    def check_data(self, graph: Graph) -> list[Problem]:
        """Reasons why this task cannot run on `graph`."""

    def needs(self, setting: Setting, facts: GraphFacts) -> list[Need]:
        """Memory that the task needs on a rank, for the preflight. `facts.num_classes` is the model's output width."""
        return []

    def num_outputs(self, graph: Graph, hidden: int) -> int:
        """Width of the model's output; `hidden` is the width of its hidden layers."""
        return graph.num_classes

    @abstractmethod
    def make(self) -> Task:
        """The task of a rank."""


class Task(ABC):
    """Loss and metrics of one kind of prediction, on a rank.

    A training example is a vertex (`VertexTask`) or a link (`PairTask`). The ends of a link may be in any parts: the
    paradigm brings their outputs to the rank that has the link. The `decoder` is trained together with the model.

    Attributes:
        options: the options that were chosen.
    """

    options: TaskOptions

    def __init__(self, options: TaskOptions) -> None:
        self.options = options

    @property
    def primary_metric(self) -> str:
        """The metric that decides the best validation epoch (`acc`, `mrr`, …) of the data."""
        return self.options.usual_metric

    @abstractmethod
    def setup(self, graph: Graph, device: torch.device = HOST) -> None:
        """Store the parts of the graph that the task needs. Data that every loss reads are copied to `device`."""

    # --- training --------------------------------------------------------------------------------------------------
    @abstractmethod
    def targets(self) -> Tensor:
        """Training examples `[n]` int64: original ids of vertices, or indices of links."""

    def homes(self, targets: Tensor) -> Tensor:
        """`[t]`: for each target, the vertex whose owner trains it, if targets belong to owners."""
        return targets

    def decoder(self, num_outputs: int, *, seed: int, dtype: torch.dtype, device: torch.device) -> nn.Module | None:
        """The decoder that is trained with the model, or None. It depends on the seed only: all ranks get the same."""
        return None

    def examples(self, chosen: Tensor, batch: Tensor, key: BatchKey) -> Examples:
        """The examples of a rank's part of a global batch.

        Args:
            chosen: `[t]` targets of this rank, in any order.
            batch: `[T]` targets of all ranks, the same on every rank.
            key: key of the batch. Random draws depend on this key and the target, never on the rank.
        """
        return Examples(chosen, chosen.numel())

    def decode(self, outputs: Tensor, examples: Examples) -> Tensor:
        """Scores of the examples from the model's `outputs` `[m, C]` of their vertices."""
        return outputs

    @abstractmethod
    def loss_sum(self, scores: Tensor, examples: Examples) -> Tensor:
        """Sum of the losses of all examples, from the result of `decode`; the caller divides by the global count."""

    # --- evaluation ------------------------------------------------------------------------------------------------
    def held_out(self, graph: Graph) -> dict[str, Tensor]:
        """Evaluated examples by split (`val`, `test`): original ids of vertices, or indices of links."""
        return {"val": graph.splits.val, "test": graph.splits.test}

    @abstractmethod
    def metrics(self, scores: Sequence[Scores]) -> dict[str, float]:
        """Metrics of the scores of all pieces and ranks, by name without the split."""


def wanted_device(setting: Setting) -> str:
    """The device type that a run will train on, `cpu` or `cuda`, if this machine is one of its nodes."""
    device: str = setting.hardware.device
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device
