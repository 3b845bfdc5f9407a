"""Counts of a scaled run in the size of its shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnnexp.planning.work import full_factor, full_size, full_steps, work_of
from gnnexp.record.runs import RecordedRun


def run_of(batch: int | None = 16, **dataset: Any) -> RecordedRun:
    config = {
        "dataset": {"shape": "orkut_like", "scale": 0.25, **dataset},
        "hardware": {"workers": 2},
        "task": {},
        "model": {"hidden": 4, "layers": 1},
        "feature_store": {},
        "sampler": {},
        "train": {"batch_size": batch},
    }
    epoch = {
        "work/edges_sampled": 100.0,
        "work/edges_layer1": 100.0,
        "work/vertices_layer1": 10.0,
        "comm/bytes_gradients": 64.0,
        "comm/rounds_gradients": 8.0,
        "work/features_loaded_host": 50.0,
    }
    provenance = {"graph": {"num_features": 8, "num_classes": 3, "num_train": 128}, "choices": {"model": "sage"}}
    return RecordedRun(Path("x"), config, provenance, [epoch] * 3, {}, "finished")


def test_graph_and_batches_grow_and_steps_are_those_of_all_targets() -> None:
    run = run_of(train=0.05)  # Orkut's shape trains a quarter of its vertices
    assert (full_factor(run), full_steps(run)) == (4.0, 5.0)
    small, full = work_of(run), full_size(run)
    assert full.sampled_edges == pytest.approx(20 * small.sampled_edges)
    assert full.loaded_bytes["host"] == pytest.approx(20 * small.loaded_bytes["host"])
    assert full.sent_bytes["gradients"] == pytest.approx(5 * small.sent_bytes["gradients"]), "once per step"
    assert full.rounds["gradients"] == pytest.approx(5 * small.rounds["gradients"])
    assert full.steps == pytest.approx(5 * small.steps) and full.device_bytes == small.scaled(4).device_bytes


def test_a_paper_may_train_another_share_than_the_shape_has() -> None:
    run = run_of(train=0.05)
    assert full_steps(run, 0.1) == 2.0 and full_size(run, 0.1).steps == pytest.approx(2 * work_of(run).steps)
    assert full_steps(run_of(None, train=0.05), 0.1) == 1.0


@pytest.mark.parametrize(
    "run", [run_of(None, train=0.05), run_of(train=None), run_of(shape=None, train=0.05), run_of(train=0.65)]
)
def test_as_many_steps(run: RecordedRun) -> None:
    assert full_steps(run) == 1.0


def test_a_real_graph_is_as_large_as_it_is() -> None:
    assert full_factor(run_of(shape=None, scale=None)) == 1.0
