"""Optimizers, schedules and clipping are those of one worker, whatever the way of training, and go on after a stop."""

from __future__ import annotations

import math
import tempfile
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch
from combinations import combinations
from experiments import assembled, check_config, data_problems, experiment_in, trained

from gnnexp.comm.environment import Environment, read_environment
from gnnexp.experiment.optimization import entries_of
from gnnexp.testing.exactness import assert_exact
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, optimizer, run_steps, small_config
from gnnexp.testing.ways import WAYS, config_in, placed
from gnnexp.training.assemble import Artifacts
from gnnexp.training.best import Best, best_of, ending
from gnnexp.training.checkpoint import Position

SCHEDULERS: dict[str, dict[str, Any]] = {
    "step": {"_target_": "torch.optim.lr_scheduler.StepLR", "step_size": 2, "gamma": 0.3},
    "one_cycle": {"_target_": "torch.optim.lr_scheduler.OneCycleLR", "max_lr": 0.1, "total_steps": 40},
    "milestones": {"_target_": "torch.optim.lr_scheduler.MultiStepLR", "milestones": [1, 3], "gamma": 0.5},
    "warmup": {
        "_target_": "torch.optim.lr_scheduler.SequentialLR",
        "milestones": [2],
        "schedulers": [
            {"_target_": "torch.optim.lr_scheduler.LinearLR", "_partial_": True, "total_iters": 2},
            {"_target_": "torch.optim.lr_scheduler.CosineAnnealingLR", "_partial_": True, "T_max": 9},
        ],
    },
}
OPTIMIZERS = {
    "momentum": optimizer("SGD", lr=0.1, momentum=0.9, nesterov=True),
    "adamw": optimizer("AdamW", weight_decay=0.1),
    "rmsprop": optimizer("RMSprop", momentum=0.5),
    "amsgrad": optimizer("Adam", amsgrad=True, betas=[0.8, 0.9]),
}


def schedule(name: str, interval: str = "epoch", **more: Any) -> dict[str, Any]:
    return {**SCHEDULERS[name], "_partial_": True, "interval": interval, **more}


# --- as one worker ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "way",
    [
        pytest.param(way, marks=() if way in ("data", "aggregates", "vertex_cut", "coupled") else pytest.mark.slow)
        for way in WAYS
    ],
)
def test_clipping_momentum_and_a_schedule_by_steps(ranks, way, steps):
    config = config_in(way, MODELS["sage"], train={"clip_norm": 0.05}, hardware={"workers": 3})
    schedules = schedule("one_cycle", "step", total_steps=2 * steps)  # its rate goes up and down in these steps
    config |= {"optimizer": OPTIMIZERS["momentum"], "scheduler": schedules}
    assert_exact(ranks, 3, nasty_graph, config, 1e-10, partition=placed(way, nasty_graph(), 3), steps=steps)


@pytest.mark.parametrize("name", [*OPTIMIZERS])
def test_every_elementwise_optimizer_steps_slices(ranks, name, steps):
    config = config_in("aggregates", MODELS["gcn"], hardware={"workers": 2}) | {"optimizer": OPTIMIZERS[name]}
    assert_exact(ranks, 2, nasty_graph, config, 1e-9, steps=steps)


@pytest.mark.parametrize("store", ["EmbeddingOptions", "SlicedEmbeddingOptions"])
def test_trained_rows_are_clipped_once_and_follow_the_schedule(ranks, store):
    way = "aggregates" if store.startswith("Sliced") else "data"
    config = config_in(way, MODELS["sage"], train={"clip_norm": 0.02}, hardware={"workers": 3})
    config |= {
        "feature_store": {"_target_": f"gnnexp.feature_stores.embedding.{store}", "dim": 5},
        "optimizer": optimizer("SGD", lr=0.5),
        "scheduler": schedule("step", "step"),
    }
    curves, reference = assert_exact(ranks, 3, nasty_graph, config, 1e-10, steps=8)
    plain = (
        run_steps({**config, "train": {**config["train"], "clip_norm": None}}, nasty_graph(), 8)
        if way == "data"
        else reference
    )
    assert way != "data" or plain.losses != reference.losses, "the bound is reached"
    assert all(curve.rounds["gradients"] == 2 * 8 for curve in curves) or way == "aggregates"


def test_clipping_is_that_of_torch():
    with tempfile.TemporaryDirectory() as folder:
        config = small_config(MODELS["gat"])
        job, trainer = assembled(config, Artifacts(nasty_graph()), Path(folder), read_environment())
        for batch in trainer.batches(0):
            trainer.forward_backward(batch)
            trainer.synchronize()
            break
        copies = [torch.nn.Parameter(p.detach().clone()) for p in job.model.parameters()]
        for copy, parameter in zip(copies, job.model.parameters(), strict=True):
            copy.grad = parameter.grad.clone()
        norm = torch.nn.utils.clip_grad_norm_(copies, 0.01)
        assert norm > 0.01
        trainer.clip_gradients(0.01)
        for copy, parameter in zip(copies, job.model.parameters(), strict=True):
            torch.testing.assert_close(parameter.grad, copy.grad, rtol=1e-12, atol=0)
        before = [parameter.grad.clone() for parameter in job.model.parameters()]
        trainer.clip_gradients(1.0)
        same = zip(job.model.parameters(), before, strict=True)
        assert all(torch.equal(parameter.grad, one) for parameter, one in same)


# --- over epochs -----------------------------------------------------------------------------------------------------
def run(folder: str, **changes: Any) -> list[dict[str, Any]]:
    config = small_config(MODELS["sage"], **{"train": {"epochs": 6, "batch_size": 8, **changes.pop("train", {})}})
    Path(folder).mkdir(exist_ok=True)
    return trained({**config, **changes}, Artifacts(nasty_graph()), Path(folder), Environment())


def rates(records: list[dict[str, Any]]) -> list[float]:
    return [record["metrics"]["train/lr"] for record in records]


def test_the_record_has_the_learning_rate_that_a_schedule_gives(tmp_path):
    records = run(str(tmp_path), scheduler=schedule("step"))
    assert rates(records) == pytest.approx([0.01, 0.01, 0.003, 0.003, 0.0009, 0.0009])
    assert "train/lr" not in run(str(tmp_path / "other"))[0]["metrics"]


def test_a_schedule_by_a_metric_waits_for_it(tmp_path):
    plateau = {
        "_target_": "torch.optim.lr_scheduler.ReduceLROnPlateau",
        "_partial_": True,
        "monitor": "acc/val",
        "mode": "max",
        "patience": 0,
        "threshold": 10.0,
        "threshold_mode": "abs",
        "factor": 0.5,
    }
    records = run(str(tmp_path), scheduler=plateau, train={"eval_every": 2})
    evaluated = ["acc/val" in record["metrics"] for record in records]
    assert evaluated == [False, True] * 3
    assert rates(records) == pytest.approx([0.01, 0.01, 0.01, 0.01, 0.005, 0.005])


@pytest.mark.parametrize(
    ("name", "interval"),
    combinations(
        SCHEDULERS, ["epoch", "step"], quick=lambda *case: case in (("warmup", "epoch"), ("one_cycle", "step"))
    ),
)
def test_a_run_that_was_stopped_goes_on_bit_for_bit(tmp_path, name, interval):
    changes = {"scheduler": schedule(name, interval), "optimizer": OPTIMIZERS["momentum"]}
    if name == "one_cycle":
        changes["scheduler"] |= {"max_lr": 0.2}
    whole = run(str(tmp_path / "whole"), **changes)
    place = str(tmp_path / "parts")
    run(place, train={"epochs": 2}, **changes)
    again = run(place, **changes)
    assert [record["losses"] for record in again] == [record["losses"] for record in whole]
    assert rates(again) == rates(whole)


@pytest.mark.parametrize(
    ("interval", "train", "steps"),
    [("epoch", {}, 6), ("step", {}, 24), ("step", {"steps_per_epoch": 3}, 18), ("step", {"batch_size": None}, 6)],
)
def test_a_schedule_lasts_as_long_as_the_run(tmp_path, interval, train, steps):
    """One step less is refused before the run; with as many steps as the run has, it ends without an error."""
    training = {"epochs": 6, "batch_size": 8, **train}
    for length, keys in ((steps, []), (steps - 1, ["scheduler.total_steps"])):
        chosen = schedule("one_cycle", interval, total_steps=length)
        config = small_config(MODELS["sage"], train=training) | {"scheduler": chosen}
        assert [problem.key for problem in data_problems(config, nasty_graph())] == keys
    assert len(run(str(tmp_path), train=training, scheduler=schedule("one_cycle", interval, total_steps=steps))) == 6


def test_an_epoch_of_some_steps(tmp_path):
    full, bounded = run(str(tmp_path / "a")), run(str(tmp_path / "b"), train={"steps_per_epoch": 2})
    assert [len(record["losses"]) for record in full] == [4] * 6
    assert [len(record["losses"]) for record in bounded] == [2] * 6
    assert bounded[0]["losses"] == full[0]["losses"][:2], "the same targets, the same draws"


@pytest.mark.parametrize(
    "way",
    ["data", "split", "communicate", "vertex_cut", "coupled", pytest.param("offload_raw", marks=pytest.mark.slow)],
)
def test_a_bounded_epoch_is_that_of_one_worker(ranks, way):
    config = config_in(way, MODELS["gcn"], train={"steps_per_epoch": 1}, hardware={"workers": 2})
    assert_exact(ranks, 2, nasty_graph, config, 1e-10, partition=placed(way, nasty_graph(), 2), steps=6)


def test_a_run_without_progress_ends_and_keeps_its_last_model(tmp_path):
    records = run(str(tmp_path), optimizer=optimizer("SGD", lr=0.0), train={"epochs": 50, "patience": 3})
    assert len(records) == 4
    assert (tmp_path / "checkpoints").exists()


def test_when_a_run_is_over_and_why():
    train = experiment_in({"train": {"epochs": 9, "patience": 2, "eval_every": 1}}).train
    assert ending(train, Position(8), Best(6, 0.5)) == "" and ending(train, Position(9), Best(8, 0.5)) == "epochs"
    assert ending(train, Position(8), Best(5, 0.5)) == "patience" and ending(train, Position(8), Best()) == ""


@pytest.mark.parametrize(
    ("epoch", "value", "why"),
    [
        (0, math.nan, ""),
        (1, 0.0, ""),
        (2, 0.5, ""),
        (2, 0.49, "stop_below"),
        (2, math.nan, ""),
        (3, 0.0, ""),
        (9, 0.0, "epochs"),
    ],
)
def test_a_run_ends_below_the_limit_of_its_last_epoch(epoch, value, why):
    train = experiment_in({"train": {"epochs": 9, "stop_below": [None, 0.5], "eval_every": 1}}).train
    assert ending(train, Position(epoch), Best(epoch - 1, value)) == why


def test_limits_change_no_loss_and_end_a_run_that_is_below(tmp_path):
    full = run(str(tmp_path / "full"), train={"eval_every": 1})
    curve = list(accumulate((record["metrics"]["acc/val"] for record in full), max))
    kept = run(str(tmp_path / "kept"), train={"eval_every": 1, "stop_below": curve})
    assert [record["losses"] for record in kept] == [record["losses"] for record in full], "equal is not below"
    ended = run(str(tmp_path / "ended"), train={"eval_every": 1, "stop_below": [None, None, 1.1]})
    assert [record["losses"] for record in ended] == [record["losses"] for record in full[:3]]
    again = run(str(tmp_path / "ended"), train={"eval_every": 1, "stop_below": [None, None, 1.1]})
    assert again == ended, "a run that is over does not go on"
    assert best_of(ended, "acc").value == curve[2]


# --- what is refused -------------------------------------------------------------------------------------------------
TRAIN = {"eval_every": 1}


def told(**changes: Any) -> list[str]:
    return [problem.key for problem in check_config({**small_config(MODELS["sage"], train=TRAIN), **changes})]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"optimizer": optimizer("LBFGS")}, "optimizer._target_"),
        ({"optimizer": optimizer("Adam", lr=-1.0)}, "optimizer.lr"),
        ({"optimizer": optimizer("Adam", params=[1])}, "optimizer.params"),
        ({"optimizer": optimizer("Adma")}, "optimizer._target_"),
        ({"optimizer": {"_target_": "torch.nn.Linear", "_partial_": True}}, "optimizer._target_"),
        ({"optimizer": {"_target_": "torch.optim.Adam", "lr": 0.1}}, "optimizer._partial_"),
        ({"scheduler": schedule("step", "week")}, "scheduler.interval"),
        ({"scheduler": schedule("step", optimizer=1)}, "scheduler.optimizer"),
        ({"scheduler": {**schedule("step"), "step_size": 0}}, "scheduler"),
        (
            {"scheduler": {**schedule("warmup"), "schedulers": [{"_target_": "torch.optim.Adam", "_partial_": True}]}},
            "scheduler.schedulers.0._target_",
        ),
    ],
)
def test_one_problem_by_its_key(changes, key):
    assert told(**changes) == [key]


def test_what_does_not_go_together():
    slices = config_in("aggregates", MODELS["sage"], train=TRAIN) | {"optimizer": optimizer("Adafactor")}
    assert [problem.key for problem in check_config(slices)] == ["optimizer"]
    averaging = {"_target_": "gnnexp.paradigms.model_averaging.ModelAveraging"}
    assert "scheduler.interval" in told(paradigm=averaging, scheduler=schedule("step", "step"))
    unseen = {**small_config(MODELS["sage"])["train"], "patience": 2, "stop_below": [0.5], "eval_every": None}
    assert told(train=unseen) == ["train.patience", "train.stop_below"], "they need an evaluation"


@pytest.mark.parametrize(
    ("node", "entries"),
    [
        (optimizer("Adam"), 2),
        (optimizer("Adam", amsgrad=True), 3),
        (optimizer("SGD"), 0),
        (optimizer("SGD", momentum=0.9), 1),
        (optimizer("Adagrad"), 1),
    ],
)
def test_what_an_optimizer_keeps_of_a_parameter(node, entries):
    assert entries_of(experiment_in({"optimizer": node}).optimizer) == entries
