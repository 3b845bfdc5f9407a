"""The loss by its formula wherever labels are, and what the preflight counts of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from experiments import experiment_in
from torch.nn import functional as F

from emulated_gpu import is_wanted
from gnnexp.components.facts import GraphFacts
from gnnexp.graph.graph import Graph
from gnnexp.tasks.base import Examples
from gnnexp.tasks.node_classification import NodeClassificationOptions
from gnnexp.testing.graphs import nasty_graph

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")],
    ),
]


def _unsorted(multilabel: bool) -> Graph:
    """Training vertices in no order; labels of others must not be read."""
    graph = nasty_graph()
    train = graph.splits.train[torch.randperm(graph.splits.train.numel(), generator=torch.Generator().manual_seed(0))]
    labels = torch.full_like(graph.labels, -1)
    labels[train] = graph.labels[train]
    if multilabel:
        labels = F.one_hot(labels.clamp(min=0), graph.num_classes).float()
    return replace(graph, labels=labels, splits=replace(graph.splits, train=train))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
@pytest.mark.parametrize("multilabel", [False, True])
def test_the_loss_is_that_of_the_examples_labels(device, ids, multilabel):
    graph, device = _unsorted(multilabel), torch.device(device)
    task = NodeClassificationOptions().make()
    task.setup(graph, device)
    chosen = task.targets()[3:12]
    scores = torch.randn(chosen.numel(), graph.num_classes, dtype=torch.float64)
    expected = (
        F.binary_cross_entropy_with_logits(scores, graph.labels[chosen].double(), reduction="sum") / graph.num_classes
        if multilabel
        else F.cross_entropy(scores, graph.labels[chosen], reduction="sum")
    )
    found = task.loss_sum(scores.to(device), Examples(chosen.to(ids), chosen.numel()).to(device))
    assert found.device.type == device.type
    ulp = 0.0 if device.type == "cpu" or is_wanted() else 1e-14  # a GPU adds in another order
    torch.testing.assert_close(found.cpu(), expected, rtol=ulp, atol=0.0)


@pytest.mark.parametrize(("multilabel", "bytes_per_vertex"), [(False, 8 + 8), (True, 8 + 4 * 4)])
def test_labels_on_a_gpu_are_in_the_preflight(multilabel, bytes_per_vertex):
    graph = _unsorted(multilabel)
    on_cpu, on_gpu = (experiment_in({"hardware": {"device": device}}) for device in ("cpu", "cuda"))
    assert NodeClassificationOptions().needs(on_cpu, GraphFacts.of(graph)) == [], "there they are mapped"
    (need,) = NodeClassificationOptions().needs(on_gpu, GraphFacts.of(graph))
    assert (need.place, need.num_bytes) == ("device", 30 * bytes_per_vertex)


def test_one_class_is_refused_and_one_of_several_labels_is_not():
    graph = nasty_graph()
    one = replace(graph, labels=graph.labels.clamp(max=0), num_classes=1)
    (problem,) = NodeClassificationOptions().check_data(one)
    assert "all labels are of one class" in str(problem)
    assert NodeClassificationOptions().check_data(replace(one, labels=graph.labels[:, None].clamp(0, 1).float())) == []
    assert NodeClassificationOptions().check_data(graph) == []
