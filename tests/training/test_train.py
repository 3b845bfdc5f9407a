"""The loop end to end in one process: the record explains the epoch, counts equal their formulas, a slow rank shows."""

from __future__ import annotations

import math
import statistics
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from combinations import combinations
from experiments import trained
from slow_rank import slowed

from gnnexp.comm.environment import read_environment
from gnnexp.errors import RunError
from gnnexp.measure.phases import PHASES, Phase
from gnnexp.record.records import summarize
from gnnexp.testing.exactness import parts
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, small_config
from gnnexp.training.assemble import Artifacts


def _train(config: dict[str, Any], graph_options: dict[str, Any]) -> list[dict[str, Any]]:
    environment = read_environment()
    with tempfile.TemporaryDirectory() as folder:
        return trained(config, Artifacts(nasty_graph(**graph_options)), Path(folder), environment)


LARGER = {"num_nodes": 3000, "num_edges": 60000, "num_features": 64}


def test_phases_add_up_on_every_rank(ranks):
    config = small_config(MODELS["sage"], train={"epochs": 3, "batch_size": 256, "dtype": "float32"})
    epochs = ranks(2).run(_train, config, LARGER)[0]
    for epoch in epochs:
        for rank in epoch["ranks"]:
            times = rank["times"]
            total = sum(times["phases"].values()) + times["unaccounted_s"]
            assert total == pytest.approx(times["epoch_s"], rel=1e-9)
            assert set(times["phases"]) == set(PHASES)


def test_all_ranks_end_a_run_after_the_same_epoch(ranks):
    config = small_config(MODELS["sage"], train={"epochs": 5, "eval_every": 1, "stop_below": [None, 1.1]})
    assert len(ranks(2).run(_train, config, {})[0]) == 2


def _train_parts(config: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    environment, graph = read_environment(), nasty_graph(**LARGER)
    with tempfile.TemporaryDirectory() as folder:
        return trained(config, Artifacts(graph, parts(graph, 2, kind)), Path(folder), environment)


@pytest.mark.parametrize(
    ("topology", "kind"),
    combinations(
        ["partitioned", "replicated"],
        ["random", "skewed", "empty"],
        quick=lambda *case: case in (("partitioned", "skewed"), ("replicated", "empty")),
    ),
)
def test_batches_prepared_ahead_by_exchanges_end_together(ranks, kind, topology):
    """The untimed pass closes its batches early, when a rank may be ahead of its peers in preparing them."""
    config = small_config(
        MODELS["sage"],
        train={"epochs": 2, "batch_size": 64, "overlap": True},
        sampler={"topology": topology, "threads": 1, "prefetch": 3},
    )
    config["paradigm"] = {"_target_": "gnnexp.paradigms.data_parallel.DataParallel", "assign": "owner"}
    config["feature_store"] = {"_target_": "gnnexp.feature_stores.partitioned.PartitionedOptions"}
    epochs = ranks(2).run(_train_parts, config, kind)[0]
    steps = len(epochs[0]["batches"]["edges"])
    assert [epoch["metrics"]["comm/rounds_features"] for epoch in epochs] == [2 * steps] * 2
    sampling = 2 * steps if topology == "partitioned" else 0
    assert [epoch["metrics"].get("comm/rounds_frontier", 0) for epoch in epochs] == [sampling] * 2


def _train_with_a_slow_rank(config: dict[str, Any], phase: Phase) -> list[dict[str, Any]]:
    with slowed(phase, 0.05) if read_environment().rank == 1 else nullcontext():
        return _train(config, {})


def test_the_timer_of_a_slow_rank_is_entered():
    """The slow test below needs it; here no time is compared."""
    config = small_config(MODELS["sage"], train={"epochs": 2})
    with slowed("forward", 0.0), patch("slow_rank.time") as clock:
        _train(config, {})
    assert clock.sleep.call_count == 2, "once in every epoch"


@pytest.mark.slow  # it compares measured times: not for a busy machine
@pytest.mark.parametrize("phase", ["sample", "load", "forward", "backward", "sync", "update"])
def test_an_injected_delay_shows_in_its_phase_and_in_the_others_wait(ranks, phase):
    quiet = small_config(MODELS["sage"], train={"epochs": 12, "batch_size": None, "dtype": "float32"})
    before = ranks(2).run(_train, quiet, {})[0]
    after = ranks(2).run(_train_with_a_slow_rank, quiet, phase)[0]

    def typical(epochs, rank, name):
        return statistics.median(epoch["ranks"][rank]["times"]["phases"][name] for epoch in epochs[1:])

    for name in PHASES:
        raised = typical(after, 1, name) - typical(before, 1, name)
        assert raised == pytest.approx(0.05 if name == phase else 0.0, abs=0.005), name
    # After the optimizer's step there is nothing to wait for before the next epoch's first exchange.
    expected = 0.0 if phase == "update" else 0.05
    for name in PHASES:
        raised = typical(after, 0, name) - typical(before, 0, name)
        assert raised == pytest.approx(expected if name == "wait" else 0.0, abs=0.005), name


@pytest.mark.parametrize("overlap", [True, False])
def test_counters_equal_their_formulas(overlap):
    graph = nasty_graph()
    config = small_config(MODELS["sage"], train={"epochs": 2, "overlap": overlap, "batch_size": None})
    config["sampler"] = {"_target_": "gnnexp.samplers.full.FullOptions"}
    first, second = _train(config, {})
    targets = set(graph.splits.train.tolist())
    edges, frontier, destinations = 0, targets, []
    sources: set[int] = set()
    for _ in range(2):
        edges += sum(int(graph.in_degree[v]) for v in frontier)
        destinations.insert(0, len(frontier))
        sources = frontier | {
            int(u) for v in frontier for u in graph.indices[int(graph.indptr[v]) : int(graph.indptr[v + 1])]
        }
        frontier = sources
    assert first["metrics"]["work/edges_sampled"] == edges
    assert second["metrics"]["work/edges_computed"] == edges
    assert [second["metrics"][f"work/vertices_layer{layer}"] for layer in (1, 2)] == destinations
    # One full batch is read once (in the memory probe before the first epoch) and then stays where it is.
    assert second["metrics"]["work/features_loaded_host"] == 0
    assert "comm/bytes_gradients" not in first["metrics"]


def test_every_batch_loads_its_input_vertices():
    config = small_config(MODELS["sage"], train={"epochs": 1, "batch_size": 7}, sampler={"fanouts": [-1, -1]})
    (epoch,) = _train(config, {})
    assert epoch["metrics"]["work/features_loaded_host"] > 30
    assert epoch["metrics"]["tier/h2d_bytes"] > epoch["metrics"]["work/features_loaded_host"] * 13 * 8
    assert len(epoch["losses"]) == math.ceil(30 / 7)


def _train_in(config: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    return trained(config, Artifacts(nasty_graph()), folder, read_environment())


@pytest.mark.parametrize("overlap", [True, False])
def test_a_traced_epoch_trains_the_same_and_every_rank_writes_its_trace(ranks, tmp_path, overlap):
    config = small_config(MODELS["sage"], train={"epochs": 3, "overlap": overlap}, hardware={"workers": 2})
    for name in ("plain", "traced"):
        (tmp_path / name).mkdir()
    expected = ranks(2).run(_train_in, config, tmp_path / "plain")[0]
    found = ranks(2).run(_train_in, {**config, "trace": 1}, tmp_path / "traced")[0]
    assert [epoch["losses"] for epoch in found] == [epoch["losses"] for epoch in expected]
    assert not (tmp_path / "plain" / "traces").exists()
    names = sorted(file.name for file in (tmp_path / "traced" / "traces").iterdir())
    assert names == ["epoch_1_rank_0.json.gz", "epoch_1_rank_1.json.gz"]
    assert ["trace/events" in epoch["metrics"] for epoch in found] == [False, True, False]
    assert found[1]["metrics"]["trace/events"] == sum(rank["trace"]["events"] for rank in found[1]["ranks"])
    assert "trace" not in found[0]["ranks"][0]


def test_a_loss_that_is_not_finite_ends_the_run():
    config = small_config(MODELS["sage"], train={"epochs": 5}, optimizer={"lr": 1e200})
    with pytest.raises(RunError, match=r"optimizer\.lr"):
        _train(config, {})


def test_same_seed_same_records_of_another_run():
    config = small_config(MODELS["gat"], train={"epochs": 2})
    assert _train(config, {})[1]["losses"] == _train(config, {})[1]["losses"]


def test_summary_takes_the_test_metric_at_the_best_validation_epoch():
    epochs = [
        {"epoch": n, "metrics": {"loss/train": 1.0, "acc/val": val, "acc/test": test, "time/epoch_s": time}}
        for n, (val, test, time) in enumerate([(0.1, 0.9, 9.0), (0.5, 0.4, 2.0), (0.3, 0.8, 3.0), (0.2, 0.1, 4.0)])
    ]
    summary = summarize(epochs, "acc")
    assert (summary["best_epoch"], summary["acc/test"]) == (1, 0.4)
    assert summary["time/epoch_s"] == 3.0
    unchosen = [{**epoch, "metrics": {**epoch["metrics"], "acc/val": float("nan")}} for epoch in epochs]
    assert summarize(unchosen, "acc")["acc/test"] == 0.1, "without validation vertices the last evaluation counts"


def _with(measure: str, device: str = "cpu", **changes: Any) -> dict[str, Any]:
    config = small_config(
        MODELS["sage"],
        train={"epochs": 2, "batch_size": 256, "dtype": "float32", **changes},
        hardware={"workers": 2, "device": device},
    )
    return {**config, "measure": measure}


def _counted(metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics that are no times and no peaks of memory."""
    return {
        key: value
        for key, value in metrics.items()
        if not key.startswith(("time/", "memory/")) and not key.endswith(("peak_bytes", "seconds"))
    }


def _agree(exact: list[dict[str, Any]], free: list[dict[str, Any]]) -> None:
    """Results and counts are equal; times with `free` explain the epoch, and no rank waits for another one."""
    for one, other in zip(exact, free, strict=True):
        assert _counted(one["metrics"]) == _counted(other["metrics"])
        for rank in other["ranks"]:
            times = rank["times"]
            total = sum(times["phases"].values()) + times["unaccounted_s"]
            assert total == pytest.approx(times["epoch_s"], rel=1e-9) and min(times["phases"].values()) >= 0
            assert times["phases"]["forward"] > 0 and times["phases"]["wait"] == 0
            assert rank["traffic"]["gradients"]["seconds"] > 0


def test_free_times_explain_the_epoch_and_change_nothing_else(ranks):
    _agree(*(ranks(2).run(_train, _with(measure), LARGER)[0] for measure in ("exact", "free")))


@pytest.mark.gpu
@pytest.mark.parametrize("overlap", [False, True])
def test_free_times_of_a_gpu_explain_the_epoch_and_change_nothing_else(ranks, overlap):
    _agree(*(ranks(2).run(_train, _with(measure, "cuda", overlap=overlap), LARGER)[0] for measure in ("exact", "free")))
