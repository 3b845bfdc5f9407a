"""The loss and the metrics of real numbers by their formulas, and which labels the task takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.graph.graph import Graph
from gnnexp.graph.storage.format import open_graph, save_graph
from gnnexp.graph.validate import validate_graph
from gnnexp.tasks.base import Examples
from gnnexp.tasks.metrics import errors_of_numbers
from gnnexp.tasks.node_classification import NodeClassificationOptions
from gnnexp.tasks.node_regression import NodeRegressionOptions
from gnnexp.testing.graphs import nasty_graph

NUMBERS = st.floats(-1e6, 1e6)


def valued(offset: float = 1000.0, scale: float = 50.0) -> Graph:
    """`nasty_graph` with real labels; vertices outside of the splits have none."""
    graph = nasty_graph()
    values = offset + scale * torch.randn(graph.num_nodes, generator=torch.Generator().manual_seed(2))
    values[graph.splits.test[:3]] = float("nan")
    splits = replace(graph.splits, test=graph.splits.test[3:])
    return replace(graph, labels=values, num_classes=0, splits=splits)


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
def test_the_loss_is_the_sum_of_squared_errors(standardize: bool, ids: torch.dtype) -> None:
    graph, task = valued(), NodeRegressionOptions(standardize=standardize).make()
    task.setup(graph)
    assert graph.labels is not None and task.options.num_outputs(graph, 16) == 1
    chosen = task.targets()[3:12]
    scores = torch.randn(chosen.numel(), 1, dtype=torch.float64)
    wanted = graph.labels.double()
    if standardize:
        train = wanted[graph.splits.train]
        wanted = (wanted - train.mean()) / train.std(correction=0)
    expected = ((scores[:, 0] - wanted[chosen]) ** 2).sum()
    found = task.loss_sum(scores, Examples(chosen.to(ids), chosen.numel()))
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=0)


def test_predictions_and_metrics_have_the_unit_of_the_labels() -> None:
    graph, task = valued(), NodeRegressionOptions().make()
    task.setup(graph)
    assert graph.labels is not None
    train = graph.labels[graph.splits.train].double()
    outputs = ((graph.labels.double() - train.mean()) / train.std(correction=0))[:, None] + 0.5
    ids = torch.arange(graph.num_nodes)
    error = float(0.5 * train.std(correction=0))
    parts = [task.score(outputs[piece], piece) for piece in ids.split(7)]
    found = task.metrics(parts)
    assert list(found) == ["mse", "mae", "r2"]
    known = graph.labels[~graph.labels.isnan()].double()
    assert found["mae"] == pytest.approx(error) and found["mse"] == pytest.approx(error**2)
    assert found["r2"] == pytest.approx(1 - error**2 / float(known.var(correction=0)))
    assert sum(part["label"].size for part in parts) == graph.num_nodes - 3
    assert list(NodeRegressionOptions("r2").make().primary_metric) == list("r2")


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=40), st.randoms(use_true_random=False))
def test_metrics_do_not_depend_on_the_order(pairs: list[tuple[float, float]], draws) -> None:
    first = errors_of_numbers(*np.array(pairs, np.float64).T)
    draws.shuffle(pairs)
    assert repr(errors_of_numbers(*np.array(pairs, np.float64).T)) == repr(first)


def test_r2_does_not_cancel_far_from_zero() -> None:
    label = 1e9 + np.arange(100, dtype=np.float64)
    assert errors_of_numbers(label + 1, label)["r2"] == pytest.approx(1 - 1 / np.var(np.arange(100)), rel=1e-12)
    assert np.isnan(errors_of_numbers(label * 0 + 3, label * 0 + 2)["r2"])
    assert all(map(np.isnan, errors_of_numbers(np.empty(0), np.empty(0)).values()))


def test_equal_labels_can_be_learned() -> None:
    graph, task = replace(valued(), labels=torch.full((60,), 7.0)), NodeRegressionOptions().make()
    task.setup(graph)
    assert float(task.loss_sum(torch.zeros(30, 1), Examples(graph.splits.train, 30))) == 0


def test_tasks_refuse_labels_of_the_other_kind() -> None:
    real, classes = valued(), nasty_graph()
    assert not NodeRegressionOptions().check_data(real) and not NodeClassificationOptions().check_data(classes)
    (problem,) = NodeClassificationOptions().check_data(real)
    assert "set task=node_regression" in problem.fix
    (problem,) = NodeRegressionOptions().check_data(classes)
    assert "set task=node_classification" in problem.fix and "dataset.label_kind=real" in problem.fix
    assert NodeRegressionOptions().check_data(replace(classes, labels=None))[0].fix.startswith("dataset.labels")


def test_real_labels_are_stored_and_checked(tmp_path) -> None:
    graph = valued()
    assert graph.real_labels and not graph.multilabel and not validate_graph(graph, name="g")
    save_graph(graph, tmp_path / "graph")
    found = open_graph(tmp_path / "graph")
    assert found.labels is not None and torch.equal(found.labels.nan_to_num(-1), graph.labels.nan_to_num(-1))
    assert found.real_labels and found.num_classes == 0
    assert graph.labels is not None
    wrong = graph.labels.clone()
    wrong[5], wrong[graph.splits.train[0]] = float("inf"), float("nan")
    said = [str(problem) for problem in validate_graph(replace(graph, labels=wrong, num_classes=2), name="g")]
    assert any("num_classes" in line for line in said) and any("vertex 5: inf" in line for line in said)
    missing = replace(graph, labels=torch.where(torch.arange(60) == graph.splits.train[0], torch.nan, graph.labels))
    assert any("must all have a label" in str(one) for one in validate_graph(missing, name="g"))


def test_labels_of_another_graph_are_judged_in_the_unit_of_the_training_labels() -> None:
    graph, other, task = valued(), valued(offset=5000.0, scale=7.0), NodeRegressionOptions().make()
    task.setup(graph)
    assert graph.labels is not None and other.labels is not None
    train = graph.labels[graph.splits.train].double()
    outputs = ((other.labels.double() - train.mean()) / train.std(correction=0))[:, None]
    judge = task.judging(other)
    found = judge.metrics([judge.score(outputs, torch.arange(other.num_nodes))])
    assert found["mae"] == pytest.approx(0, abs=1e-9) and found["r2"] == pytest.approx(1)
    own = graph.labels[~graph.labels.isnan()].double().tolist()
    assert task.score(outputs, torch.arange(graph.num_nodes))["label"].tolist() == own, "the task keeps its labels"
    [name] = task.predictions(task.values(outputs), [], every=True)
    assert name == "prediction"
