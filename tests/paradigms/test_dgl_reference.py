"""The yardsticks run, count what DDP sends, and hand their parameters to the shared evaluation."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from combinations import combinations
from experiments import assembled, experiment_in, trained

from gnnexp.comm.environment import Environment, read_environment
from gnnexp.errors import ConfigError
from gnnexp.experiment.build import build
from gnnexp.paradigms.base import Paradigm
from gnnexp.tasks.base import Examples
from gnnexp.tasks.node_classification import NodeClassification, NodeClassificationOptions
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, run_steps, small_config
from gnnexp.training.assemble import Artifacts
from gnnexp.training.optimization import make_optimizer

REFERENCE = {"_target_": "gnnexp.paradigms.dgl_reference.DGLReference"}
FULL_GRAPH = {"_target_": "gnnexp.paradigms.dgl_full_graph.DGLFullGraph"}


def _config(model: str, paradigm: dict[str, Any], **train: Any) -> dict[str, Any]:
    whole = {"batch_size": None} if paradigm == FULL_GRAPH else {}
    return {**small_config(MODELS[model], train={"dtype": "float32", **whole, **train}), "paradigm": paradigm}


def _train(config: dict[str, Any]) -> list[dict[str, Any]]:
    environment = read_environment()
    with tempfile.TemporaryDirectory() as folder:
        return trained(config, Artifacts(nasty_graph()), Path(folder), environment)


@pytest.mark.parametrize(
    ("paradigm", "model"),
    combinations(
        [REFERENCE, FULL_GRAPH],
        MODELS,
        quick=lambda paradigm, model: (paradigm == REFERENCE) == (model in ("sage", "gat")),
    ),
)
def test_it_learns(model, paradigm):
    config = _config(model, paradigm, epochs=6, batch_size=30, lr=0.02)
    config["model"] |= {"dropout": 0.0, "input_dropout": 0.0}
    epochs = _train(config)
    assert epochs[-1]["metrics"]["loss/train"] < epochs[0]["metrics"]["loss/train"]
    assert 0 <= epochs[-1]["metrics"]["acc/test"] <= 1


def test_ddp_is_counted_to_the_byte(ranks):
    epochs = ranks(2).run(_train, _config("gcn", REFERENCE, batch_size=8))[0]
    steps, parameters = len(epochs[0]["losses"]), (13 * 16 + 16) + (16 * 4 + 4)
    assert steps == 4  # 30 targets, 15 per rank, 4 of them in a batch of a rank
    assert epochs[0]["metrics"]["comm/bytes_gradients"] == steps * 2 * 1 * parameters * 4
    assert epochs[0]["metrics"]["time/comm_s"] > 0


@pytest.mark.parametrize("size", [1, 2])
def test_what_ddp_does_inside_of_backward_is_not_told_apart(ranks, size):
    (epoch, *_) = ranks(size).run(_train, _config("gcn", REFERENCE, batch_size=8))[0]
    told = {name for name in epoch["metrics"] if name.startswith(("time/sync_s", "time/wait_s"))}
    assert bool(told) == (size == 1)
    phases = [rank["times"]["phases"] for rank in epoch["ranks"]]
    assert all(("wait" in times) == ("sync" in times) == (size == 1) for times in phases)
    for rank, times in zip(epoch["ranks"], phases, strict=True):
        whole = sum(times.values()) + rank["times"]["unaccounted_s"]
        assert whole == pytest.approx(rank["times"]["epoch_s"])


def test_full_graph_gradients_are_those_of_data_parallel_without_dropout():
    plain = {"dropout": 0.0, "input_dropout": 0.0}
    ours = small_config({**MODELS["sage"], **plain}, train={"batch_size": None})
    ours["sampler"] = {"_target_": "gnnexp.samplers.full.FullOptions"}
    expected = run_steps(ours, nasty_graph(), 3)
    found = run_steps({**ours, "paradigm": FULL_GRAPH}, nasty_graph(), 3)
    for (loss, count), (other, other_count) in zip(expected.losses, found.losses, strict=True):
        assert count == other_count
        assert loss == pytest.approx(other, rel=1e-10)


@pytest.mark.parametrize("paradigm", [REFERENCE, FULL_GRAPH])
def test_weight_decay_may_be_on_the_first_layer_only(paradigm):
    environment = read_environment()
    with tempfile.TemporaryDirectory() as folder:
        config = _config("sage", paradigm, weight_decay_on="first")
        config["optimizer"]["weight_decay"] = 0.5
        job, made = assembled(config, Artifacts(nasty_graph()), Path(folder), environment)
        decayed, rest = make_optimizer(made.module, job.experiment).param_groups
    assert (decayed["weight_decay"], rest["weight_decay"]) == (0.5, 0.0)
    assert {id(p) for p in decayed["params"]} == {id(p) for p in made.module.convs[0].parameters()}


def test_evaluation_uses_the_trained_parameters():
    with tempfile.TemporaryDirectory() as folder:
        _, trainer = assembled(_config("gat", REFERENCE), Artifacts(nasty_graph()), Path(folder), Environment())
        with torch.no_grad():
            for parameter in trainer.module.parameters():
                parameter.fill_(0.25)
        model = trainer.evaluation_model()
        assert all(bool((parameter == 0.25).all()) for parameter in model.parameters())


def test_what_it_cannot_do_is_refused_with_the_reason():
    with pytest.raises(ConfigError, match="residual"):
        run_steps(
            {**_config("sage", REFERENCE), "model": {**_config("sage", REFERENCE)["model"], "residual": True}},
            nasty_graph(),
            1,
        )
    full: Paradigm = build(FULL_GRAPH, Paradigm)
    sage, store, task = (_config("sage", REFERENCE)[group] for group in ("model", "feature_store", "task"))
    rest = {"feature_store": store, "task": task, "hardware": {"nodes": 1, "workers": 1, "device": "cpu"}}
    two = {**rest["hardware"], "workers": 2}
    (problem,) = full.check(experiment_in({"model": sage, **rest, "hardware": two, "train": {"batch_size": None}}))
    assert "one worker" in problem.allowed
    (problem,) = full.check(experiment_in({"model": sage, **rest, "train": {"batch_size": 2}}))
    assert problem.key == "train.batch_size" and problem.fix == "set train.batch_size=null"
    assert not full.check(experiment_in({"model": sage, **rest, "train": {"batch_size": None}}))
    reference: Paradigm = build(REFERENCE, Paradigm)
    full_sampler = {"_target_": "gnnexp.samplers.full.FullOptions"}
    (problem,) = reference.check(experiment_in({"sampler": full_sampler, "model": sage, **rest}))
    assert "fanouts" in problem.allowed
    both = reference.check(experiment_in({"sampler": full_sampler, "model": {**sage, "residual": True}, **rest}))
    assert len(both) == 2 and "residual" in both[1].allowed, "known before anything is launched"


class MappedTask(NodeClassification):
    """Classes by a learned map of the outputs."""

    def decoder(self, num_outputs: int, *, seed: int, dtype: torch.dtype, device: torch.device) -> torch.nn.Module:
        return torch.nn.Linear(num_outputs, num_outputs, dtype=dtype, device=device)


class ShiftedTask(NodeClassification):
    """Nothing is learned, but the outputs are not the scores."""

    def decode(self, outputs: torch.Tensor, examples: Examples) -> torch.Tensor:
        return outputs - outputs[:, :1]


class Mapped(NodeClassificationOptions):
    """Options of `MappedTask`."""

    def make(self) -> NodeClassification:
        return MappedTask(self)


class Shifted(NodeClassificationOptions):
    """Options of `ShiftedTask`."""

    def make(self) -> NodeClassification:
        return ShiftedTask(self)


class Renamed(NodeClassificationOptions):
    """The outputs are the scores."""


@pytest.mark.parametrize("paradigm", [REFERENCE, FULL_GRAPH])
@pytest.mark.parametrize(("task", "refused"), [(Mapped, True), (Shifted, True), (Renamed, False)])
def test_a_task_that_decodes_is_refused(paradigm, task, refused):
    """DGL's loops would train another model, without what the task learns."""
    config = {**_config("sage", paradigm), "task": {"_target_": f"{__name__}.{task.__name__}"}}
    problems = build(paradigm, Paradigm).check(experiment_in(config))
    assert [(problem.key, problem.value) for problem in problems] == refused * [("task", config["task"]["_target_"])]
    if refused:
        assert "decodes" in problems[0].allowed and "node_classification" in problems[0].fix


@pytest.mark.parametrize("paradigm", [REFERENCE, FULL_GRAPH])
def test_a_gpu_is_refused(paradigm):
    """DGL's graph stays on the host; on a machine with a GPU, `auto` would take it."""
    config = _config("sage", paradigm)
    cases = (("cpu", True, False), ("auto", False, False), ("auto", True, True), ("cuda", True, True))
    for device, there, refused in cases:
        on_device = {**config, "hardware": {**config["hardware"], "device": device}}
        with patch("torch.cuda.is_available", return_value=there):
            problems = build(paradigm, Paradigm).check(experiment_in(on_device))
        assert [problem.key for problem in problems] == refused * ["hardware.device"], (device, there)


@pytest.mark.parametrize("paradigm", [REFERENCE, FULL_GRAPH])
def test_links_are_refused_once(paradigm):
    config = {**_config("sage", paradigm), "task": {"_target_": "gnnexp.tasks.link_prediction.LinkPredictionOptions"}}
    (problem,) = build(paradigm, Paradigm).check(experiment_in(config))
    assert "not on links" in problem.allowed
