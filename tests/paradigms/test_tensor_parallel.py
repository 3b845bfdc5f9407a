"""Tensor parallelism: coupled layers are exact, decoupled ones equal their serial twin; traffic by its formulas."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from combinations import combinations
from experiments import assembled, data_problems
from full_graph import FULL_MODELS, TWIN, tensor_config
from narrow_columns import NARROW, narrow_config
from sparse_graphs import mostly_zero

from gnnexp.comm.environment import read_environment
from gnnexp.errors import ConfigError, DataError
from gnnexp.experiment.build import build
from gnnexp.graph.graph import Graph
from gnnexp.paradigms.base import Paradigm
from gnnexp.testing.exactness import assert_exact
from gnnexp.testing.graphs import csc, half_without_in_edges, nasty_graph
from gnnexp.testing.steps import MODELS
from gnnexp.testing.ways import TENSOR
from gnnexp.training.assemble import Artifacts


@pytest.mark.parametrize(
    ("size", "model", "chunks"),
    combinations(
        [1, 2, 3, 4],
        FULL_MODELS,
        [1, 5],
        quick=lambda size, model, chunks: (size, chunks) == ((2, 5) if model == "gat_residual" else (3, 1)),
    ),
)
def test_coupled_layers_have_the_losses_and_gradients_of_one_worker(ranks, size, model, chunks, steps):
    steps = 20 if chunks == 1 and model == "gat" else steps
    assert_exact(ranks, size, nasty_graph, tensor_config(model, "coupled", chunks=chunks), 1e-10, steps=steps)


@pytest.mark.parametrize(
    ("order", "size", "model", "chunks"),
    combinations(
        ["project", "cheapest"],
        [1, 2, 3, 4],
        FULL_MODELS,
        [1, 5],
        quick=lambda order, size, model, chunks: (
            (order, size, chunks)
            == {
                "gcn": ("project", 3, 5),
                "sage": ("cheapest", 3, 1),
                "gin": ("cheapest", 2, 5),
                "written_here": ("project", 4, 1),
            }.get(model)
        ),
    ),
)
def test_coupled_layers_are_exact_in_any_order(ranks, order, size, model, chunks, steps):
    config = tensor_config(model, "coupled", chunks=chunks)
    config["paradigm"]["order"] = order
    assert_exact(ranks, size, nasty_graph, config, 1e-10, steps=steps)


@pytest.mark.parametrize(
    ("size", "model", "chunks", "pipeline"),
    combinations(
        [1, 2, 3, 4],
        FULL_MODELS,
        [1, 3, 16],
        [False, True],
        quick=lambda size, model, chunks, pipeline: (
            (size, chunks, pipeline)
            == {
                "gat_residual": (4, 1, False),
                "gcn": (2, 16, True),
                "written_here": (2, 3, False),
            }.get(model, (3, 3, True))
        ),
    ),
)
def test_decoupled_layers_have_those_of_their_serial_twin(ranks, size, model, chunks, pipeline, steps):
    config = tensor_config(model, "decoupled", chunks=chunks, pipeline=pipeline)
    steps = 20 if chunks == 3 and pipeline and model == "gat" else steps
    assert_exact(ranks, size, nasty_graph, config, 1e-10, serial_paradigm=TWIN, steps=steps)


@pytest.mark.parametrize(
    ("work", "size", "chunks", "pipeline"),
    combinations(
        ["replicated", "halo", "cheapest"],
        [2, 3, 4],
        [1, 3, 16],
        [False, True],
        quick=lambda work, size, chunks, pipeline: (
            (work, size, chunks, pipeline) in [("replicated", 2, 1, False), ("halo", 2, 1, False), ("halo", 4, 3, True)]
        ),
    ),
)
def test_attention_is_the_same_whoever_weighs_the_edges(ranks, work, size, chunks, pipeline, steps):
    config = tensor_config("gat_residual", "decoupled", chunks=chunks, pipeline=pipeline, model={"out_heads": 2})
    config["paradigm"]["attention_work"] = work
    assert_exact(ranks, size, nasty_graph, config, 1e-10, serial_paradigm=TWIN, steps=steps)


@pytest.mark.parametrize(
    ("size", "model", "blocks", "nn_device", "work"),
    combinations(
        [2, 3, 4],
        ["gcn", "sage", "gat_residual", "written_here"],
        [2, 5, 60],
        ["device", "host"],
        ["shared", "replicated"],
        quick=lambda *case: (
            case
            in (
                (2, "gcn", 5, "host", "shared"),
                (3, "gat_residual", 2, "device", "shared"),
                (2, "gat_residual", 60, "host", "replicated"),
            )
        ),
    ),
)
def test_dense_updates_in_blocks_give_the_same(ranks, size, model, blocks, nn_device, work, steps):
    """Also with more blocks than rows: some are empty."""
    config = tensor_config(model, "decoupled", chunks=4, pipeline=True)
    config["paradigm"] |= {"dense_blocks": blocks, "nn_device": nn_device}
    if model == "gat_residual":
        config["paradigm"]["attention_work"] = work
    assert_exact(ranks, size, nasty_graph, config, 1e-10, serial_paradigm=TWIN, steps=steps)


@pytest.mark.parametrize("inputs", ["sparse", "trained"])
def test_dense_updates_in_blocks_read_sparse_and_trained_rows(ranks, inputs, steps):
    config = tensor_config("gcn", "decoupled", chunks=4, pipeline=True)
    config["paradigm"]["dense_blocks"] = 3
    if inputs == "trained":
        config["feature_store"] = {"_target_": "gnnexp.feature_stores.embedding.EmbeddingOptions", "dim": 5}
    graph = mostly_zero if inputs == "sparse" else nasty_graph
    assert_exact(ranks, 2, graph, config, 1e-10, serial_paradigm=TWIN, steps=steps)


@pytest.mark.parametrize(
    ("pipeline", "model"),
    combinations(
        [False, True], ["gcn", "gat_residual"], quick=lambda pipeline, model: pipeline == (model == "gat_residual")
    ),
)
def test_dense_updates_on_the_host_give_the_same(ranks, model, pipeline, steps):
    config = tensor_config(model, "decoupled", chunks=3 if pipeline else 1, pipeline=pipeline)
    config["paradigm"]["nn_device"] = "host"
    assert_exact(ranks, 2, nasty_graph, config, 1e-10, serial_paradigm=TWIN, steps=steps)


def _simple():
    return nasty_graph(simple=True)


@pytest.mark.parametrize(
    ("model", "mode"),
    combinations(
        ["gcn", "gat"], ["coupled", "decoupled"], quick=lambda *case: case in (("gcn", "decoupled"), ("gat", "coupled"))
    ),
)
def test_undirected_graphs_and_float32(ranks, model, mode, steps):
    more = {} if mode == "coupled" else {"serial_paradigm": TWIN}
    assert_exact(ranks, 3, _simple, tensor_config(model, mode, "float32", chunks=4), 1e-5, steps=steps, **more)


@pytest.mark.parametrize(
    ("chosen", "kernel"),
    combinations(
        [("coupled", "gcn"), ("decoupled", "gcn"), ("decoupled", "sage")],
        ["torch", "numba"],
        quick=lambda chosen, kernel: kernel == ("numba" if chosen == ("decoupled", "gcn") else "torch"),
    ),
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_chunks_without_edges(ranks, chosen, kernel, steps):
    """Gradients of their sources are zeros, which a layer scales or adds to in place."""
    mode, model = chosen
    more = {} if mode == "coupled" else {"serial_paradigm": TWIN}
    config = tensor_config(model, mode, chunks=9, model={"kernel": kernel})
    assert_exact(ranks, 2, half_without_in_edges, config, 1e-10, steps=steps, **more)


PADDED_WAYS: dict[str, dict[str, Any]] = {
    "coupled": {"mode": "coupled"},
    "coupled in chunks": {"mode": "coupled", "chunks": 3},
    "cheapest": {"mode": "coupled", "order": "cheapest"},
    "decoupled": {"mode": "decoupled"},
    "decoupled in chunks": {"mode": "decoupled", "chunks": 3},
    "pipelined": {"mode": "decoupled", "chunks": 3, "pipeline": True, "nn_device": "host"},
    "in blocks": {"mode": "decoupled", "chunks": 3, "pipeline": True, "dense_blocks": 3},
}


@pytest.mark.parametrize(
    ("size", "model", "way"),
    combinations(
        [1, 2, 3, 4],
        FULL_MODELS,
        PADDED_WAYS,
        quick=lambda size, model, way: (
            (size, model)
            == {
                "coupled": (3, "gcn"),
                "coupled in chunks": (4, "gat"),
                "cheapest": (3, "sage"),
                "decoupled": (3, "gin"),
                "pipelined": (4, "gat_residual"),
                "in blocks": (3, "sage"),
            }.get(way)
        ),
    ),
)
def test_columns_filled_up_with_zeros_change_nothing(ranks, size, model, way, steps):
    """13 features, 16 hidden columns and 4 classes: filled up to 15, 18 and 6 on three ranks."""
    config = tensor_config(model, "coupled")
    config["paradigm"] |= {**PADDED_WAYS[way], "pad": True}
    twin = {"serial_paradigm": TWIN} if config["paradigm"]["mode"] == "decoupled" else {}
    assert_exact(ranks, size, nasty_graph, config, 1e-10, steps=steps, **twin)


def test_sparse_rows_are_filled_up_once_they_are_projected(ranks, steps):
    config = tensor_config("gat", "coupled")
    config["paradigm"]["pad"] = True
    assert_exact(ranks, 3, mostly_zero, config, 1e-10, steps=steps)


# --- fewer columns than ranks ----------------------------------------------------------------------------------------
NARROW_MODELS = [*MODELS, "written_here"]
DECOUPLED_WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "chunks": {"chunks": 3},
    "pipeline": {"chunks": 3, "pipeline": True},
    "host": {"chunks": 3, "pipeline": True, "nn_device": "host"},
    "replicated": {"attention_work": "replicated"},
    "halo": {"chunks": 3, "pipeline": True, "attention_work": "halo"},
    "padded": {"chunks": 3, "pipeline": True, "pad": True},
    "blocks": {"chunks": 3, "pipeline": True, "dense_blocks": 2},
    "resident": {"chunks": 3, "resident_memory": "fit"},
}


@pytest.mark.parametrize(
    ("columns", "size", "model", "chunks"),
    combinations(
        NARROW,
        [2, 3, 4],
        NARROW_MODELS,
        [1, 3],
        quick=lambda columns, size, model, chunks: (
            (columns, size, chunks)
            == {"gcn": (1, 4, 3), "sage": (2, 3, 1), "gat": (3, 4, 3), "gin": (1, 2, 1)}.get(model)
        ),
    ),
)
def test_coupled_layers_of_fewer_columns_than_ranks(ranks, columns, size, model, chunks, steps):
    config = narrow_config(model, columns, "coupled", chunks=chunks)
    assert_exact(ranks, size, NARROW[columns], config, 1e-10, steps=steps)


def test_a_layer_whose_sums_depend_on_nothing(ranks, steps):
    """An MLP's sums are new zeros: autograd would leave out their exchanges, on ranks with columns only."""
    config = narrow_config("gcn", 2, "coupled")
    config["model"]["_target_"] = "gnnexp.models.mlp.MLPOptions"
    for order in ("aggregate", "project"):
        config["paradigm"]["order"] = order
        assert_exact(ranks, 4, NARROW[2], config, 1e-10, steps=steps)


@pytest.mark.parametrize(
    ("columns", "size", "model", "way"),
    combinations(
        NARROW,
        [2, 3, 4],
        NARROW_MODELS,
        DECOUPLED_WAYS,
        quick=lambda columns, size, model, way: (
            (columns, size, model, way)
            in [
                (1, 2, "gcn", "plain"),
                (3, 4, "sage", "chunks"),
                (2, 3, "gin", "pipeline"),
                (1, 4, "gat", "host"),
                (2, 4, "gat", "halo"),
                (1, 3, "gat", "plain"),
                (1, 3, "gcn", "padded"),
                (2, 3, "gat", "blocks"),
            ]
        ),
    ),
)
def test_decoupled_layers_of_fewer_columns_than_ranks(ranks, columns, size, model, way, steps):
    config = narrow_config(model, columns, "decoupled", **DECOUPLED_WAYS[way])
    assert_exact(ranks, size, NARROW[columns], config, 1e-10, serial_paradigm=TWIN, steps=steps)


def _three_vertices() -> Graph:
    """Loops, a parallel edge, two columns."""
    wide, graph = NARROW[2](), csc(3, np.array([0, 1, 2, 0, 2]), np.array([1, 1, 0, 0, 2]))
    splits = replace(wide.splits, train=torch.arange(3), val=torch.tensor([0]), test=torch.tensor([1]))
    assert isinstance(wide.features, torch.Tensor)
    return replace(graph, features=wide.features[:3], labels=torch.tensor([0, 1, 1]), num_classes=2, splits=splits)


@pytest.mark.parametrize(
    ("mode", "work"),
    [
        ("decoupled", "halo"),
        pytest.param("coupled", "shared", marks=pytest.mark.slow),
        pytest.param("decoupled", "shared", marks=pytest.mark.slow),
        pytest.param("decoupled", "replicated", marks=pytest.mark.slow),
    ],
)
def test_fewer_columns_and_fewer_vertices_than_ranks(ranks, mode, work, steps):
    config = narrow_config("gat", 2, mode, chunks=2, attention_work=work)
    more = {} if mode == "coupled" else {"serial_paradigm": TWIN}
    assert_exact(ranks, 4, _three_vertices, config, 1e-10, steps=steps, **more)


# --- what makes no sense ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"mode": "both"}, "mode"),
        ({"chunks": 0}, "chunks"),
        ({"chunks": None}, "chunks"),
        ({"device_memory": 0}, "device_memory"),
        ({"chunks": 3, "device_memory": 10}, "chunks"),
        ({"pipeline": True}, "pipeline"),
        ({"mode": "decoupled", "dense_blocks": 2}, "dense_blocks"),
        ({"mode": "decoupled", "pipeline": True, "dense_blocks": 0}, "dense_blocks"),
        ({"attention": "stolen"}, "attention"),
        ({"attention": "frozen"}, "attention"),
        ({"attention_work": "none"}, "attention_work"),
        ({"attention_work": "replicated"}, "attention_work"),
        ({"order": "both"}, "order"),
        ({"mode": "decoupled", "order": "cheapest"}, "order"),
        ({"nn_device": "host"}, "nn_device"),
        ({"mode": "decoupled", "nn_device": "moon"}, "nn_device"),
    ],
)
def test_options_that_make_no_sense(options, key):
    with pytest.raises(ConfigError) as error:
        build({"_target_": TENSOR, **options}, Paradigm, "paradigm")
    assert [problem.key.removeprefix("paradigm.") for problem in error.value.problems] == [key]


def test_a_budget_below_the_largest_vertex():
    config = tensor_config("gcn", "decoupled")
    config["paradigm"] |= {"chunks": None, "device_memory": 5000}
    problems = [p for p in data_problems(config, nasty_graph()) if p.key == "paradigm.device_memory"]
    assert len(problems) == 1 and "in-edges" in problems[0].allowed
    enough = int(problems[0].fix.split("=")[1].split()[0])
    config["paradigm"]["device_memory"] = enough
    assert not [p for p in data_problems(config, nasty_graph()) if p.key == "paradigm.device_memory"]
    with tempfile.TemporaryDirectory() as folder:
        assembled(config, Artifacts(nasty_graph()), Path(folder), read_environment())
        config["paradigm"]["device_memory"] = 5000
        with pytest.raises(DataError):
            assembled(config, Artifacts(nasty_graph()), Path(folder), read_environment())
