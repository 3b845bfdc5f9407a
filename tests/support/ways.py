"""Every exact way of training, by name: the paradigm and how it places the graph."""

from __future__ import annotations

from typing import Any

from full_graph import TENSOR, VERTEX
from placement import cut_parts, parts

from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition

FULL = {"_target_": "gnnexp.samplers.full.FullSampler", "key": "global"}
PROFILE = {"links": {"network": 1e9}, "flops": 1e11, "gather": 1e10}
OFFLOAD = "gnnexp.paradigms.offload.Offload"
_NO_DEDUP = {"inter": False, "intra": False}
# How it places: no parts, vertices in parts, edges in parts.
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
    "offload_projected": ({"_target_": OFFLOAD, "chunks": 5, "rows": "projected", "dedup": _NO_DEDUP,
                           "reorganise": False}, "vertices"),
    "offload": ({"_target_": OFFLOAD, "chunks": 16, "host": "file"}, "vertices"),
}
MINI_BATCH = ("data", "split", "projections", "aggregates")
SLICED = ("projections", "aggregates")


def placed(way: str, graph: Graph, size: int, kind: str = "random") -> Partition | None:
    """The partition that a way needs, if any."""
    return {"": None, "vertices": parts(graph, size, kind), "edges": cut_parts(graph, size, kind)}[WAYS[way][1]]
