"""Steps that are captured as CUDA graphs: bit for bit what the same steps compute and count without a graph."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from captured import assert_same, captured_config, trained
from stopping import attempt, curve, undisturbed

from emulated_gpu import is_wanted
from gnnexp.comm.environment import read_environment
from gnnexp.errors import ConfigError, RunError
from gnnexp.experiment.build import experiment_of
from gnnexp.models.model import Model
from gnnexp.ops.masks import DropKeys
from gnnexp.paradigms.base import trainer_of
from gnnexp.record.records import EpochLog, read_epochs
from gnnexp.testing.exactness import parts
from gnnexp.testing.graphs import half_without_in_edges, nasty_graph, weighted_graph
from gnnexp.testing.ranks import RankError
from gnnexp.testing.steps import optimizer
from gnnexp.testing.ways import TENSOR, VERTEX
from gnnexp.training.assemble import Artifacts, assemble
from gnnexp.training.train import train

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")]
emulated = pytest.mark.skipif(not is_wanted(), reason="a real GPU may add in another order")
PLAIN = {"_target_": VERTEX}
WAYS: dict[str, dict[str, Any]] = {
    "communicate": PLAIN,
    "cache": {**PLAIN, "dependency": "cache"},
    "broadcast": {**PLAIN, "exchange": "broadcast"},
    "cut": PLAIN,
    "coupled": {"_target_": TENSOR},
    "decoupled": {"_target_": TENSOR, "mode": "decoupled"},
}


def pair(ranks: Any, size: int, model: str, way: str, **options: Any) -> list[Any]:
    """The same training without and with a graph, of every rank."""
    evaluate = options.pop("evaluate", False)
    cases = [captured_config(model, WAYS[way], captured=on, cut=way == "cut", **options) for on in (False, True)]
    found = [
        [trained(case, evaluate=evaluate)] if size == 1 else ranks(size).run(_on_rank, case, evaluate) for case in cases
    ]
    for plain, captured in zip(*found, strict=True):
        assert_same(plain, captured)
    return list(zip(*found, strict=True))


def _on_rank(config: dict[str, Any], evaluate: bool) -> Any:
    return trained(config, evaluate=evaluate)


@emulated
@pytest.mark.parametrize(
    ("model", "way"),
    [
        *(
            (model, way)
            for model in ("gcn", "sage", "gin", "gat_residual", "written_here")
            for way in ("communicate", "cut", "coupled")
        ),
        ("residual", "decoupled"),
        ("gcn", "decoupled"),
    ],
)
def test_one_rank(model, way):
    ((plain, captured),) = pair(None, 1, model, way)
    assert captured.waits == plain.waits == 0
    assert captured.launches < plain.launches / 8, "only the optimizer launches by itself"


@emulated
@pytest.mark.parametrize(
    ("model", "make"),
    [("gcn", weighted_graph), ("gcn", half_without_in_edges), ("gat_residual", weighted_graph)],
)
@pytest.mark.parametrize("way", ["communicate", "coupled"])
def test_weights_of_edges_and_vertices_without_edges(way, model, make):
    """Static weights are computed once, before the capture."""
    assert_same(*(trained(captured_config(model, WAYS[way], captured=on), make=make) for on in (False, True)))


@emulated
@pytest.mark.gpus
@pytest.mark.parametrize("way", WAYS)
def test_two_ranks_with_nccl(ranks, way):
    if torch.cuda.device_count() < 2:
        pytest.skip("ranks share a GPU: no NCCL")
    for plain, captured in pair(ranks, 2, "sage", way):
        assert captured.launches < plain.launches / 8
        assert captured.exchanges.keys() == plain.exchanges.keys() and all(captured.exchanges.values())


@emulated
@pytest.mark.parametrize("model", ["sage", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gcn", "gat"))])
def test_kernels_of_triton(model):
    pytest.importorskip("triton")
    ((plain, captured),) = pair(None, 1, model, "communicate", kernel="triton")
    assert captured.launches < plain.launches


@emulated
def test_what_changes_between_steps_stays_outside_of_the_graph():
    """Learning rate, weight decay, clipping, and evaluation between steps."""
    schedule = {
        "_target_": "torch.optim.lr_scheduler.StepLR",
        "_partial_": True,
        "step_size": 1,
        "gamma": 0.5,
        "interval": "epoch",
    }
    cases = []
    for on in (False, True):
        config = captured_config("gat", PLAIN, captured=on, train={"clip_norm": 0.1, "weight_decay_on": "first"})
        cases.append({**config, "scheduler": schedule, "optimizer": optimizer("SGD", momentum=0.9, weight_decay=0.1)})
    plain, captured = (trained(config, evaluate=True) for config in cases)
    assert_same(plain, captured)
    other = trained({**cases[1], "scheduler": None})
    assert other.losses[:2] == plain.losses[:2] and other.losses[2:] != plain.losses[2:], "the control"


@emulated
def test_without_new_keys_all_replays_would_have_the_same_masks(monkeypatch):
    """The control: losses are then others, so the tests above would fail."""
    plain = trained(captured_config("sage", PLAIN, captured=False))
    bring, first = DropKeys.bring, []

    def never_again(self, key):
        first.append(key)
        return bring(self, first[min(2, len(first) - 1)])

    monkeypatch.setattr(DropKeys, "bring", never_again)
    captured = trained(captured_config("sage", PLAIN, captured=True))
    with pytest.raises(AssertionError):
        assert_same(plain, captured)


@emulated
def test_phases_of_a_replay_are_times_in_the_graph():
    captured = trained(captured_config("gat", PLAIN, captured=True))
    for phase in ("forward", "loss", "backward", "update"):
        assert captured.times.phases[phase] > 0
    assert 0 <= captured.times.unaccounted_s < captured.times.epoch_s


def test_on_any_gpu_the_losses_are_those_without_a_graph():
    plain, captured = (trained(captured_config("sage", PLAIN, captured=on)) for on in (False, True))
    assert captured.losses == pytest.approx(plain.losses, rel=1e-10)
    assert captured.captured_bytes > 0 == plain.captured_bytes


def test_ranks_that_share_a_gpu_are_told_before_the_first_step(ranks):
    size = torch.cuda.device_count() + 1
    with pytest.raises(RankError, match=r"(?s)train.cuda_graph.*ranks share a GPU.*set train.cuda_graph=false"):
        ranks(size).run(_on_rank, captured_config("sage", PLAIN, captured=True), False)


def test_a_model_that_waits_is_an_error_with_the_fix(monkeypatch):
    finish = Model.finish_layer

    def waits(self, index, ids, preactivated, residual):
        return finish(self, index, ids, preactivated * float(preactivated.new_ones(()).item()), residual)

    monkeypatch.setattr(Model, "finish_layer", waits)
    before = torch.cuda.current_stream()
    with pytest.raises(RunError, match=r"model=sage cannot be captured \(.*not permitted.*train.cuda_graph=false"):
        trained(captured_config("sage", PLAIN, captured=True))
    assert torch.cuda.current_stream() == before, "else what the process does next is on the stream of the capture"


def test_a_rank_without_a_gpu_is_told(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = captured_config("sage", PLAIN, captured=True, kernel="auto")
    config["hardware"]["device"] = "auto"
    with pytest.raises(ConfigError, match="no CUDA device is visible"):
        trained(config)


@emulated
@pytest.mark.parametrize(
    ("size", "stop_at"),
    [
        (1, 1),
        (1, 4),
        pytest.param(2, 4, marks=[pytest.mark.slow, pytest.mark.gpus]),
    ],
    ids=["while_warming_up", "after_replays", "two_ranks"],
)
def test_stopped_and_resumed_it_goes_on_as_without_a_graph(ranks, size, stop_at, tmp_path):
    if torch.cuda.device_count() < size:
        pytest.skip("ranks share a GPU: no NCCL")
    plain, config = (
        captured_config("sage", PLAIN, captured=on, train={"epochs": 8, "checkpoint_every": 1}) for on in (False, True)
    )
    expected, ended = undisturbed(ranks, size, plain)
    first = ranks(size).run(attempt, config, str(tmp_path), stop_at)
    assert first[-1]["stopped_by"] == "SIGTERM" and len(curve(str(tmp_path))) == stop_at + 1
    second = ranks(size).run(attempt, config, str(tmp_path), None)
    assert curve(str(tmp_path)) == expected
    for before, after in zip(ended, second, strict=True):
        assert all(torch.equal(before["state"][key], after["state"][key]) for key in before["state"])


@emulated
def test_a_run_records_which_epochs_were_replayed_and_frees_the_graph_with_the_trainer(tmp_path):
    """As a worker trains. Its groups of ranks must not be destroyed before the graph that uses them."""
    config = {**captured_config("sage", PLAIN, captured=True, train={"epochs": 6}), "trace": 4}
    graph = nasty_graph()
    job = assemble(experiment_of(config), Artifacts(graph, parts(graph, 1)), tmp_path, read_environment())
    trainer = trainer_of(job)
    there = weakref.ref(trainer)
    train(job, trainer, EpochLog(tmp_path, 0), {})
    del trainer
    assert there() is None
    epochs = read_epochs(tmp_path)
    assert [epoch["metrics"].get("work/steps_replayed", 0) for epoch in epochs] == [0, 0, 1, 1, 1, 1]
    metrics = epochs[4]["metrics"]
    assert metrics["trace/launches"] < 15 and metrics["trace/waits"] <= 2
    assert metrics["memory/device_peak_bytes"] >= epochs[2]["metrics"]["memory/device_peak_bytes"]
    assert 0 <= metrics["time/unaccounted_s"] < metrics["time/epoch_s"]


@emulated
def test_the_epoch_that_is_traced_is_never_the_one_that_is_captured(tmp_path):
    """A resumed run warms up again, and may come to the traced epoch then."""
    config = {**captured_config("sage", PLAIN, captured=True), "trace": 3}
    graph = nasty_graph()
    job = assemble(experiment_of(config), Artifacts(graph, parts(graph, 1)), tmp_path, read_environment())
    trainer = trainer_of(job)
    replayed = []
    for epoch in range(1, 6):
        job.timer.start_epoch()
        for batch in trainer.batches(epoch):
            trainer.forward_backward(batch)
        replayed.append(trainer.end_epoch().work.get("steps_replayed", 0))
        job.timer.end_epoch()
    assert replayed == [0, 0, 0, 1, 1]
