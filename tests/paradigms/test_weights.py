"""Weighted graphs, samplers that rescale, and models that see rows: exact in every way, or refused."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from combinations import combinations
from experiments import assembled, experiment_in, planned
from weighted import SCALING, remembered, signed_graph, typed_signed_graph

from gnnexp.comm.environment import read_environment
from gnnexp.errors import ConfigError
from gnnexp.experiment.build import experiment_of
from gnnexp.experiment.check import graph_problems
from gnnexp.experiment.seen import facts_of
from gnnexp.graph.graph import Graph
from gnnexp.testing.exactness import assert_exact, compare, parts
from gnnexp.testing.graphs import nasty_graph, typed_graph, weighted_graph
from gnnexp.testing.steps import MODELS, small_config
from gnnexp.testing.ways import MINI_BATCH, WAYS, assert_exact_in, config_in, placed, way_problems
from gnnexp.training.assemble import Artifacts
from gnnexp.training.train import probe_memory

TAKING = ("gcn", "sage", "gin")
RGCN = {"_target_": "gnnexp.models.rgcn.RGCNOptions", "bases": 2}
BLOCK_DIAGONAL = {**RGCN, "decomposition": "block"}
PYG = {"_target_": "gnnexp.models.pyg.PyGOptions"}
CONVOLUTIONS = {
    name: {**PYG, "module": f"torch_geometric.nn.{name}", "options": {"heads": 2, "concat": False}}
    for name in ("GATv2Conv", "TransformerConv")
}
CONVOLUTIONS |= {name: {**PYG, "module": f"plain_modules.{name}"} for name in ("PairMean", "SquareGates")}
# Where a rank has all in-edges and whole rows of a destination.
WHOLE = ("data", "split", "communicate", "cache", "hybrid", "chunks", "offload_raw", "offload")
PLACES = {way: place for place, way in enumerate(WAYS)}


def _weighted(way: str, model: str) -> bool:
    """Every way has degrees of weights, and SAGE's below; each kind of way has GIN's sums without any."""
    if way.startswith("offload"):
        return (way, model) in (("offload", "gcn"), ("offload_raw", "sage"), ("offload_projected", "gin"))
    return model == "gcn" or (model == "gin" and way in ("split", "vertex_cut"))


@pytest.mark.parametrize(("way", "model"), combinations(WAYS, TAKING, quick=_weighted))
def test_weights_are_exact(ranks, way: str, model: str) -> None:
    assert_exact_in(ranks, way, MODELS[model], steps=4, make=weighted_graph)


HEADS = {**MODELS["gat"], "residual": True, "out_heads": 2}
NOT_STATIC = {
    "gat": (MODELS["gat"], signed_graph),
    "gat_heads": ({**HEADS, "self_loops": False, "norm": True}, signed_graph),
    "basis": (RGCN, typed_signed_graph),
    "basis_residual": ({**RGCN, "norm_by": "vertex", "residual": True, "layers": 2}, typed_signed_graph),
    "block": (BLOCK_DIAGONAL, typed_signed_graph),
}
PLACED = {1: "random", 2: "skewed", 3: "random", 4: "empty"}


def _not_static(way: str, model: str, size: int) -> bool:
    """Every way once, mostly with attention; some ways with relations."""
    of_relations = {"split": "block", "vertex_cut": "basis", "aggregates": "basis", "communicate": "block"}
    place = PLACES[way]
    return (size, model) == (2 + place % 3, ("gat", "gat_heads")[place % 2]) or (
        size == 4 - place % 3 and of_relations.get(way) == model
    )


@pytest.mark.parametrize(("way", "model", "size"), combinations(WAYS, NOT_STATIC, PLACED, quick=_not_static))
def test_weights_of_attention_and_relations_are_exact(ranks, way: str, model: str, size: int) -> None:
    """Weights from -1 to 1, some 0, over skewed and empty parts."""
    options, make = NOT_STATIC[model]
    assert_exact_in(ranks, way, options, size, steps=4, kind=PLACED[size], make=make)


@pytest.mark.parametrize(
    ("way", "model", "kernel"),
    combinations(
        ["data", "vertex_cut", "offload"],
        ["gat", "basis", "block"],
        ["torch", "dgl"],
        quick=lambda *case: case in (("data", "gat", "dgl"), ("offload", "gat", "torch"), ("data", "block", "torch")),
    ),
)
def test_other_kernels_weigh_attention_and_relations(ranks, way: str, model: str, kernel: str) -> None:
    options, make = NOT_STATIC[model]
    assert_exact_in(ranks, way, {**options, "kernel": kernel}, 2, steps=4, make=make)


@pytest.mark.parametrize(
    ("way", "size"),
    combinations(
        WAYS, [1, 2, 4], quick=lambda way, size: size == (4, 2)[PLACES[way] % 2] or (way, size) == ("communicate", 1)
    ),
)
def test_on_any_number_of_ranks(ranks, way: str, size: int) -> None:
    kind = "empty" if size == 4 else "random"
    assert_exact_in(ranks, way, {**MODELS["sage"], "residual": True}, size, steps=4, kind=kind, make=signed_graph)


@pytest.mark.parametrize(
    ("pipeline", "model"),
    combinations([False, True], TAKING, quick=lambda pipeline, model: pipeline == (model != "sage")),
)
def test_the_decoupled_twin_weighs_its_propagations(ranks, model: str, pipeline: bool) -> None:
    decoupled = {"_target_": WAYS["coupled"][0]["_target_"], "mode": "decoupled"}
    config = config_in("coupled", MODELS[model], hardware={"workers": 3})
    config["paradigm"] = {**decoupled, "chunks": 5, "pipeline": pipeline}
    assert_exact(ranks, 3, weighted_graph, config, 1e-10, steps=4, serial_paradigm=decoupled)


@pytest.mark.parametrize(
    ("model", "work", "pipeline"),
    combinations(
        ["gat", "basis"],
        ["shared", "replicated"],
        [False, True],
        quick=lambda *case: case in (("gat", "shared", True), ("basis", "shared", False)),
    ),
)
def test_the_twin_weighs_attention_and_relations(ranks, model: str, work: str, pipeline: bool) -> None:
    decoupled = {"_target_": WAYS["coupled"][0]["_target_"], "mode": "decoupled"}
    options, make = NOT_STATIC[model]
    config = config_in("coupled", options, hardware={"workers": 3})
    config["paradigm"] = {**decoupled, "chunks": 5, "pipeline": pipeline, "attention_work": work}
    assert_exact(ranks, 3, make, config, 1e-10, steps=4, serial_paradigm=decoupled)


@pytest.mark.parametrize("sampler", [{}, SCALING], ids=["", "scaled"])
@pytest.mark.parametrize("model", ["gcn", "sage", "gat_heads", "block"])
def test_a_partitioned_topology_sends_weights(ranks, model: str, sampler: dict[str, Any]) -> None:
    options, make = NOT_STATIC[model] if model in NOT_STATIC else (MODELS[model], weighted_graph)
    config = config_in("data", options, sampler={**sampler, "topology": "partitioned"}, hardware={"workers": 3})
    config["paradigm"] = {**config["paradigm"], "assign": "owner"}
    assert_exact(ranks, 3, make, config, 1e-10, steps=4, partition=placed("split", make(), 3))


SCALED = [
    ("weighted", "gcn"),
    ("weighted", "sage"),
    ("weighted", "gin"),
    ("plain", "sage"),
    ("plain", "gat"),
    ("typed", "basis"),
    ("typed", "block"),
]
GRAPHS = {"weighted": weighted_graph, "plain": nasty_graph, "typed": typed_graph}


@pytest.mark.parametrize(
    ("way", "scaled"),
    combinations(MINI_BATCH, SCALED, quick=lambda way, scaled: (PLACES[way] + SCALED.index(scaled)) % 4 == 0),
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_scales_are_exact(ranks, way: str, scaled: tuple[str, str]) -> None:
    make, model = GRAPHS[scaled[0]], scaled[1]
    chosen = {**MODELS, "basis": RGCN, "block": BLOCK_DIAGONAL}[model]
    assert_exact_in(ranks, way, chosen, steps=4, make=make, sampler=SCALING)


@pytest.mark.parametrize(
    "way", ["data", "communicate", *(pytest.param(way, marks=pytest.mark.slow) for way in ("split", "offload"))]
)
def test_weights_that_one_rank_forgets_are_found(ranks, way: str) -> None:
    with pytest.raises(AssertionError, match="differs"):
        assert_exact_in(ranks, way, {"_target_": "weighted.Forgetful"}, steps=2, make=weighted_graph)


def test_a_shards_own_sums_of_weights_are_found(ranks) -> None:
    """A destination's edges are on several ranks: what one has of them is another sum."""
    config = config_in("vertex_cut", MODELS["sage"], hardware={"workers": 3})
    config["paradigm"] = {**config["paradigm"], "_target_": "weighted.OwnDegrees"}
    found = compare(ranks, 3, weighted_graph, config, steps=2, partition=placed("vertex_cut", weighted_graph(), 3))
    assert found.loss_error > 1e-4


@pytest.mark.parametrize(
    ("way", "name"),
    combinations(
        WAYS,
        CONVOLUTIONS,
        quick=lambda way, name: (
            way not in WHOLE or list(CONVOLUTIONS).index(name) == (WHOLE.index(way) + WHOLE.index(way) // 4) % 4
        ),
    ),
)
def test_pyg_modules_are_exact_or_refused(ranks, way: str, name: str) -> None:
    if way in WHOLE:
        assert_exact_in(ranks, way, CONVOLUTIONS[name], steps=4)
        return
    config = config_in(way, CONVOLUTIONS[name], hardware={"workers": 3})
    assert way_problems(config) or way == "offload_projected"  # which reads raw rows of layers like these


@pytest.mark.parametrize("way", WAYS)
def test_rows_of_a_layer_are_seen_before_dropout(ranks, way: str) -> None:
    """The rows that one worker sees, whatever rank finished them; where chunks are run twice they are refused."""
    model = {"_target_": "weighted.Remembering", "dropout": 0.5}
    config = config_in(way, model, hardware={"workers": 3})
    if way.startswith("offload"):
        assert [problem.key for problem in way_problems(config)] == ["model"]
        return
    serial = config_in("data" if way in MINI_BATCH else "communicate", model, hardware={"workers": 1})
    (expected,) = ranks(1).run(remembered, serial, 1, placed("communicate", weighted_graph(), 1))
    seen = ranks(3).run(remembered, config, 1, placed(way, weighted_graph(), 3))
    for layer in (0, 1):
        assert {vertex for own in seen for at, vertex in own if at == layer} == {
            vertex for at, vertex in expected if at == layer
        }
    for own in seen:
        for place, rows in own.items():
            for row in rows:
                torch.testing.assert_close(row, expected[place][0])
    assert any((row < 0).any() for rows in expected.values() for row in rows)  # logits
    assert all((row >= 0).all() for place, rows in expected.items() if place[0] == 0 for row in rows)


def test_decoupled_layers_are_not_seen() -> None:
    config = config_in("coupled", {"_target_": "weighted.Remembering"}, hardware={"workers": 3})
    config["paradigm"] = {**config["paradigm"], "mode": "decoupled"}
    assert [problem.key for problem in way_problems(config)] == ["model"]


def dense_graph(typed: bool) -> Graph:
    """Edges take most of a chunk's memory."""
    graph = nasty_graph(200, 20000, 8, 8, typed=typed)
    return replace(graph, edge_weights=torch.linspace(-1, 1, graph.num_edges))


@pytest.mark.parametrize(
    ("way", "model", "heads"),
    combinations(
        ["communicate", "coupled", "offload_projected"],
        ["gat", "basis"],
        [2, 8],
        quick=lambda way, model, heads: heads == (8 if model == "gat" else 2) and (way != "coupled" or model == "gat"),
    ),
)
def test_weights_that_are_not_static_stay_in_the_budget(ranks, way: str, model: str, heads: int) -> None:
    """Chunks with weights, products and gradients fit into the smallest budget that is named."""
    kind = {"heads": heads, "attention_dropout": 0.3} if model == "gat" else {"bases": heads}
    config = config_in(way, {**NOT_STATIC[model][0], "hidden": 8, **kind}, train={"dtype": "float32"})
    config["paradigm"] = {**config["paradigm"], "chunks": None, "device_memory": 1}
    (problem,) = planned(experiment_in(config), dense_graph(model != "gat")).problems
    budget = int(problem.fix.split("=")[1].split()[0])
    for factor in (1, 3):
        config["paradigm"]["device_memory"] = factor * budget
        (peak,) = ranks(1).run(_peak, config, model != "gat")
        assert 0 < peak <= factor * budget


def _peak(config: dict[str, Any], typed: bool) -> int:
    graph = dense_graph(typed)
    with tempfile.TemporaryDirectory() as folder:
        job, _ = assembled(config, Artifacts(graph, parts(graph, 1)), Path(folder), read_environment())
        peak = probe_memory(job)["device_peak_bytes"]
        job.comm.release()
    return int(peak)


def refused(model: dict[str, Any], **changes: Any) -> list[str]:
    config = small_config(model)
    config.update(changes)
    experiment = experiment_of(config)
    graph = weighted_graph() if "graph" not in changes else changes["graph"]
    return [problem.key for problem in graph_problems(experiment, graph, facts_of(experiment, graph))]


def test_what_has_no_formula_refuses_the_graph_before_work_starts() -> None:
    assert refused({"_target_": "gnnexp.models.sage_pool.SAGEPoolOptions"}) == ["model"]
    assert refused({**MODELS["gcn"], "degrees": "block"}) == ["model.degrees"]
    assert refused(MODELS["gcn"]) == refused(MODELS["sage"]) == refused(MODELS["gat"]) == []
    assert refused(RGCN, graph=typed_signed_graph()) == refused(BLOCK_DIAGONAL, graph=typed_signed_graph()) == []
    for paradigm in ("dgl_reference.DGLReference", "dgl_full_graph.DGLFullGraph"):
        assert refused(MODELS["sage"], paradigm={"_target_": f"gnnexp.paradigms.{paradigm}"}) == ["dataset"]


def test_negative_degrees_have_no_root() -> None:
    experiment, graph = experiment_of(small_config(MODELS["gcn"])), signed_graph()
    (problem,) = graph_problems(experiment, graph, facts_of(experiment, graph))
    assert problem.key == "dataset" and "square root" in problem.allowed


def test_ordinary_layers_refuse_samplers_that_rescale() -> None:
    config = small_config({"_target_": "gnnexp.models.sage_pool.SAGEPoolOptions"}, sampler=SCALING)
    assert [problem.key for problem in experiment_of(config).model.check(experiment_of(config).setting)] == ["sampler"]


def test_dgls_loader_does_not_rescale() -> None:
    paradigm = {"_target_": "gnnexp.paradigms.dgl_reference.DGLReference"}
    experiment = experiment_of(small_config(MODELS["sage"], sampler=SCALING, paradigm=paradigm))
    assert [problem.key for problem in experiment.paradigm.check(experiment)] == ["sampler"]


def test_a_module_must_read_in_edges_only() -> None:
    for module, options, words in (
        ("GCNConv", {}, "in-neighbours"),
        ("GATv2Conv", {"heads": 2}, "must give"),
        ("GATv2Conv", {"dropout": 0.5}, "dropout of its own"),
        ("NoConv", {}, "no class"),
        ("GATv2Conv", {"wings": 2}, "raised"),
        ("plain_modules.SourceDegrees", {}, "in-neighbours"),
    ):
        name = module if "." in module else f"torch_geometric.nn.{module}"
        model = {**PYG, "module": name, "options": options}
        (problem,) = experiment_of(small_config(model)).model.problems()
        assert problem.key == "model.module" and words in problem.allowed
    with pytest.raises(ConfigError, match="no class"):
        experiment_of(small_config({**PYG, "module": "torch_geometric.nn.NoConv"})).model.make_layer(0, 8, 8)
