"""Graphs and configurations with fewer columns than ranks: of features, hidden layers and outputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from full_graph import tensor_config

from gnnexp.graph.graph import Graph
from gnnexp.testing.graphs import nasty_graph

REGRESSION = {"_target_": "gnnexp.tasks.node_regression.NodeRegressionOptions"}


def _one_column() -> Graph:
    graph = nasty_graph(num_features=1)
    return replace(graph, labels=torch.randn(60, generator=torch.Generator().manual_seed(4)), num_classes=0)


def _two_columns() -> Graph:
    return nasty_graph(num_features=2, num_classes=2)


def _three_columns() -> Graph:
    return nasty_graph(num_features=3, num_classes=3)


NARROW = {1: _one_column, 2: _two_columns, 3: _three_columns}


def narrow_config(model: str, columns: int, mode: str, **paradigm: Any) -> dict[str, Any]:
    """Features, classes and hidden layers of 1 to 3 columns; one column of outputs is a regression's."""
    changes = {"task": REGRESSION} if columns == 1 else {}
    config = tensor_config(model, mode, model={"hidden": 2}, **changes)
    config["paradigm"] |= paradigm
    return config
