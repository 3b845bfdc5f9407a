"""Node regression: a real number for each vertex, learned by the mean squared error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from gnnexp.errors import Problem
from gnnexp.graph.graph import Graph
from gnnexp.tasks.base import HOST, Examples, Scores
from gnnexp.tasks.metrics import errors_of_numbers
from gnnexp.tasks.vertices import VertexOptions, VertexTask, label_problems


@dataclass(frozen=True)
class NodeRegressionOptions(VertexOptions):
    """Predicts real numbers of vertices.

    Attributes:
        metric: the metric that decides the best epoch. The lowest `mse` or `mae` is the best, and the highest `r2`;
            `auto` is `mse`.
        standardize: whether the model learns (label - mean) / standard deviation, both over the training vertices. Then
            the loss has no unit. Metrics and predictions are in the unit of the labels in any case.
    """

    metric: Literal["auto", "mse", "mae", "r2"] = "auto"
    standardize: bool = True

    @property
    def usual_metric(self) -> str:
        """See `metric`."""
        return "mse" if self.metric == "auto" else self.metric

    def check_data(self, graph: Graph) -> list[Problem]:
        """There must be real numbers as labels, and training vertices."""
        problems = label_problems(graph, "node_regression")
        if graph.labels is not None and not graph.real_labels:
            problems.append(
                Problem(
                    "task",
                    "node_regression",
                    f"the labels of {graph.name} are classes",
                    "set task=node_classification; in tables, whole numbers are real labels with "
                    "dataset.label_kind=real",
                )
            )
        return problems

    def num_outputs(self, graph: Graph, hidden: int) -> int:
        """One number for each vertex."""
        return 1

    def make(self) -> NodeRegression:
        """The task of a rank."""
        return NodeRegression(self)


class NodeRegression(VertexTask):
    """Squared errors of real numbers."""

    options: NodeRegressionOptions

    def setup(self, graph: Graph, device: torch.device = HOST) -> None:
        """Store labels and targets, and the mean and standard deviation of the training vertices."""
        super().setup(graph, device)
        self._mean, self._scale = 0.0, 1.0
        if self.options.standardize:
            values = self._labels[torch.sort(self._targets).values].double().numpy()
            self._mean = float(values.mean())
            self._scale = float(values.std()) or 1.0  # equal labels have no scale

    def loss_sum(self, scores: Tensor, examples: Examples) -> Tensor:
        """Sum of squared errors over vertices, of standardized labels if `standardize`."""
        wanted = (self.labels_of(examples.vertices).double() - self._mean) / self._scale
        return F.mse_loss(scores.flatten(), wanted.to(scores.dtype), reduction="sum")

    def values(self, outputs: Tensor) -> Tensor:
        """`[n, 1]` float64 predictions in the unit of the labels."""
        return outputs.double() * self._scale + self._mean

    def predictions(self, outputs: Tensor, classes: Sequence[str], *, every: bool) -> dict[str, np.ndarray]:
        """A column `prediction`."""
        return {"prediction": outputs.flatten().cpu().numpy()}

    def score(self, outputs: Tensor, ids: Tensor) -> Scores:
        """Predictions and labels of labelled vertices, float64."""
        labels = self._labels[ids.long()].double()
        kept = ~labels.isnan()
        return {"prediction": self.values(outputs.cpu())[kept].flatten().numpy(), "label": labels[kept].numpy()}

    def metrics(self, scores: Sequence[Scores]) -> dict[str, float]:
        """`mse`, `mae` and `r2`; first the one that decides."""
        joined = {name: np.concatenate([part[name] for part in scores]) for name in scores[0]}
        values = errors_of_numbers(joined["prediction"], joined["label"])
        return {name: values[name] for name in (self.primary_metric, *values)}
