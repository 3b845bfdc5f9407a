"""Sparse features are trained as dense ones are: several steps in an epoch, links, checkpoints, on a GPU."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from combinations import combinations
from experiments import assembled
from sparse_graphs import DENSE_ONLY, as_wide_as_hidden, mostly_zero, sparse_links

from gnnexp.comm.environment import read_environment
from gnnexp.graph.sparse import SparseRows
from gnnexp.testing.exactness import assert_exact, joined, parts
from gnnexp.testing.steps import MODELS, Curve, global_losses, run_steps, worst_gradient_error, worst_loss_error
from gnnexp.testing.ways import MINI_BATCH, VERTEX, WAYS, config_in, placed
from gnnexp.training.assemble import Artifacts
from gnnexp.training.optimization import make_optimizer

LINKS = {"_target_": "gnnexp.tasks.link_prediction.LinkPredictionOptions"}


@pytest.mark.parametrize(
    ("model", "dependency", "exchange"),
    combinations(
        ["sage", "gcn"],
        ["communicate", "stale"],
        ["halo", "broadcast"],
        quick=lambda model, dependency, exchange: (
            (model == "gcn") == ((dependency, exchange) in (("stale", "broadcast"), ("communicate", "halo")))
        ),
    ),
)
def test_fetched_rows_are_of_the_same_step(ranks, model, dependency, exchange) -> None:
    """An epoch has several batches of links here, each with another mask of the input dropout."""
    config = config_in("communicate", MODELS[model])
    config["train"]["batch_size"], config["task"] = 10, LINKS
    config["paradigm"] = {"_target_": VERTEX, "dependency": dependency, "exchange": exchange}
    assert_exact(ranks, 2, sparse_links, config, 1e-10, num_parts=2, steps=8)


SPARSE_WAYS = [way for way in WAYS if way not in DENSE_ONLY]


@pytest.mark.parametrize(
    ("way", "model"),
    combinations(
        SPARSE_WAYS,
        MODELS,
        quick=lambda way, model: (
            (way, model)
            in (
                ("data", "gcn"),
                ("projections", "sage"),
                ("communicate", "gat"),
                ("vertex_cut", "gin"),
                ("coupled", "sage"),
            )
        ),
    ),
)
def test_a_skip_connection_from_as_many_features_as_hidden_columns(ranks, way, model, steps) -> None:
    """It has no weight: the sparse rows themselves are added, as dense ones are."""
    config = config_in(way, {**MODELS[model], "residual": True, "norm": True})
    partition = placed(way, as_wide_as_hidden(), 3)
    _, sparse = assert_exact(ranks, 3, as_wide_as_hidden, config, 1e-10, partition=partition, steps=steps)
    assert "layers.0.residual_weight" not in sparse.gradients
    plain = config_in("data", config["model"], train={"batch_size": config["train"]["batch_size"]})
    plain["sampler"] = config["sampler"]
    dense = run_steps(plain, mostly_zero(sparse=False, num_features=16), steps)
    assert global_losses([sparse]) == pytest.approx(global_losses([dense]), rel=1e-10)


def _interrupted(config: Mapping[str, Any], epochs: int, stop_after: int | None) -> list[float]:
    """Losses of this rank's epochs; after `stop_after` of them all goes into a checkpoint's file, and on from there."""
    graph, environment = mostly_zero(), read_environment()
    artifacts, losses = Artifacts(graph, parts(graph, environment.num_ranks)), []

    def begin() -> tuple[Any, Any]:
        _, trainer = assembled(config, artifacts, None, environment)  # type: ignore[arg-type]
        trainer.module.train()
        return trainer, make_optimizer(trainer.module, trainer.job.experiment)

    trainer, optimizer = begin()
    for epoch in range(epochs):
        if epoch == stop_after:
            file = io.BytesIO()
            torch.save([trainer.module.state_dict(), optimizer.state_dict(), trainer.own_state.state_dict()], file)
            file.seek(0)
            module, steps, own = torch.load(file, weights_only=True)
            trainer, optimizer = begin()
            trainer.module.load_state_dict(module)
            optimizer.load_state_dict(steps)
            trainer.own_state.load_state_dict(own)
        for batch in trainer.batches(epoch):
            losses.append(float(trainer.forward_backward(batch)[0]))
            trainer.synchronize()
            trainer.update(optimizer)
    return losses


@pytest.mark.parametrize("exchange", ["halo", "broadcast"])
def test_old_sparse_rows_are_in_checkpoints(ranks, exchange) -> None:
    """Sancus keeps rows for some epochs: a run that goes on has the ones that it had."""
    config = config_in("communicate", MODELS["sage"])
    config["paradigm"] = {"_target_": VERTEX, "dependency": "stale", "staleness": 3, "exchange": exchange}
    whole = ranks(2).run(_interrupted, config, 6, None)
    assert ranks(2).run(_interrupted, config, 6, 2) == whole
    fresh = {**config, "paradigm": {**config["paradigm"], "staleness": 0}}
    assert ranks(2).run(_interrupted, fresh, 6, None) != whole, "old rows make a difference"


def _steps(config: Mapping[str, Any], way: str, size: int) -> Curve:
    graph = mostly_zero()
    return run_steps(config, graph, 8, placed(way, graph, size))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")
@pytest.mark.parametrize(
    ("size", "model"),
    [
        (1, "sage"),
        (3, "gat"),
        *(
            pytest.param(size, model, marks=pytest.mark.slow)
            for size in (1, 3)
            for model in MODELS
            if (size, model) not in ((1, "sage"), (3, "gat"))
        ),
    ],
)
@pytest.mark.parametrize("way", SPARSE_WAYS)
def test_cuda_equals_cpu(ranks, way, model, size) -> None:
    config = config_in(way, {**MODELS[model], "kernel": "torch"}, hardware={"workers": size})
    on_gpu = {**config, "hardware": {**config["hardware"], "device": "cuda"}}
    curves, same = (ranks(size).run(_steps, one, way, size) for one in (on_gpu, config))
    found, expected = global_losses(curves), global_losses(same)
    assert worst_loss_error(found, expected) <= 1e-10
    assert worst_gradient_error(joined(curves, same[0]), same[0]) <= 1e-10
    for curve, other in zip(curves, same, strict=True):
        if way in MINI_BATCH:  # blocks that are made on the GPU are not copied to it
            assert curve.work.pop("tier/h2d_bytes") <= other.work.pop("tier/h2d_bytes")
        assert (curve.rounds, curve.sent_bytes, curve.work) == (other.rounds, other.sent_bytes, other.work)


def test_offloaded_sparse_features_cross_twice_an_epoch_with_their_arrays(ranks) -> None:
    """Forward to be projected, and backward for the gradients of the projection."""
    config = config_in("offload_projected", MODELS["sage"], train={"dtype": "float32"})
    sparse, dense = (
        run_steps(config, mostly_zero(sparse=is_sparse), 1, placed("offload_projected", mostly_zero(), 1))
        for is_sparse in (True, False)
    )
    rows = mostly_zero().features
    assert isinstance(rows, SparseRows)
    chunks = 5
    crossing = 2 * ((4 + 4) * rows.values.numel() + 8 * (rows.shape[0] + chunks))
    assert sparse.work["tier/h2d_rows_features"] == dense.work["tier/h2d_rows_features"] == 2 * rows.shape[0]
    of_others = dense.work["tier/h2d_bytes"] - 2 * 4 * rows.shape[0] * rows.num_columns
    assert sparse.work["tier/h2d_bytes"] == of_others + crossing
