"""Tensor parallelism: coupled layers are exact, decoupled ones equal their serial twin; traffic by its formulas."""

from __future__ import annotations

from typing import Any

import pytest
from full_graph import FULL_MODELS, TENSOR, full_config
from nasty_graphs import nasty_graph
from placement import assert_exact, combinations

TWIN = {"_target_": "full_graph.SerialTwin"}


def _config(name: str, mode: str, dtype: str = "float64", chunks: int = 1, pipeline: bool = False, **changes: Any):
    paradigm = {"_target_": TENSOR, "mode": mode, "chunks": chunks, "pipeline": pipeline}
    return full_config(name, paradigm, dtype, **changes)


@pytest.mark.parametrize(
    ("size", "model", "chunks"),
    combinations([1, 2, 3, 4], FULL_MODELS, [1, 5],
                 quick=lambda size, model, chunks: (size, chunks) in ((3, 1), (2, 5))),
)
def test_coupled_layers_have_the_losses_and_gradients_of_one_worker(ranks, size, model, chunks):
    assert_exact(ranks, size, nasty_graph, _config(model, "coupled", chunks=chunks), 1e-10)


@pytest.mark.parametrize(
    ("size", "model", "chunks", "pipeline"),
    combinations([1, 2, 3, 4], FULL_MODELS, [1, 3, 16], [False, True],
                 quick=lambda size, model, chunks, pipeline: (size, chunks, pipeline) in
                 ((4, 1, False), (3, 3, True), (2, 16, True), (2, 3, False))),
)
def test_decoupled_layers_have_those_of_their_serial_twin(ranks, size, model, chunks, pipeline):
    config = _config(model, "decoupled", chunks=chunks, pipeline=pipeline)
    assert_exact(ranks, size, nasty_graph, config, 1e-10, serial_paradigm=TWIN)


def _simple():
    return nasty_graph(simple=True)


@pytest.mark.parametrize("mode", ["coupled", "decoupled"])
@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_undirected_graphs_and_float32(ranks, model, mode):
    more = {} if mode == "coupled" else {"serial_paradigm": TWIN}
    assert_exact(ranks, 3, _simple, _config(model, mode, "float32", chunks=4), 1e-5, **more)
