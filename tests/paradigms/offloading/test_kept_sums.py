"""Sums are kept with own rows in them, if these are added by constant factors: exact, and no own rows come back."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from combinations import combinations
from experiments import assembled
from full_graph import full_config

from gnnexp.comm.environment import read_environment
from gnnexp.experiment.build import build
from gnnexp.models.model import ModelOptions
from gnnexp.paradigms.offload import OffloadTrainer
from gnnexp.paradigms.offloading import plan
from gnnexp.paradigms.offloading.plan import cheaper_sums
from gnnexp.testing.exactness import assert_exact, parts
from gnnexp.testing.graphs import half_without_in_edges, nasty_graph, weighted_graph
from gnnexp.testing.steps import MODELS, run_steps
from gnnexp.training.assemble import Artifacts
from gnnexp.training.train import probe_memory

SKIPS = {"residual": True, "norm": True, "layers": 3}
MIXED: dict[str, dict[str, Any]] = {
    "gcn": MODELS["gcn"],
    "gcn_skips": {**MODELS["gcn"], **SKIPS},
    "gcn_without_loops": {**MODELS["gcn"], "self_loops": False},
    "gcn_without_bias": {**MODELS["gcn"], "bias": False},  # the last layer's logits are the kept rows themselves
    "gin_fixed": {**MODELS["gin"], "train_eps": False},
    "gin_fixed_skips": {**MODELS["gin"], "train_eps": False, **SKIPS},
    "mlp": {"_target_": "gnnexp.models.mlp.MLPOptions"},
}
OTHERS = {"gin": MODELS["gin"], "gin_skips": {**MODELS["gin"], **SKIPS}, "sage_skips": {**MODELS["sage"], **SKIPS}}
GRAPHS = {"nasty": nasty_graph, "weighted": weighted_graph, "without_edges": half_without_in_edges}


def _config(name: str, rows: str, dtype: str = "float64", keep: str = "sums", **changes: Any) -> dict[str, Any]:
    """A configuration with 5 chunks per rank, and both kinds of dedup."""
    paradigm = {"_target_": "gnnexp.paradigms.offload.Offload", "chunks": 5, "keep": keep, "rows": rows}
    return full_config("gcn", paradigm, dtype, model={**MIXED, **OTHERS}[name] | changes)


# --- exactness -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("size", "name", "rows", "graph", "kind"),
    combinations(
        [1, 2, 3, 4],
        {**MIXED, **OTHERS},
        ["raw", "projected"],
        GRAPHS,
        ["random", "skewed", "empty"],
        quick=lambda *case: (
            case
            in (
                (1, "gin_fixed_skips", "raw", "nasty", "random"),
                (2, "gcn_skips", "raw", "weighted", "random"),
                (2, "gin", "raw", "nasty", "random"),
                (1, "gcn_without_bias", "projected", "nasty", "random"),
                (3, "gin_fixed", "projected", "without_edges", "empty"),
            )
        ),
    ),
)
def test_same_losses_and_gradients_as_one_worker(ranks, size, name, rows, graph, kind, steps):
    config = _config(name, rows)
    assert_exact(ranks, size, GRAPHS[graph], config, 1e-10, num_parts=size, kind=kind, steps=steps)


@pytest.mark.parametrize("rows", ["raw", pytest.param("projected", marks=pytest.mark.slow)])
def test_five_layers_in_float32(ranks, rows, steps):
    config = _config("gcn_skips", rows, "float32", layers=5)
    assert_exact(ranks, 2, nasty_graph, config, 1e-5, num_parts=2, steps=steps)


def test_a_learned_factor_would_lose_its_gradient(monkeypatch):
    """The control: were GIN's rows kept after mixing, its eps would get no gradient, and all else the same one."""
    config, graph = _config("gin", "raw"), nasty_graph()
    right = run_steps(config, graph, 1, parts(graph, 1)).gradients
    monkeypatch.setattr(plan, "has_constant_mix", lambda layer, block: layer.traits.mixes_rows)
    wrong = run_steps(config, graph, 1, parts(graph, 1)).gradients
    unlike = {name for name in right if not torch.equal(right[name], wrong[name])}
    assert unlike == {"layers.0.eps", "layers.1.eps"}


# --- counts ----------------------------------------------------------------------------------------------------------
FEATURES, HIDDEN, CLASSES, LAYERS = 13, 16, 4, 3


def _counts(config: dict[str, Any], size: int) -> tuple[dict[str, int], list[str]]:
    """One epoch's counts on this rank, and what the plan keeps."""
    graph = nasty_graph()
    with tempfile.TemporaryDirectory() as folder:
        job, trainer = assembled(config, Artifacts(graph, parts(graph, size)), Path(folder), read_environment())
        assert isinstance(trainer, OffloadTrainer)
        trainer.module.train()
        (batch,) = trainer.batches(0)
        trainer.forward_backward(batch)
        counts = trainer.end_epoch().work
        job.comm.release()
    return counts, trainer.planned.facts["keeps"]


@pytest.mark.parametrize(
    ("size", "name", "rows"),
    combinations(
        [1, 2, 3],
        {**MIXED, **OTHERS},
        ["raw", "projected"],
        quick=lambda size, name, rows: (size, rows) == ((1, "projected") if name.startswith("gin") else (2, "raw")),
    ),
)
def test_rows_and_bytes_are_those_of_the_formulas(ranks, size, name, rows):
    """Instead of a sweep's rows, every layer brings V kept ones; own rows are brought where its end reads them."""
    told = {}
    for keep in ("sums", "outputs"):
        found = ranks(size).run(_counts, _config(name, rows, "float32", keep, layers=LAYERS), size)
        work = [counts for counts, _ in found]
        told[keep] = {what: sum(one.get(what, 0) for one in work) for what in set().union(*work)}
        kept = "outputs" if keep == "outputs" else "mixed sums" if name in MIXED else "sums"
        assert [keeps for _, keeps in found] == [[kept] * LAYERS] * size
    vertices, host = nasty_graph().num_nodes, told["sums"]["tier/rows_both"]
    projects, skips = rows == "projected", name.endswith("skips")
    last = HIDDEN if name.startswith("gin") else CLASSES  # GIN's MLP follows
    widths = [HIDDEN, HIDDEN, last] if projects else [FEATURES, HIDDEN, HIDDEN]
    if name in MIXED:  # a skip connection of the first layer adds raw features
        reads = [skips and not projects, False, False]
    else:  # SAGE's self part is another projection
        reads = [not (projects and name.startswith("sage"))] * LAYERS
    again = {what: told["sums"].get(what, 0) - told["outputs"].get(what, 0) for what in told["sums"] | told["outputs"]}
    expected = {
        "edges_computed_again": -LAYERS * nasty_graph().num_edges,
        "tier/d2h_rows_sums": LAYERS * vertices,
        "tier/h2d_rows_sums": LAYERS * vertices,
        "tier/h2d_rows_own": sum(reads) * vertices,
        "tier/h2d_rows_backward": -LAYERS * host,
        "tier/d2h_bytes": 4 * vertices * sum(widths),
        "tier/h2d_bytes": 4
        * sum(width * (vertices * (1 + own) - host) for width, own in zip(widths, reads, strict=True)),
    }
    between_ranks = ("tier/d2d_rows_backward", "tier/d2d_bytes")  # as of any kept sums, see test_offload.py
    assert {what: count for what, count in again.items() if count and what not in between_ranks} == {
        what: count for what, count in expected.items() if count
    }


@pytest.mark.parametrize(
    ("name", "rows", "mixed", "least"),
    [
        ("gcn", "raw", True, 2),
        ("gcn", "projected", True, 2),
        ("gcn_skips", "raw", True, 3),
        ("gcn_skips", "projected", True, 2),
        ("gin", "raw", False, 3),
        ("gin", "projected", False, 3),
        ("sage_skips", "raw", False, 3),
        ("sage_skips", "projected", False, 2),
    ],
)
def test_sums_are_kept_if_they_cost_fewer_rows(name, rows, mixed, least):
    """The cost is that of the first layer."""
    layer = build({"hidden": 8, **{**MIXED, **OTHERS}[name]}, ModelOptions).make_layer(0, 13, 8)
    at = [cheaper_sums([layer], [rows == "projected"], [mixed], least * 60 + more, 60) for more in (0, 1)]
    assert at == [[False], [True]]


# --- memory ----------------------------------------------------------------------------------------------------------
def _probed(config: dict[str, Any]) -> tuple[int, int]:
    """Peak bytes of the device tier, and what was promised, with wide features."""
    graph = nasty_graph(600, 6000, 200, 4)
    with tempfile.TemporaryDirectory() as folder:
        job, trainer = assembled(config, Artifacts(graph, parts(graph, 1)), Path(folder), read_environment())
        peak = probe_memory(job)["device_peak_bytes"]
        bound = trainer.facts()["chunk_bytes_bound"]
        job.comm.release()
    return peak, bound


@pytest.mark.parametrize(
    ("name", "rows"), combinations(MIXED, ["raw", "projected"], quick=lambda *case: case == ("gcn", "raw"))
)
def test_mixing_takes_no_more_than_was_promised(ranks, name, rows):
    """The sources' rows after dropout are gone when own rows are added to the sums."""
    ((peak, bound),) = ranks(1).run(_probed, _config(name, rows, "float32"))
    assert 0 < peak <= bound
