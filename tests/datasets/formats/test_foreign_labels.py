"""Labels of foreign graphs: real numbers and classes, also in one column, and of one type of several."""

from __future__ import annotations

import numpy as np
import pytest

from gnnexp.datasets.formats.dataset import ForeignOptions, graph_of
from gnnexp.datasets.formats.foreign import ForeignEdges, ForeignGraph, ForeignVertices
from gnnexp.datasets.looking.facts import facts_of_graph
from gnnexp.graph.graph import Graph

RULES = ForeignOptions(train=0.5, val=0.25)
ENDS = np.array([0, 1, 2]), np.array([1, 2, 3])


def made(labels: np.ndarray) -> Graph:
    found = ForeignGraph(
        {"a": ForeignVertices(4, labels=labels), "b": ForeignVertices(2)}, [ForeignEdges(*ENDS, types=("a", "a"))]
    )
    return graph_of(found, RULES, "g")[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_real_numbers(shape: tuple[int, ...], dtype: type) -> None:
    graph = made(np.array([1.5, np.nan, -3, 0], dtype).reshape(shape))
    assert graph.real_labels and graph.num_classes == 0 and graph.labels is not None
    assert graph.labels.nan_to_num(9).tolist() == [1.5, 9, -3, 0, 9, 9]
    assert sorted([*graph.splits.train.tolist(), *graph.splits.val.tolist(), *graph.splits.test.tolist()]) == [0, 2, 3]
    facts = facts_of_graph(graph)
    assert facts.label_values == {"min": -3, "mean": -0.5, "max": 1.5} and facts.unlabelled == 3
    assert facts.classes == []


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_classes(shape: tuple[int, ...]) -> None:
    graph = made(np.array([1, -1, 0, 2]).reshape(shape))
    assert not graph.real_labels and graph.num_classes == 3 and graph.labels is not None
    assert graph.labels.tolist() == [1, -1, 0, 2, -1, -1]


def test_one_column_of_zeros_and_ones_is_one_class() -> None:
    graph = made(np.array([[1.0], [0.0], [1.0], [np.nan]]))
    assert graph.multilabel and graph.num_classes == 1
