"""Classification of unequal classes: an example of a class with n_c of n training vertices counts n / (C n_c) times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from gnnexp.errors import Problem
from gnnexp.graph.graph import Graph
from gnnexp.tasks.base import HOST, Examples
from gnnexp.tasks.node_classification import NodeClassification, NodeClassificationOptions


@dataclass(frozen=True)
class BalancedOptions(NodeClassificationOptions):
    """Every class has the same share of the loss.

    Attributes:
        metric: the metric that decides the best epoch; `macro_f1` counts classes equally, too.
    """

    metric: Literal["auto", "acc", "macro_f1", "micro_f1", "roc_auc"] = "macro_f1"

    def check_data(self, graph: Graph) -> list[Problem]:
        """As node classification, with one label per vertex."""
        fix = "set task=node_classification"
        several = [Problem("task", "balanced", f"{graph.name} has several labels per vertex", fix)]
        return [*super().check_data(graph), *(several if graph.multilabel else [])]

    def make(self) -> Balanced:
        """The task of a rank."""
        return Balanced(self)


class Balanced(NodeClassification):
    """Weighted cross-entropies. The mean weight of all training vertices is 1."""

    def setup(self, graph: Graph, device: torch.device = HOST) -> None:
        """Store labels, and the weight of each class: 0 for a class without training vertices."""
        super().setup(graph, device)
        assert graph.labels is not None
        counts = torch.bincount(graph.labels[graph.splits.train], minlength=graph.num_classes).double()
        weights = counts.sum() / (counts.count_nonzero() * counts)
        self._weights = weights.nan_to_num(posinf=0.0).to(device)

    def loss_sum(self, scores: Tensor, examples: Examples) -> Tensor:
        """Sum of weighted cross-entropies."""
        labels, weights = self.labels_of(examples.vertices), self._weights.to(scores.dtype)
        return F.cross_entropy(scores, labels, weight=weights, reduction="sum")
