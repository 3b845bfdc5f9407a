"""What tasks of vertices share: the labels of training vertices are where the loss is computed."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from typing import Self, final

import numpy as np
import torch
from torch import Tensor

from gnnexp.components.facts import GraphFacts, Need
from gnnexp.components.setting import Setting
from gnnexp.errors import Problem
from gnnexp.graph.graph import Graph
from gnnexp.tasks.base import HOST, Scores, Task, TaskOptions, wanted_device


class VertexOptions(TaskOptions):
    """The options of a task whose examples are vertices with labels."""

    def needs(self, setting: Setting, facts: GraphFacts) -> list[Need]:
        """Memory for ids and labels of the training vertices on a GPU. On CPU, labels are read from the mapped file."""
        if not facts.label_bytes or wanted_device(setting) == "cpu":
            return []
        count = facts.num_train
        return [Need(f"labels of {count:,} training vertices", "device", count * (8 + facts.label_bytes))]

    @abstractmethod
    def make(self) -> VertexTask:
        """The task of a rank."""


class VertexTask(Task):
    """A task whose examples are vertices with labels."""

    def setup(self, graph: Graph, device: torch.device = HOST) -> None:
        """Store labels and targets. Labels of training vertices are copied to a GPU, in ascending order of ids."""
        assert graph.labels is not None
        self._labels, self._targets = graph.labels, graph.splits.train
        self._on_device: tuple[Tensor, Tensor] | None = None
        if device.type != "cpu":
            ids = torch.sort(self._targets).values
            self._on_device = ids.to(device), self._labels[ids].to(device)

    @final
    def judging(self, graph: Graph) -> Self:
        """This task as it was set up, but with the labels of another graph: it scores outputs of the same model."""
        assert graph.labels is not None
        other = copy.copy(self)
        other._labels, other._targets, other._on_device = graph.labels, graph.splits.train, None
        return other

    @final
    def targets(self) -> Tensor:
        """Training vertices."""
        return self._targets

    @final
    def labels_of(self, targets: Tensor) -> Tensor:
        """`[t]` labels of `targets`, or `[t, C]` if multi-label, on the device of the targets."""
        if self._on_device is None:
            return self._labels.index_select(0, targets)
        ids, labels = self._on_device
        return labels.index_select(0, torch.searchsorted(ids, targets.to(ids.dtype)))

    def values(self, outputs: Tensor) -> Tensor:
        """What `outputs` `[n, C]` of the model predict, in the unit of the labels; classes have none."""
        return outputs

    @abstractmethod
    def score(self, outputs: Tensor, ids: Tensor) -> Scores:
        """Arrays that metrics need, for vertices `ids` `[n]` with `outputs` `[n, C]`. Arrays of calls concatenate."""

    def predictions(self, outputs: Tensor, classes: Sequence[str], *, every: bool) -> dict[str, np.ndarray]:
        """Columns of a table of predictions, by name: one value for each of `n` vertices. By default the outputs.

        Args:
            outputs: `[n, C]` outputs of the vertices.
            classes: C names of the classes.
            every: whether to add the columns of each class.
        """
        return {f"output_{name}": column for name, column in zip(classes, outputs.cpu().numpy().T, strict=True)}


def label_problems(graph: Graph, task: str) -> list[Problem]:
    """Problems of a graph that has no labels, or nothing to train on."""
    if graph.labels is None:
        return [
            Problem(
                "task",
                task,
                f"{graph.name} has no vertex labels",
                "set task=link_prediction, or choose a dataset with labels"
                if graph.links
                else "dataset.labels=<file of one label per vertex>, or another dataset",
            )
        ]
    if graph.splits.train.numel() == 0:
        return [
            Problem(
                "dataset",
                graph.name,
                "has no training vertices",
                "dataset.train=0.6, or the dataset's own key for training vertices",
            )
        ]
    return []
