"""What is learned: the loss over a batch's targets, and the metrics of an evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from gnnexp.errors import Problem
from gnnexp.graph.graph import Graph

Scores = Mapping[str, np.ndarray]


class Task(ABC):
    """Loss and metrics of one kind of prediction."""

    @property
    @abstractmethod
    def primary_metric(self) -> str:
        """The metric that chooses the best epoch by validation: `acc`, `micro_f1` or `roc_auc`; higher is better."""

    @abstractmethod
    def check(self, graph: Graph) -> list[Problem]:
        """Why this task cannot be run on `graph`."""

    @abstractmethod
    def setup(self, graph: Graph) -> None:
        """Take what is needed of the graph."""

    @abstractmethod
    def targets(self) -> Tensor:
        """Training targets, original ids `[n]` int64."""

    @abstractmethod
    def loss_sum(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Sum (never a mean) of the losses of `targets` `[T]`, from logits `[T, C]`: the caller divides globally."""

    @abstractmethod
    def score(self, logits: Tensor, ids: Tensor) -> Scores:
        """What metrics need of the vertices `ids` `[n]`: arrays that concatenate over chunks and ranks."""

    @abstractmethod
    def metrics(self, scores: Sequence[Scores]) -> dict[str, float]:
        """Metrics from the scores of all chunks of all ranks, without the split's name."""
