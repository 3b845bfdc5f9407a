"""Push-pull parallelism is exact, whatever is pulled, and moves what its formulas say."""

from __future__ import annotations

import tempfile
from itertools import islice
from pathlib import Path

import pytest
from combinations import combinations
from experiments import assembled

from gnnexp.comm.environment import read_environment
from gnnexp.paradigms.columns import sliced_layer
from gnnexp.testing.exactness import assert_exact, ranks_steps
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, global_losses, run_steps, small_config, worst_loss_error
from gnnexp.training.assemble import Artifacts

PUSH_PULL = {"_target_": "gnnexp.paradigms.push_pull.PushPull"}
BOUNDS = {"float64": 1e-10, "float32": 1e-5}
SLICED = {"_target_": "gnnexp.feature_stores.sliced.SlicedOptions"}


def _config(model: str, dtype: str = "float64", pull: str = "auto", **changes):
    config = small_config(MODELS[model], train={"dtype": dtype}, paradigm={**PUSH_PULL, "pull": pull}, **changes)
    return {**config, "feature_store": SLICED}


@pytest.mark.parametrize(  # 13 dimensions: no number of ranks divides them
    ("size", "model", "pull", "dtype"),
    combinations(
        [1, 2, 3, 4],
        MODELS,
        ["projections", "aggregates"],
        BOUNDS,
        quick=lambda size, model, pull, dtype: (
            (size, model, pull, dtype) == (3, "gcn", "aggregates", "float32")
            or ((size, dtype) == (4, "float64") and (pull == "aggregates") == (model in ("sage", "gat")))
        ),
    ),
)
def test_same_losses_and_gradients_as_one_worker(ranks, size, model, pull, dtype, steps):
    steps = 20 if (size, model, pull) == (4, "gat", "aggregates") else steps
    assert_exact(ranks, size, nasty_graph, _config(model, dtype, pull), BOUNDS[dtype], steps=steps)


@pytest.mark.parametrize(
    ("model", "pull"),
    combinations(
        MODELS,
        ["projections", "aggregates"],
        quick=lambda model, pull: (pull == "aggregates") == (model in ("sage", "gin")),
    ),
)
def test_residual_norm_and_overlap(ranks, model, pull, steps):
    changes = {"residual": True, "norm": True, "layers": 3}
    config = small_config(
        {**MODELS[model], **changes},
        sampler={"fanouts": [3, 3, 2]},
        train={"overlap": True},
        paradigm={**PUSH_PULL, "pull": pull},
    )
    config["feature_store"] = SLICED
    assert_exact(ranks, 3, nasty_graph, config, 1e-10, steps=steps)


@pytest.mark.parametrize(
    ("model", "pull"),
    combinations(
        ["sage", "gat"],
        ["projections", "aggregates"],
        quick=lambda *case: case in (("gat", "projections"), ("sage", "aggregates")),
    ),
)
def test_micro_batches_have_the_draws_and_the_masks_of_data_parallelism(ranks, model, pull):
    """What a rank computes of another's block has the masks of the rank that trains it."""
    config = _config(model, pull=pull)
    config["sampler"] = {**config["sampler"], "key": "micro"}
    plain = {**small_config(MODELS[model]), "sampler": config["sampler"]}
    found, expected = (ranks(3).run(ranks_steps, nasty_graph, one, 8, None, "random") for one in (config, plain))
    assert worst_loss_error(global_losses(found), global_losses(expected)) < 1e-10


@pytest.mark.parametrize("model", ["sage", "gat"])
def test_more_ranks_than_dimensions(ranks, model, steps):
    """One rank has an empty slice."""
    assert_exact(ranks, 4, narrow_graph, _config(model), 1e-10, steps=steps)


def narrow_graph():
    return nasty_graph(num_features=3)


@pytest.mark.parametrize(
    ("size", "model", "pull"),
    combinations([2, 3], MODELS, ["projections", "aggregates"], quick=lambda size, model, pull: size == 3),
)
def test_bytes_equal_the_layer_contract(ranks, size, model, pull):
    """(P-1)(Src C + Dst S) for projections, (P-1)(Dst (C + S) + 2 (Src + Dst) B) for aggregates, backwards the same."""
    steps, width = 3, 16
    config = _config(model, "float32", pull)
    curves, _ = assert_exact(ranks, size, nasty_graph, config, 1e-5, steps=steps)
    sources, destinations, edges, carried = map(sum, zip(*ranks(size).run(_first_blocks, config, steps), strict=True))
    keys = 2 if model == "gat" else 0
    own = width if model == "sage" or (pull == "aggregates" and model in ("gcn", "gin")) else 0
    if pull == "projections":
        elements = sources * width + destinations * own
    else:
        elements = destinations * (width + own) + 2 * (sources + destinations) * keys
    sent = {tag: sum(curve.sent_bytes.get(tag, 0) for curve in curves) for tag in ("activations", "topology")}
    assert sent["activations"] == 2 * (size - 1) * elements * 4
    assert sent["topology"] == (size - 1) * (destinations + (1 + carried // max(1, edges)) * edges + sources) * 4
    rounds = {"projections": 2, "aggregates": 6 if model == "gat" else 2}[pull]
    assert all(curve.rounds["activations"] == rounds * steps for curve in curves)
    assert all(curve.rounds["topology"] == steps for curve in curves)


def _first_blocks(config, steps: int) -> tuple[int, int, int, int]:
    """Sources, destinations, edges and edges with an identity of this rank's own first blocks."""
    counts = [0, 0, 0, 0]
    with tempfile.TemporaryDirectory() as folder:
        job, trainer = assembled(config, Artifacts(nasty_graph()), Path(folder), read_environment())
        for batch in islice((batch for epoch in range(steps) for batch in trainer.batches(epoch)), steps):
            block = batch.batch.blocks[0]
            carried = 0 if block.occurrence is None else block.num_edges
            for index, count in enumerate((block.num_src, block.num_dst, block.num_edges, carried)):
                counts[index] += count
        job.comm.release()
    return tuple(counts)


def test_sliced_parameters_stay_where_they_are(ranks):
    """First-layer input weights take no all-reduce: what is reduced is everything else."""
    config = _config("sage", "float32")
    curves, reference = assert_exact(ranks, 2, nasty_graph, config, 1e-5, steps=2)
    sliced = 2 * 16 * 13
    whole = sum(gradient.numel() for gradient in reference.gradients.values())
    assert sum(curve.sent_bytes["gradients"] for curve in curves) == 2 * 2 * (2 - 1) * (whole - sliced) * 4
    widths = [curve.gradients["layers.0.weight"].shape[1] for curve in curves]
    assert widths == [6, 7]


def test_attention_per_slice_would_be_seen(ranks):
    """The control: the published artifact's habit, attention on each slice and then the sum, is not GAT."""
    config = _config("gat", pull="aggregates")
    found = ranks(2).run(_per_slice, config)
    expected = run_steps(small_config(MODELS["gat"]), nasty_graph(), 1)
    assert abs(sum(curve.losses[0][0] for curve in found) - expected.losses[0][0]) > 1e-3


def _per_slice(config):
    spread, total = sliced_layer.spread_from_owners, sliced_layer.sum_at_owners
    try:
        sliced_layer.sum_at_owners = lambda parts, comm, tag: (
            list(parts[comm.rank]) if parts[0][0].shape[1] == 2 else total(parts, comm, tag)
        )
        return run_steps(config, nasty_graph(), 1)
    finally:
        sliced_layer.spread_from_owners, sliced_layer.sum_at_owners = spread, total


@pytest.mark.parametrize("size", [1, 2])
def test_a_model_all_of_whose_parameters_are_sliced(ranks, size):
    """One layer without a bias: nothing is left for the all-reduce."""
    model = {**MODELS["gcn"], "layers": 1, "bias": False}
    config = small_config(model, paradigm=PUSH_PULL, feature_store=SLICED)
    config["sampler"] = {**config["sampler"], "fanouts": [4]}
    assert_exact(ranks, size, nasty_graph, config, 1e-10, steps=6)


@pytest.mark.parametrize(("size", "layers"), [(1, 1), (2, 1), (2, 2)])
def test_buffers_hold_all_gradients(ranks, size, layers):
    """The slice's gradients exist once, all others twice: their sum over ranks is a second tensor."""
    config = small_config({**MODELS["sage"], "layers": layers, "bias": False}, paradigm=PUSH_PULL)
    config |= {"feature_store": SLICED, "sampler": {**config["sampler"], "fanouts": [4, 3][:layers]}}
    found = ranks(size).run(_buffers_bytes, config)
    first, above = 2 * (4 if layers == 1 else 16), 2 * 16 * 4 * (layers - 1)
    assert sum(found) == 8 * (first * 13 + size * 2 * above)


def _buffers_bytes(config) -> int:
    with tempfile.TemporaryDirectory() as folder:
        job, trainer = assembled(config, Artifacts(nasty_graph()), Path(folder), read_environment())
        held = trainer.memory()["buffers_bytes"]
        job.comm.release()
    return held
