"""What tasks of vertices share: the labels of training vertices are where the loss is computed."""

from __future__ import annotations

import copy
from typing import Self

import torch
from torch import Tensor

from gnnexp.components.facts import GraphFacts, Need
from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.graph.graph import Graph
from gnnexp.tasks.base import HOST, Task, wanted_device


class VertexTask(Task):
    """A task whose examples are vertices with labels."""

    def needs(self, experiment: Experiment, facts: GraphFacts) -> list[Need]:
        """Memory for ids and labels of the training vertices on a GPU. On CPU, labels are read from the mapped file."""
        if not facts.label_bytes or wanted_device(experiment) == "cpu":
            return []
        count = facts.num_train
        return [Need(f"labels of {count:,} training vertices", "device", count * (8 + facts.label_bytes))]

    def setup(self, graph: Graph, device: torch.device = HOST) -> None:
        """Store labels and targets. Labels of training vertices are copied to a GPU, in ascending order of ids."""
        assert graph.labels is not None
        self._labels, self._targets = graph.labels, graph.splits.train
        self._there: tuple[Tensor, Tensor] | None = None
        if device.type != "cpu":
            ids = torch.sort(self._targets).values
            self._there = ids.to(device), self._labels[ids].to(device)

    def judging(self, graph: Graph) -> Self:
        """See `Task.judging`."""
        assert graph.labels is not None
        other = copy.copy(self)
        other._labels, other._targets, other._there = graph.labels, graph.splits.train, None
        return other

    def targets(self) -> Tensor:
        """Training vertices."""
        return self._targets

    def labels_of(self, targets: Tensor) -> Tensor:
        """`[t]` labels of `targets`, or `[t, C]` if multi-label, on the device of the targets."""
        if self._there is None:
            return self._labels.index_select(0, targets)
        ids, labels = self._there
        return labels.index_select(0, torch.searchsorted(ids, targets.to(ids.dtype)))


def without_labels(graph: Graph, task: str) -> list[Problem]:
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
