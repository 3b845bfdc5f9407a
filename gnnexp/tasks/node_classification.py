"""Node classification: one label per vertex (cross-entropy) or several (binary cross-entropy per class)."""

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
from gnnexp.tasks.metrics import accuracy, macro_f1, micro_f1, roc_auc
from gnnexp.tasks.vertices import VertexOptions, VertexTask, label_problems


@dataclass(frozen=True)
class NodeClassificationOptions(VertexOptions):
    """Predicts the labels of vertices.

    Attributes:
        metric: the metric that decides the best epoch. `auto` is micro-F1 for multi-label data, accuracy otherwise.
    """

    metric: Literal["auto", "acc", "macro_f1", "micro_f1", "roc_auc"] = "auto"

    @property
    def usual_metric(self) -> str:
        """See `metric`."""
        return "acc" if self.metric == "auto" else self.metric

    def check_data(self, graph: Graph) -> list[Problem]:
        """There must be labels, training vertices, and a metric that fits the labels."""
        problems = label_problems(graph, "node_classification")
        if graph.real_labels:
            return [
                *problems,
                Problem(
                    "task",
                    "node_classification",
                    f"the labels of {graph.name} are real numbers",
                    "set task=node_regression; in tables, dataset.label_kind=class takes only whole numbers and names",
                ),
            ]
        if graph.labels is not None and graph.num_classes == 1 and not graph.multilabel:
            problems.append(
                Problem(
                    "dataset",
                    graph.name,
                    "all labels are of one class, so there is nothing to learn; -1 counts as no label",
                    "give labels of two classes or more",
                )
            )
        if self.metric == "roc_auc" and not graph.multilabel and graph.num_classes != 2:
            problems.append(
                Problem(
                    "task.metric",
                    "roc_auc",
                    f"needs 2 classes, {graph.name} has {graph.num_classes}",
                    "set task.metric=auto",
                )
            )
        if self.metric == "micro_f1" and not graph.multilabel:
            problems.append(
                Problem(
                    "task.metric",
                    "micro_f1",
                    f"{graph.name} has one label per vertex, where it equals accuracy",
                    "set task.metric=acc",
                )
            )
        if self.metric in ("acc", "macro_f1") and graph.multilabel:
            problems.append(
                Problem("task.metric", self.metric, f"{graph.name} is multi-label", "set task.metric=auto (micro-F1)")
            )
        return problems

    def make(self) -> NodeClassification:
        """The task of a rank."""
        return NodeClassification(self)


class NodeClassification(VertexTask):
    """Cross-entropy over classes, or binary cross-entropies of several labels."""

    options: NodeClassificationOptions

    @property
    def primary_metric(self) -> str:
        """See `NodeClassificationOptions.metric`."""
        return "micro_f1" if self.options.metric == "auto" and self._multilabel else self.options.usual_metric

    def setup(self, graph: Graph, device: torch.device = HOST) -> None:
        """See `VertexTask.setup`."""
        super().setup(graph, device)
        self._multilabel, self._num_classes = graph.multilabel, graph.num_classes

    def loss_sum(self, scores: Tensor, examples: Examples) -> Tensor:
        """Sum of cross-entropies over vertices. Multi-label: binary cross-entropies, averaged over classes."""
        labels = self.labels_of(examples.vertices)
        if self._multilabel:
            loss = F.binary_cross_entropy_with_logits(scores, labels.to(scores.dtype), reduction="sum")
            return loss / self._num_classes
        return F.cross_entropy(scores, labels, reduction="sum")

    def score(self, outputs: Tensor, ids: Tensor) -> Scores:
        """Predictions and labels of labelled vertices; scores for two classes and for multi-label data."""
        labels, logits = self._labels[ids.long()], outputs.cpu()
        if self._multilabel:
            kept = ~labels.isnan().any(1)
            return {"score": logits[kept].numpy(), "label": labels[kept].numpy().astype(np.int8)}
        kept = labels >= 0
        logits, labels = logits[kept], labels[kept]
        scores = {"prediction": logits.argmax(1).numpy().astype(np.int32), "label": labels.numpy().astype(np.int32)}
        if self._num_classes == 2:
            scores["score"] = (logits[:, 1] - logits[:, 0]).numpy()
        return scores

    def predictions(self, outputs: Tensor, classes: Sequence[str], *, every: bool) -> dict[str, np.ndarray]:
        """`class` and its `probability`; with `every`, and for multi-label data, the probability of each class."""
        logits = outputs.cpu().double()
        shares = torch.sigmoid(logits) if self._multilabel else torch.softmax(logits, 1)
        columns: dict[str, np.ndarray] = {}
        if not self._multilabel:
            best, place = shares.max(1)
            columns = {"class": np.array(classes, object)[place.numpy()], "probability": best.numpy()}
        if every or self._multilabel:
            columns |= {f"p_{name}": column for name, column in zip(classes, shares.numpy().T, strict=True)}
        return columns

    def metrics(self, scores: Sequence[Scores]) -> dict[str, float]:
        """`acc`, `macro_f1` and, for two classes, `roc_auc`; `micro_f1` and `roc_auc` for multi-label data."""
        joined = {name: np.concatenate([part[name] for part in scores]) for name in scores[0]}
        if self._multilabel:
            values = {"micro_f1": micro_f1(joined["score"] > 0, joined["label"])}
            if self.options.metric == "roc_auc":
                columns = zip(joined["score"].T, joined["label"].T, strict=True)
                areas = [roc_auc(score, label) for score, label in columns]
                values["roc_auc"] = float(np.nanmean(areas))
            return values
        values = {
            "acc": accuracy(joined["prediction"], joined["label"]),
            "macro_f1": macro_f1(joined["prediction"], joined["label"], self._num_classes),
        }
        if "score" in joined:
            values["roc_auc"] = roc_auc(joined["score"], joined["label"])
        return values
