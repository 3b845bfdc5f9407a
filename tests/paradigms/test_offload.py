"""Offloaded training is exact however the graph is cut, whatever is kept, wherever it lies; counts are formulas."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from combinations import combinations
from experiments import assembled, experiment_in, planned
from full_graph import FULL_MODELS, full_config

from gnnexp.comm.environment import read_environment
from gnnexp.graph.graph import Graph
from gnnexp.paradigms.offload import Offload, OffloadTrainer
from gnnexp.testing.exactness import assert_exact, parts
from gnnexp.testing.graphs import half_without_in_edges, nasty_graph
from gnnexp.training.assemble import Artifacts
from gnnexp.training.train import probe_memory

OFFLOAD = "gnnexp.paradigms.offload.Offload"
NONE, INTER, INTRA, BOTH = (
    {"inter": False, "intra": False},
    {"inter": True, "intra": False},
    {"inter": False, "intra": True},
    {"inter": True, "intra": True},
)
WAYS: dict[str, dict[str, Any]] = {
    "base": {"dedup": NONE, "reorganise": False, "keep": "paper", "rows": "raw"},
    "base_outputs": {"dedup": NONE, "reorganise": False, "keep": "outputs", "rows": "raw"},
    "inter": {"dedup": INTER, "reorganise": False, "keep": "paper", "rows": "projected"},
    "inter_outputs": {"dedup": INTER, "reorganise": False, "keep": "outputs", "rows": "raw"},
    "intra": {"dedup": INTRA, "reorganise": False, "keep": "paper", "rows": "cheapest"},
    "intra_outputs": {"dedup": INTRA, "reorganise": False, "keep": "outputs", "rows": "projected"},
    "both": {"dedup": BOTH, "reorganise": True, "keep": "paper", "rows": "projected"},
    "both_outputs": {"dedup": BOTH, "reorganise": True, "keep": "outputs", "rows": "projected"},
    "both_raw": {"dedup": BOTH, "reorganise": True, "keep": "paper", "rows": "raw"},
    "both_in_order": {"dedup": BOTH, "reorganise": False, "keep": "cheapest", "rows": "cheapest"},
    "file": {"dedup": BOTH, "reorganise": True, "keep": "paper", "rows": "projected", "host": "file"},
    "file_outputs": {"dedup": BOTH, "reorganise": True, "keep": "outputs", "rows": "cheapest", "host": "file"},
}
# Every model and every kind of way once, on one rank and several.
QUICK = {
    (1, 5, "gcn", "both"),
    (2, 5, "gcn", "both_outputs"),
    (2, 5, "written_here", "both_outputs"),
    (2, 5, "gat", "both_outputs"),
    (2, 5, "gat_residual", "both_raw"),
    (2, 5, "residual", "file_outputs"),
    (2, 5, "gin", "inter_outputs"),
    (3, 16, "sage", "both"),
}


def _config(name: str, way: str, chunks: int, dtype: str = "float64", **changes: Any) -> dict[str, Any]:
    return full_config(name, {"_target_": OFFLOAD, "chunks": chunks, **WAYS[way]}, dtype, **changes)


@pytest.mark.parametrize(
    ("size", "chunks", "model", "way"),
    combinations([1, 2, 3, 4], [1, 5, 16], FULL_MODELS, WAYS, quick=lambda *case: case in QUICK),
)
def test_same_losses_and_gradients_as_one_worker(ranks, size, chunks, model, way, steps):
    steps = 20 if (way, model) == ("both_outputs", "gcn") else steps
    assert_exact(ranks, size, nasty_graph, _config(model, way, chunks), 1e-10, num_parts=size, steps=steps)


@pytest.mark.parametrize("way", combinations(["base_outputs", "both", "both_outputs"], quick=lambda way: way == "both"))
def test_float32(ranks, way, steps):
    assert_exact(ranks, 3, nasty_graph, _config("gat", way, 5, "float32"), 1e-5, num_parts=3, steps=steps)


@pytest.mark.parametrize(
    ("model", "way", "kind"),
    combinations(
        FULL_MODELS,
        WAYS,
        ["skewed", "empty"],
        quick=lambda model, way, kind: model == "gat_residual" and kind == "empty" and way == "both",
    ),
)
def test_uneven_and_empty_parts(ranks, model, way, kind, steps):
    assert_exact(ranks, 3, nasty_graph, _config(model, way, 7), 1e-10, num_parts=3, kind=kind, steps=steps)


@pytest.mark.parametrize("way", combinations(WAYS, quick=lambda way: way in ("base", "intra_outputs", "file")))
def test_ordinary_layers_run_unchanged(ranks, way, steps):
    config = _config("sage", way, 4)
    config["model"] = {**config["model"], "_target_": "gnnexp.models.sage_pool.SAGEPoolOptions"}
    config["paradigm"]["rows"] = "cheapest"
    assert_exact(ranks, 2, nasty_graph, config, 1e-10, num_parts=2, steps=steps)


@pytest.mark.parametrize("way", ["both_outputs", pytest.param("base_outputs", marks=pytest.mark.slow)])
def test_keys_that_projected_rows_do_not_tell(ranks, way, steps):
    model = {"_target_": "full_graph.Keyed", "residual": True, "layers": 3}
    assert_exact(ranks, 2, nasty_graph, _config("gat", way, 4, model=model), 1e-10, num_parts=2, steps=steps)


@pytest.mark.parametrize(
    ("way", "kernel"),
    combinations(
        ["both", "both_outputs"],
        ["torch", "dgl"],
        quick=lambda *case: case in (("both", "torch"), ("both_outputs", "dgl")),
    ),
)
def test_other_kernels(ranks, kernel, way, steps):
    config = _config("residual", way, 4, model={"kernel": kernel})
    assert_exact(ranks, 2, nasty_graph, config, 1e-10, num_parts=2, steps=steps)


@pytest.mark.parametrize(
    ("chosen", "kernel"),
    combinations(
        [("gcn", "base"), ("gcn", "both"), ("sage", "both"), ("gat", "both")],
        ["torch", "numba"],
        quick=lambda *case: (
            case in ((("gcn", "base"), "torch"), (("sage", "both"), "torch"), (("gat", "both"), "numba"))
        ),
    ),
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_chunks_without_edges(ranks, chosen, kernel, steps):
    """Gradients of their sources are zeros, which a layer scales in place."""
    model, way = chosen
    config = _config(model, way, 9, model={"kernel": kernel})
    assert_exact(ranks, 2, half_without_in_edges, config, 1e-10, num_parts=2, steps=steps)


def test_more_layers_share_host_rows(ranks, steps):
    config = _config("sage", "both", 4, model={"layers": 5})
    assert_exact(ranks, 2, nasty_graph, config, 1e-10, num_parts=2, steps=steps)


# --- counts ----------------------------------------------------------------------------------------------------------
LAYERS, FEATURES, HIDDEN, CLASSES = 3, 13, 16, 4


def _epoch(config: dict[str, Any], size: int) -> tuple[dict[str, int], list[list[int]], dict[str, int]]:
    """One epoch's counts on this rank, the destinations of its chunks by batch, and what was sent by tag."""
    graph = nasty_graph()
    with tempfile.TemporaryDirectory() as folder:
        job, trainer = assembled(config, Artifacts(graph, parts(graph, size)), Path(folder), read_environment())
        assert isinstance(trainer, OffloadTrainer)
        trainer.module.train()
        job.comm.ledger.take()
        (batch,) = trainer.batches(0)
        trainer.forward_backward(batch)
        counts = trainer.end_epoch().work
        sent = {tag: traffic.sent_bytes for tag, traffic in job.comm.ledger.take().items()}
        batches = [trainer.own[it.chunk.first : it.chunk.last].tolist() for it in trainer.planned.transitions.visits]
        job.comm.release()
    return counts, batches, sent


def _read(destinations: list[int]) -> set[int]:
    """N_ij."""
    graph = nasty_graph()
    return {int(u) for v in destinations for u in graph.indices[int(graph.indptr[v]) : int(graph.indptr[v + 1])]} | {
        *destinations
    }


def _volumes(batches: list[list[list[int]]], owner: list[int]) -> dict[str, int]:
    """Section 5.3's volumes, set by set, from the destinations of every rank's batches."""
    found = dict.fromkeys(("original", "inter", "both", "intra", "foreign", "foreign_new"), 0)
    before: list[set[int]] = [set() for _ in batches]
    union_before: set[int] = set()
    for chunks in zip(*batches, strict=True):
        read = [_read(chunk) for chunk in chunks]
        union = set().union(*read)
        foreign = [{u for u in rows if owner[u] != rank} for rank, rows in enumerate(read)]
        found["original"] += sum(map(len, read))
        found["inter"] += len(union)
        found["both"] += len(union - union_before)
        found["intra"] += sum(len(now - then) for now, then in zip(read, before, strict=True))
        found["foreign"] += sum(map(len, foreign))
        found["foreign_new"] += sum(len(now - then) for now, then in zip(foreign, before, strict=True))
        before, union_before = read, union
    return found


@pytest.mark.parametrize(
    ("size", "way"),
    combinations(
        [1, 2, 3],
        [way for way in WAYS if not way.startswith("file")],
        quick=lambda size, way: size == 3 or (size, way) in ((1, "both"), (2, "base")),
    ),
)
def test_rows_that_cross_are_those_of_the_formulas(ranks, size, way):
    config = _config("sage", way, 6, "float32", model={"layers": LAYERS, "dropout": 0.0, "input_dropout": 0.0})
    told = ranks(size).run(_epoch, config, size)
    work = {name: sum(counts.get(name, 0) for counts, _, _ in told) for name in set().union(*(c for c, _, _ in told))}
    graph = nasty_graph()
    owner, vertices = parts(graph, size).node_owner.tolist(), graph.num_nodes
    volumes = _volumes([batches for _, batches, _ in told], owner)
    assert {name: work[f"tier/rows_{name}"] for name in volumes} == volumes
    dedup = WAYS[way]["dedup"]
    host = volumes[
        {(False, False): "original", (True, False): "inter", (False, True): "intra", (True, True): "both"}[
            dedup["inter"], dedup["intra"]
        ]
    ]
    between = volumes["foreign_new" if dedup["intra"] else "foreign"]
    raw = [FEATURES, HIDDEN, HIDDEN]
    projected = [HIDDEN, HIDDEN, CLASSES]
    by_rows = {"raw": [False] * LAYERS, "projected": [True] * LAYERS, "cheapest": [False, False, True]}
    projects = by_rows[WAYS[way]["rows"]]
    kept = {
        "paper": [True] * LAYERS,
        "outputs": [False] * LAYERS,
        "cheapest": [host > (2 if on else 3) * vertices for on in projects],
    }[WAYS[way]["keep"]]
    again, own = kept.count(False), projects.count(True)  # SAGE's self part is no neighbour's
    back = LAYERS - 1 + projects[0]  # features that are read as they are take no gradient
    expected = {
        "h2d_rows_forward": LAYERS * host,
        "h2d_rows_backward": again * host,
        # Of the logits only targets have any.
        "h2d_rows_gradients": back * vertices + graph.splits.train.numel(),
        "d2h_rows_outputs": back * vertices + graph.splits.train.numel(),
        "h2d_rows_features": 2 * vertices * projects[0],
        "h2d_rows_sums": kept.count(True) * vertices,
        "d2h_rows_sums": kept.count(True) * vertices,
        "h2d_rows_own": vertices * (3 * own + sum(k and not p for k, p in zip(kept, projects, strict=True))),
        "d2h_rows_own": vertices * 2 * own,
        "d2h_rows_gradients": back * host,
    }
    if dedup["inter"]:
        expected |= {"d2d_rows_forward": LAYERS * between, "d2d_rows_backward": (again + back) * between}
    assert {name: work.get(f"tier/{name}", 0) for name in expected} == expected
    read = [after if on else before for on, before, after in zip(projects, raw, projected, strict=True)]
    times = [1 + (not k) + (index > 0 or projects[0]) for index, k in enumerate(kept)]
    of_layers = [4 * width * between * often for width, often in zip(read, times, strict=True)]
    sent = {tag: sum(of_rank.get(tag, 0) for _, _, of_rank in told) for tag in ("features", "activations")}
    features = 0 if projects[0] else of_layers[0]
    assert sent == {"features": features, "activations": sum(of_layers) - features}
    assert work.get("tier/socket_bytes", 0) == (0 if dedup["inter"] else sum(of_layers)), "from host to host"
    added = [4 * width * host for index, width in enumerate(read) if index or projects[0]]
    assert work["tier/host_add_bytes"] == sum(added), "gradients that come home"
    assert work["edges_computed_again"] == again * graph.num_edges


def test_vertices_with_one_reader_cross_once():
    """Nothing is lost or brought twice where nothing is shared: V_ori, V_+p2p and V_+ru are the vertices."""
    counts, _, _ = _epoch(_config("sage", "both", 1), 1)
    assert counts["tier/rows_original"] == counts["tier/rows_both"] == nasty_graph().num_nodes


# --- memory ----------------------------------------------------------------------------------------------------------
def larger_graph(features: int = 13, *, weighted: bool = False) -> Graph:
    graph = nasty_graph(600, 6000, features, 4)
    return replace(graph, edge_weights=torch.ones(graph.num_edges)) if weighted else graph


def _probed(config: dict[str, Any], size: int, features: int = 13, weighted: bool = False) -> tuple[int, int, int]:
    """Peak bytes of the device tier on this rank, what was promised, and the number of chunks."""
    graph = larger_graph(features, weighted=weighted)
    with tempfile.TemporaryDirectory() as folder:
        job, trainer = assembled(config, Artifacts(graph, parts(graph, size)), Path(folder), read_environment())
        peak = probe_memory(job)["device_peak_bytes"]
        facts = trainer.facts()
        job.comm.release()
    return peak, facts["chunk_bytes_bound"], facts["chunks"]


def _smallest(config: dict[str, Any], size: int) -> int:
    config = {**config, "hardware": {**config["hardware"], "workers": size}}
    rows = config["paradigm"]["rows"]
    offload = Offload(chunks=None, device_memory=1, rows=rows)
    problems = planned(experiment_in(config), larger_graph(), offload).problems
    return int(problems[0].fix.split("=")[1].split()[0])


@pytest.mark.parametrize(
    ("size", "model", "way"),
    combinations(
        [1, 2],
        [name for name in FULL_MODELS if name != "written_here"],
        ["both", "both_outputs", "base_outputs"],
        # Every model once, every way with and without attention.
        quick=lambda *case: (
            case
            in (
                (1, "gcn", "both"),
                (1, "sage", "base_outputs"),
                (1, "gin", "both_outputs"),
                (1, "gat", "both_outputs"),
                (1, "gat_residual", "base_outputs"),
                (1, "residual", "both_outputs"),
                (2, "gat", "both"),
            )
        ),
    ),
)
def test_the_device_tier_stays_in_its_budget(ranks, size, model, way):
    config = _config(model, way, 1, "float32")
    smallest, numbers = _smallest(config, size), []
    for budget in (smallest, 2 * smallest, 6 * smallest):
        config["paradigm"] |= {"chunks": None, "device_memory": budget}
        for peak, bound, count in ranks(size).run(_probed, config, size):
            assert 0 < peak <= bound <= budget
            numbers.append(count)
    assert numbers == sorted(numbers, reverse=True) and numbers[0] > numbers[-1], "more memory, fewer chunks"


@pytest.mark.parametrize(
    ("way", "model"),
    combinations(
        ["both", "both_raw", "base_outputs"],
        ["gcn", "sage", "gin", "gat"],
        quick=lambda *case: (
            case in (("both", "gcn"), ("both_raw", "sage"), ("base_outputs", "gin"), ("base_outputs", "gat"))
        ),
    ),
)
def test_weights_are_a_part_of_the_budget(ranks, model, way):
    config, bounds = _config(model, way, 20, "float32"), []
    for weighted in (False, True):
        ((peak, bound, _),) = ranks(1).run(_probed, config, 1, 13, weighted)
        assert 0 < peak <= bound
        bounds.append(bound)
    assert bounds[0] < bounds[1]


def _dense(heads: int, way: str) -> tuple[int, int]:
    graph = nasty_graph(200, 40000, 13, 4)
    config = _config("gat", way, 2, "float32", model={"heads": heads, "hidden": 16, "kernel": "numba"})
    with tempfile.TemporaryDirectory() as folder:
        job, trainer = assembled(config, Artifacts(graph, parts(graph, 1)), Path(folder), read_environment())
        peak = probe_memory(job)["device_peak_bytes"]
        job.comm.release()
    return peak, trainer.facts()["chunk_bytes_bound"]


@pytest.mark.parametrize("heads", [1, 2, 8])
@pytest.mark.parametrize("way", ["both", "base_outputs"])
def test_attention_over_many_edges_is_within_the_bound(ranks, way, heads):
    """200 edges for every vertex: what an edge takes decides."""
    ((peak, bound),) = ranks(1).run(_dense, heads, way)
    assert 0.3 * bound < peak <= bound


@pytest.mark.parametrize("factor", [1, 3])
def test_chunks_are_sought_for_sums_where_rows_that_cross_decide(ranks, factor):
    """Running a layer again takes more of the tier than its sums do, and is chosen only where it fits as well."""
    config, found = _config("gcn", "both", 1, "float32"), {}
    budget = factor * _smallest(config, 1)
    for keep in ("paper", "cheapest"):
        config["paradigm"] |= {"chunks": None, "device_memory": budget, "keep": keep}
        ((peak, bound, found[keep]),) = ranks(1).run(_probed, config, 1)
        assert 0 < peak <= bound <= budget
    assert found["cheapest"] == found["paper"]


@pytest.mark.parametrize(
    ("model", "way"),
    combinations(
        ["gcn", "gat_residual"],
        ["both", "both_raw", "base_outputs"],
        quick=lambda model, way: (model, way) == ("gcn", "both"),
    ),
)
def test_small_chunks_of_wide_features_stay_in_what_was_promised(ranks, model, way):
    """Where gradients of parameters are as large as rows."""
    for chunks in (20, 200):
        config = _config(model, way, chunks, "float32", model={"hidden": 36})
        ((peak, bound, _),) = ranks(1).run(_probed, config, 1, 700)
        assert 0 < peak <= bound


def test_a_budget_below_the_largest_vertex_names_what_works():
    config = _config("gcn", "both", 1)
    config["paradigm"] |= {"chunks": None, "device_memory": 1000}
    experiment, graph = experiment_in(config), larger_graph()
    (problem,) = planned(experiment, graph, Offload(chunks=None, device_memory=1000, rows="projected")).problems
    assert problem.key == "paradigm.device_memory" and problem.value == 1000
    enough = _smallest(config, 1)
    assert not planned(experiment, graph, Offload(chunks=None, device_memory=enough, rows="projected")).problems
