"""Split parallelism is exact, and counts what GSplit counts."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from combinations import combinations
from experiments import assembled

import gnnexp.samplers.split as split_module
from gnnexp.comm.environment import read_environment
from gnnexp.testing.exactness import assert_exact, parts, ranks_steps
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, Curve, global_losses, run_steps, small_config, worst_loss_error
from gnnexp.training.assemble import Artifacts

SPLIT = {"_target_": "gnnexp.paradigms.split_parallel.SplitParallel"}
BOUNDS = {"float64": 1e-10, "float32": 1e-5}


def _config(model: str, dtype: str = "float64", **changes):
    return small_config(MODELS[model], train={"dtype": dtype}, paradigm=SPLIT, **changes)


@pytest.mark.parametrize(
    ("size", "model", "dtype"),
    combinations(
        [1, 2, 3, 4],
        MODELS,
        BOUNDS,
        quick=lambda *case: (
            case in ((3, "gcn", "float32"), (3, "sage", "float32"), (4, "gin", "float64"), (4, "gat", "float64"))
        ),
    ),
)
def test_same_losses_and_gradients_as_one_worker(ranks, size, model, dtype, steps):
    steps = 20 if (model, dtype) == ("gat", "float64") else steps
    assert_exact(ranks, size, nasty_graph, _config(model, dtype), BOUNDS[dtype], num_parts=size, steps=steps)


@pytest.mark.parametrize(
    ("model", "kind"),
    combinations(MODELS, ["skewed", "empty"], quick=lambda model, kind: (kind == "empty") == (model != "gat")),
)
def test_uneven_and_empty_parts(ranks, model, kind, steps):
    assert_exact(ranks, 3, nasty_graph, _config(model), 1e-10, num_parts=3, kind=kind, steps=steps)


@pytest.mark.parametrize(
    ("group_size", "model"),
    combinations([1, 2, 4], MODELS, quick=lambda group_size, model: (group_size == 2) == (model != "sage")),
)
def test_groups_of_ranks(ranks, model, group_size, steps):
    config = _config(model)
    config["paradigm"] = {**SPLIT, "group_size": group_size}
    assert_exact(ranks, 4, nasty_graph, config, 1e-10, num_parts=group_size, steps=steps)


@pytest.mark.parametrize("model", ["sage", "gat"])
def test_a_group_has_the_draws_and_the_masks_of_one_rank(ranks, model):
    """With draws by micro-batch two groups of two ranks train what two ranks of data parallelism do."""
    config = _config(model, sampler={"key": "micro"})
    config["paradigm"] = {**SPLIT, "group_size": 2}
    found = ranks(4).run(ranks_steps, nasty_graph, config, 8, 2, "random")
    plain = small_config(MODELS[model], sampler={"key": "micro"})
    expected = ranks(2).run(ranks_steps, nasty_graph, plain, 8, None, "random")
    assert worst_loss_error(global_losses(found), global_losses(expected)) < 1e-10


@pytest.mark.parametrize(
    ("overlap", "model"), combinations([True, False], MODELS, quick=lambda overlap, model: overlap and model != "gcn")
)
def test_partitioned_topology_residual_norm_and_overlap(ranks, model, overlap, steps):
    """The graph structure is split as the batch is (GSplit, section 6.2)."""
    changes = {"residual": True, "norm": True, "layers": 3}
    config = small_config(
        {**MODELS[model], **changes},
        paradigm=SPLIT,
        train={"overlap": overlap},
        sampler={"fanouts": [3, 3, 2], "topology": "partitioned"},
    )
    whole = {**config, "sampler": {**config["sampler"], "topology": "replicated"}}
    curves, _ = assert_exact(ranks, 3, nasty_graph, config, 1e-10, num_parts=3, steps=steps)
    same, _ = assert_exact(ranks, 3, nasty_graph, whole, 1e-10, num_parts=3, steps=steps)
    assert [curve.rounds for curve in curves] == [curve.rounds for curve in same], "no extra round"


def test_ordinary_layers_run_unchanged(ranks, steps):
    config = small_config({"_target_": "gnnexp.models.sage_pool.SAGEPoolOptions"}, paradigm=SPLIT)
    assert_exact(ranks, 3, nasty_graph, config, 1e-10, num_parts=3, steps=steps)


def test_full_neighbours_in_one_batch(ranks, steps):
    config = _config("gcn")
    config["train"]["batch_size"] = None
    config["sampler"] = {"_target_": "gnnexp.samplers.full.FullOptions", "key": "global"}
    assert_exact(ranks, 2, nasty_graph, config, 1e-10, num_parts=2, steps=steps)


def test_aligned_cache_and_partitioned_rows(ranks, steps):
    config = _config("gat")
    cache = {"_target_": "gnnexp.feature_stores.static_cache.StaticCacheOptions", "capacity": 0.1, "of": "owned"}
    config["feature_store"] = {"_target_": "gnnexp.feature_stores.partitioned.PartitionedOptions", "cache": cache}
    curves, _ = assert_exact(ranks, 4, nasty_graph, config, 1e-10, num_parts=4, steps=steps)
    assert all(curve.work["features_loaded_remote"] == 0 for curve in curves), "a rank reads what it owns"
    assert sum(curve.work["features_loaded_local"] for curve in curves) > 0


@pytest.mark.parametrize(
    ("size", "model"), combinations([2, 3, 4], ["sage", "gat"], quick=lambda *case: case in ((3, "gat"), (4, "sage")))
)
def test_counts_equal_their_formulas(ranks, size, model):
    """One id exchange per hop; rows shuffled along it; every vertex loaded and every edge computed once."""
    steps, layers, features, hidden = 5, 2, 13, 16
    config = _config(model, "float32")
    curves, reference = assert_exact(ranks, size, nasty_graph, config, 1e-5, steps=steps, num_parts=size)
    assert sum(curve.work["features_loaded_host"] for curve in curves) == reference.work["features_loaded_host"]
    for name in ("edges_computed", "edges_sampled", "vertices_computed"):
        assert sum(curve.work[name] for curve in curves) == reference.work[name]
    assert all(curve.rounds["frontier"] == steps * layers for curve in curves)
    assert all(curve.rounds["sizes"] == steps * layers for curve in curves)
    assert all(curve.rounds["features"] == steps for curve in curves), "inputs take no gradient"
    assert all(curve.rounds["activations"] == 2 * steps * (layers - 1) for curve in curves)
    rows = ranks(size).run(_foreign_rows, config, steps, size)
    first, second = (sum(of_rank[layer] for of_rank in rows) for layer in range(2))
    sent = {tag: sum(curve.sent_bytes[tag] for curve in curves) for tag in ("frontier", "features", "activations")}
    assert sent == {
        "frontier": 4 * (first + second),
        "features": 4 * first * features,
        "activations": 2 * 4 * second * hidden,
    }


def _foreign_rows(config: dict[str, Any], steps: int, num_parts: int) -> list[int]:
    """Foreign sources of every layer over the first steps, counted one by one from the blocks themselves."""
    graph = nasty_graph()
    with tempfile.TemporaryDirectory() as folder:
        artifacts = Artifacts(graph, partition := parts(graph, num_parts))
        job, trainer = assembled(config, artifacts, Path(folder), read_environment())
        counts, owner, epoch = [0, 0], partition.node_owner, 0
        while steps:
            for batch in trainer.batches(epoch):
                for layer, block in enumerate(batch.batch.blocks):
                    sources = {int(v) for v in block.src_ids}
                    counts[layer] += sum(int(owner[v]) != job.shard.part for v in sources)
                steps -= 1
                if not steps:
                    break
            epoch += 1
        job.comm.release()
    return counts


def test_a_wrong_shuffle_would_be_seen(ranks):
    """The control: with rows of other vertices the losses differ."""
    found = ranks(2).run(_broken, _config("gcn"))
    expected = run_steps(small_config(MODELS["gcn"]), nasty_graph(), 2)
    total = sum(curve.losses[0][0] for curve in found)
    assert abs(total - expected.losses[0][0]) > 1e-6


def _broken(config: dict[str, Any]) -> Curve:
    whole = split_module.ShuffleIndex
    try:
        split_module.ShuffleIndex = lambda rows, *rest: whole(rows.flip(0), *rest)
        graph = nasty_graph()
        return run_steps(config, graph, 2, parts(graph, 2))
    finally:
        split_module.ShuffleIndex = whole
