"""R-GCN is exact under every paradigm: learned weights and projected edges, counts of relations that are complete."""

from __future__ import annotations

from typing import Any

import pytest
from full_graph import TENSOR, VERTEX
from nasty_graphs import typed_graph
from placement import assert_exact, combinations, cut_parts, parts
from training import small_config

RGCN = {"_target_": "gnnexp.models.rgcn.RGCN"}
MODELS: dict[str, dict[str, Any]] = {
    "basis": RGCN,
    "basis_residual": {**RGCN, "bases": 3, "norm_by": "vertex", "residual": True, "norm": True, "layers": 3},
    "block": {**RGCN, "decomposition": "block", "blocks": 4},
    "block_residual": {**RGCN, "decomposition": "block", "blocks": 4, "norm_by": "vertex", "residual": True,
                       "norm": True, "layers": 3, "hidden": 18},
}
FULL = {"_target_": "gnnexp.samplers.full.FullSampler", "key": "global"}
OFFLOAD = "gnnexp.paradigms.offload.Offload"
PROFILE = {"links": {"network": 1e9}, "flops": 1e11, "gather": 1e10}
NO_DEDUP = {"inter": False, "intra": False}
# By name: the paradigm, how it places (no parts, vertices in parts, edges in parts).
WAYS: dict[str, tuple[dict[str, Any], str]] = {
    "data": ({"_target_": "gnnexp.paradigms.data_parallel.DataParallel"}, ""),
    "split": ({"_target_": "gnnexp.paradigms.split_parallel.SplitParallel"}, "vertices"),
    "projections": ({"_target_": "gnnexp.paradigms.push_pull.PushPull", "pull": "projections"}, ""),
    "aggregates": ({"_target_": "gnnexp.paradigms.push_pull.PushPull", "pull": "aggregates"}, ""),
    "communicate": ({"_target_": VERTEX, "dependency": "communicate"}, "vertices"),
    "cache": ({"_target_": VERTEX, "dependency": "cache"}, "vertices"),
    "hybrid": ({"_target_": VERTEX, "dependency": "hybrid"}, "vertices"),
    "chunks": ({"_target_": VERTEX, "dependency": "communicate", "chunks": 4}, "vertices"),
    "vertex_cut": ({"_target_": VERTEX}, "edges"),
    "coupled": ({"_target_": TENSOR, "mode": "coupled"}, ""),
    "coupled_in_chunks": ({"_target_": TENSOR, "mode": "coupled", "chunks": 5}, ""),
    "offload_raw": ({"_target_": OFFLOAD, "chunks": 5, "rows": "raw"}, "vertices"),
    "offload_projected": ({"_target_": OFFLOAD, "chunks": 5, "rows": "projected", "dedup": NO_DEDUP,
                           "reorganise": False}, "vertices"),
    "offload": ({"_target_": OFFLOAD, "chunks": 16, "host": "file"}, "vertices"),
}
MINI_BATCH = ("data", "split", "projections", "aggregates")


def config_of(way: str, model: str, dtype: str = "float64") -> dict[str, Any]:
    config = small_config(MODELS[model], hardware=PROFILE, train={"dtype": dtype})
    config["paradigm"] = WAYS[way][0]
    if way in ("projections", "aggregates"):
        config["feature_store"] = {"_target_": "gnnexp.feature_stores.sliced.SlicedStore"}
    if way not in MINI_BATCH:
        config["sampler"] = FULL
        config["train"]["batch_size"] = None
    elif config["model"]["layers"] == 3:
        config["sampler"]["fanouts"] = [3, 3, 2]
    return config


def check(ranks: Any, size: int, way: str, model: str, kind: str = "random", bound: float = 1e-10,
          dtype: str = "float64") -> None:
    graph, place = typed_graph(), WAYS[way][1]
    partition = {"": None, "vertices": parts(graph, size, kind), "edges": cut_parts(graph, size, kind)}[place]
    assert_exact(ranks, size, typed_graph, config_of(way, model, dtype), bound, partition=partition, steps=6)


@pytest.mark.parametrize(
    ("size", "way", "model"),
    combinations([1, 2, 3, 4], WAYS, MODELS,
                 quick=lambda size, way, model: size == 3 and model in ("basis", "block_residual")),
)
def test_same_losses_and_gradients_as_one_worker(ranks, size, way, model):
    check(ranks, size, way, model)
