"""R-GCN is exact under every paradigm: learned weights and projected edges, counts of relations that are complete."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from combinations import combinations
from experiments import assembled, data_problems, experiment_in, planned

from gnnexp.comm.environment import read_environment
from gnnexp.datasets.reading.features import feature_rows, features_by_type
from gnnexp.experiment.build import build
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition
from gnnexp.paradigms.base import Paradigm
from gnnexp.placement import cut_graph
from gnnexp.testing.exactness import assert_exact, cut_parts, parts
from gnnexp.testing.graphs import nasty_graph, typed_graph
from gnnexp.testing.steps import Curve, global_losses, run_steps, small_config
from gnnexp.testing.ways import FULL, MINI_BATCH, PROFILE, SLICED, WAYS, placed
from gnnexp.training.assemble import Artifacts
from gnnexp.training.train import probe_memory

RGCN = {"_target_": "gnnexp.models.rgcn.RGCNOptions"}
MODELS: dict[str, dict[str, Any]] = {
    "basis": RGCN,
    "basis_residual": {**RGCN, "bases": 3, "norm_by": "vertex", "residual": True, "norm": True, "layers": 3},
    "block": {**RGCN, "decomposition": "block", "blocks": 4},
    "block_residual": {
        **RGCN,
        "decomposition": "block",
        "blocks": 4,
        "norm_by": "vertex",
        "residual": True,
        "norm": True,
        "layers": 3,
        "hidden": 18,
    },
}
QUICK = 6


def config_of(way: str, model: str, dtype: str = "float64") -> dict[str, Any]:
    config = small_config(MODELS[model], hardware=PROFILE, train={"dtype": dtype})
    config["paradigm"] = WAYS[way][0]
    if way in SLICED:
        config["feature_store"] = {"_target_": "gnnexp.feature_stores.sliced.SlicedOptions"}
    if way not in MINI_BATCH:
        config["sampler"] = FULL
        config["train"]["batch_size"] = None
    elif config["model"]["layers"] == 3:
        config["sampler"]["fanouts"] = [3, 3, 2]
    return config


def check(
    ranks: Any,
    size: int,
    way: str,
    model: str,
    kind: str = "random",
    bound: float = 1e-10,
    dtype: str = "float64",
    steps: int = QUICK,
) -> None:
    partition = placed(way, typed_graph(), size, kind)
    assert_exact(ranks, size, typed_graph, config_of(way, model, dtype), bound, partition=partition, steps=steps)


@pytest.mark.parametrize(
    ("size", "way", "model"),
    combinations(
        [1, 2, 3, 4],
        WAYS,
        MODELS,
        quick=lambda size, way, model: (
            size == 3
            and (
                model == "block_residual"
                if way in ("split", "aggregates", "vertex_cut", "coupled")
                else model == "basis" and way not in ("offload", "offload_raw")
            )
        ),
    ),
)
def test_same_losses_and_gradients_as_one_worker(ranks, size, way, model, steps):
    check(ranks, size, way, model, steps=steps)


@pytest.mark.parametrize(
    ("way", "model", "kind"),
    combinations(
        [way for way, (_, place) in WAYS.items() if place],
        MODELS,
        ["skewed", "empty"],
        quick=lambda way, model, kind: (
            kind == "empty"
            and (way, model) in (("vertex_cut", "block_residual"), ("split", "basis"), ("offload_raw", "block"))
        ),
    ),
)
def test_uneven_and_empty_parts(ranks, way, model, kind, steps):
    """With parts of which some have no edges of some relations, or no edges at all."""
    check(ranks, 3, way, model, kind, steps=steps)


@pytest.mark.parametrize(
    ("way", "model"),
    combinations(
        ["coupled", "vertex_cut"],
        ["basis", "block"],
        quick=lambda *case: case in (("coupled", "block"), ("vertex_cut", "basis")),
    ),
)
def test_float32(ranks, way, model):
    check(ranks, 2 if way == "coupled" else 3, way, model, bound=1e-5, dtype="float32")


@pytest.mark.parametrize(
    ("size", "model", "chunks", "pipeline"),
    combinations(
        [1, 2, 3, 4],
        ["basis", "basis_residual"],
        [1, 3],
        [False, True],
        quick=lambda size, model, chunks, pipeline: (
            (size, model) == (2, "basis") and (chunks, pipeline) in ((1, False), (3, True))
        ),
    ),
)
def test_decoupled_bases_have_those_of_their_serial_twin(ranks, size, model, chunks, pipeline, steps):
    config = config_of("coupled", model)
    config["paradigm"] = {**config["paradigm"], "mode": "decoupled", "chunks": chunks, "pipeline": pipeline}
    twin = {"_target_": "full_graph.SerialTwin"}
    assert_exact(ranks, size, typed_graph, config, 1e-10, steps=steps, serial_paradigm=twin)


@pytest.mark.parametrize(
    ("model", "size", "chunks"),
    combinations(
        ["basis", "block"],
        [2, 3, 4],
        [1, 3],
        quick=lambda model, size, chunks: (model, size, chunks) == ("block", 4, 1),
    ),
)
def test_coupled_ranks_without_columns(ranks, model, size, chunks, steps):
    """Fewer hidden columns or blocks than ranks. Layer 1's rows are features, so only parameters take gradients."""
    config = config_of("coupled", model)
    config["paradigm"] = {**config["paradigm"], "chunks": chunks}
    config["model"] |= {"hidden": 2, "blocks": 1, "bases": 1}
    assert_exact(ranks, size, typed_graph, config, 1e-10, steps=steps)


def test_decoupled_bases_on_ranks_without_columns(ranks, steps):
    config = config_of("coupled", "basis")
    config["paradigm"] = {**config["paradigm"], "mode": "decoupled", "chunks": 3}
    twin = {"_target_": "full_graph.SerialTwin"}
    assert_exact(ranks, 4, _three_classes, config, 1e-10, steps=steps, serial_paradigm=twin)


@pytest.mark.parametrize("mode", ["coupled", pytest.param("decoupled", marks=pytest.mark.slow)])
def test_columns_of_bases_are_filled_up_with_zeros(ranks, mode, steps):
    config = config_of("coupled", "basis_residual")
    config["paradigm"] = {**config["paradigm"], "mode": mode, "pad": True}
    twin = {"serial_paradigm": {"_target_": "full_graph.SerialTwin"}} if mode == "decoupled" else {}
    assert_exact(ranks, 3, _three_classes, config, 1e-10, steps=steps, **twin)


def test_blocks_cannot_be_filled_up():
    experiment = experiment_in(config_of("coupled", "block"))
    padded = replace(experiment, paradigm=replace(experiment.paradigm, pad=True))
    ((key, fix),) = [(problem.key, problem.fix) for problem in padded.paradigm.check(padded)]
    assert key == "paradigm.pad" and "model.decomposition=basis" in fix


def _three_classes() -> Graph:
    return nasty_graph(typed=True, num_classes=3)


@pytest.mark.parametrize("model", ["basis", "block"])
def test_types_travel_where_the_topology_is_partitioned(ranks, model):
    config = config_of("split", model)
    config["sampler"] |= {"topology": "partitioned"}
    assert_exact(ranks, 3, typed_graph, config, 1e-10, steps=QUICK, partition=parts(typed_graph(), 3))


@pytest.mark.parametrize(
    ("model", "pull"),
    combinations(
        ["basis", "block"],
        ["projections", "aggregates"],
        quick=lambda *case: case in (("basis", "projections"), ("block", "aggregates")),
    ),
)
def test_slices_without_columns(ranks, model, pull):
    """More ranks than features."""
    config = config_of(pull, model)
    config["model"] |= {"blocks": 3}
    assert_exact(ranks, 4, narrow_graph, config, 1e-10, steps=QUICK)


@pytest.mark.parametrize(
    ("way", "model"),
    combinations(
        WAYS,
        ["basis", "block"],
        quick=lambda way, model: (way, model) in (("projections", "basis"), ("vertex_cut", "block")),
    ),
)
def test_types_of_vertices_have_input_projections_of_their_own(ranks, way, model, steps):
    """Rows are wider, and that is all that a paradigm sees: 2 of 3 types have features, slices cut through types."""
    size = 3
    graph = graph_by_type()
    partition = placed(way, graph, size)
    assert_exact(ranks, size, graph_by_type, config_of(way, model), 1e-10, partition=partition, steps=steps)


def graph_by_type() -> Graph:
    graph = typed_graph()
    assert isinstance(graph.features, torch.Tensor)
    types = torch.arange(graph.num_nodes) % 3
    rows = graph.features * (types != 1).unsqueeze(1)
    wide = feature_rows(features_by_type(rows.numpy(), types.numpy()), sparse=False, normalize=False)
    assert wide.shape[1] == 3 + 2 * graph.num_features
    return replace(graph, features=wide, node_types=types.to(torch.int32))


def narrow_graph() -> Graph:
    return nasty_graph(num_features=3, typed=True)


def test_parts_lack_relations():
    """Or the comparisons above would not see a number of relations that is a part's own."""
    graph, partition = typed_graph(), cut_parts(typed_graph(), 3)
    assert partition.edge_owner is not None and graph.edge_types is not None
    numbers = [int(graph.edge_types[partition.edge_owner == part].max()) + 1 for part in range(3)]
    assert min(numbers) < graph.num_relations


@pytest.mark.parametrize("model", ["basis", "block"])
def test_counts_of_a_part_would_be_seen(ranks, model):
    """The control: over a vertex-cut a rank's own edges of a relation are not all that a destination has."""
    config, partition = config_of("vertex_cut", model), cut_parts(typed_graph(), 2)
    serial = {**config, "paradigm": small_config(MODELS[model])["paradigm"]}
    expected = global_losses([run_steps(serial, typed_graph(), 1)])[0]
    assert abs(global_losses(ranks(2).run(_own_counts, config, partition))[0] - expected) > 1e-3


def _own_counts(config: dict[str, Any], partition: Partition) -> Curve:
    whole = cut_graph._relation_degree
    try:
        cut_graph._relation_degree = lambda shard: None
        return run_steps(config, typed_graph(), 1, partition)
    finally:
        cut_graph._relation_degree = whole


# --- memory ----------------------------------------------------------------------------------------------------------
def larger_graph() -> Graph:
    return nasty_graph(2000, 12000, 16, 6, typed=True)


@pytest.mark.parametrize(
    ("way", "model", "factor"),
    combinations(
        ["communicate", "coupled", "offload_raw", "offload_projected"],
        MODELS,
        [1, 4],
        quick=lambda way, model, factor: (
            factor == 1 and model == ("basis" if way in ("communicate", "offload_raw") else "block")
        ),
    ),
)
def test_chunks_stay_within_the_smallest_budget_that_is_told(ranks, way, model, factor):
    config = config_of(way, model, "float32")
    config["hardware"] |= {"workers": 2}
    config["paradigm"] = {**config["paradigm"], "chunks": None, "device_memory": 1}
    (problem,) = planned(experiment_in(config), larger_graph()).problems
    assert problem.key == "paradigm.device_memory"
    budget = factor * int(problem.fix.split("=")[1].split()[0])
    config["paradigm"] |= {"device_memory": budget}
    for peak in ranks(2).run(_peak, config):
        assert budget / 10 < peak <= budget


def _peak(config: dict[str, Any]) -> int:
    graph = larger_graph()
    with tempfile.TemporaryDirectory() as folder:
        job, _ = assembled(config, Artifacts(graph, parts(graph, 2)), Path(folder), read_environment())
        peak = probe_memory(job)["device_peak_bytes"]
        job.comm.release()
    return int(peak)


# --- what makes no sense ---------------------------------------------------------------------------------------------
def refused(way: str, model: str, **options: Any) -> list[tuple[str, str]]:
    config = config_of(way, model)
    config["paradigm"] = {**config["paradigm"], **options}
    config["partitioner"] = {"_target_": "gnnexp.partitioners.range.RangePartitioner"}
    return [(p.key, p.fix) for p in build(config["paradigm"], Paradigm).check(experiment_in(config))]


def test_what_the_decompositions_cannot_do_is_refused():
    assert refused("coupled", "block") == refused("coupled", "basis", mode="decoupled") == []
    ((key, fix),) = refused("coupled", "block", mode="decoupled")
    assert key == "model" and "model.decomposition=basis" in fix
    for model in ("basis", "block"):
        assert refused("offload_raw", model, keep="sums") == [("paradigm.keep", "set paradigm.keep=outputs")]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("way", WAYS)
def test_a_graph_without_edges_has_no_relations(way, model):
    graph = typed_graph()
    empty = replace(
        graph, indptr=torch.zeros_like(graph.indptr), indices=graph.indices[:0], edge_types=graph.indices[:0]
    )
    problems = data_problems(config_of(way, model), empty)
    found = [problem.allowed for problem in problems if problem.key == "model"]
    assert found == ["dataset nasty has no edges, so no relations"]
