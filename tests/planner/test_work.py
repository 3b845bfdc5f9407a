"""Work of a recorded epoch, by hand: GraphSAGE 100 -> 16 -> 4 on 2 ranks, then what grows with the graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gnnexp.planner.work import Work, widths, work_of
from gnnexp.runs import Run

METRICS = {
    "work/edges_sampled": 1000, "imbalance/edges_sampled": 1.2, "work/features_loaded_host": 400,
    "imbalance/features_loaded_host": 1.1, "work/features_loaded_peer": 100, "work/edges_layer1": 600,
    "work/edges_layer2": 400, "imbalance/edges_layer1": 1.5, "work/vertices_layer1": 200, "work/vertices_layer2": 50,
    "comm/bytes_features": 4000, "comm/rounds_features": 6, "comm/bytes_gradients": 900, "comm/rounds_gradients": 3,
    "comm/bytes_evaluation": 7, "comm/rounds_evaluation": 1, "tier/h2d_bytes": 200_000,
    "memory/device_peak_bytes": 5_000,
}


def run_of(chosen: str = "sage", purpose: str = "node_classification", **more: Any) -> Run:
    config: dict[str, Any] = {
        "dataset": {}, "hardware": {"nodes": 1, "workers": 2}, "model": {"hidden": 16, "layers": 2},
        "feature_store": {}, "task": {}, **more,
    }
    graph = {"num_nodes": 50, "num_edges": 700, "num_features": 100, "num_classes": 4}
    provenance = {"choices": {"model": chosen, "task": purpose}, "graph": graph}
    return Run(Path(), config, provenance, [{}, METRICS, METRICS], {}, "finished")


def test_an_epoch_by_hand() -> None:
    work = work_of(run_of())
    assert work.ranks == 2 and work.sampled_edges == pytest.approx(500 * 1.2)
    assert work.loaded_bytes == {"host": pytest.approx(200 * 1.1 * 400), "peer": 50 * 400, "disk": 0}
    # Both layers narrow: 16 and 4 columns are read, twice, by the rank that has 1.5 times the mean of layer 1.
    assert work.gathered_bytes == pytest.approx(2 * 16 * 4 * 300 * 1.5 + 2 * 4 * 4 * 200)
    # Neighbours are projected where they come from (250 rows read, then 100), a vertex's own row where it is.
    assert work.flops == pytest.approx(2 * 2 * 100 * 16 * (250 + 100) + 3 * 2 * 16 * 4 * (100 + 25))
    assert work.sent_bytes == {"features": 2000, "gradients": 450} and work.rounds == {"features": 6, "gradients": 3}
    assert work.crossing_bytes == pytest.approx(100_000 - 88_000) and work.device_bytes == 5_000


@pytest.mark.parametrize(("model", "gathered", "flops"), [
    # GCN has no matrix of its own for the vertex; GAT reads projected rows three times; an MLP gathers what is there.
    ("gcn", 2 * 16 * 4 * 450 + 2 * 4 * 4 * 200, 2 * 2 * 100 * 16 * 250 + 3 * 2 * 16 * 4 * 100),
    ("gat", 3 * 16 * 4 * 450 + 3 * 4 * 4 * 200, 2 * 2 * 100 * 16 * 250 + 3 * 2 * 16 * 4 * 100),
    ("mlp", 2 * 16 * 4 * 450 + 2 * 4 * 4 * 200, 2 * 2 * 100 * 16 * 100 + 3 * 2 * 16 * 4 * 25),
])
def test_models(model: str, gathered: float, flops: float) -> None:
    work = work_of(run_of(model))
    assert work.gathered_bytes == pytest.approx(gathered) and work.flops == pytest.approx(flops)


def test_a_first_layer_that_sums_raw_rows_has_no_gradient_to_gather() -> None:
    run = run_of(model={"hidden": 128, "layers": 2})
    assert work_of(run).gathered_bytes == pytest.approx(1 * 100 * 4 * 450 + 2 * 4 * 4 * 200)


def test_widths_of_links_and_of_trained_rows() -> None:
    assert widths(run_of()) == [100, 16, 4]
    assert widths(run_of(purpose="link_prediction")) == [100, 16, 16]
    assert widths(run_of(feature_store={"dim": 32}, model={"hidden": 16, "layers": 3})) == [32, 16, 16, 4]


def test_columns_are_read_by_every_rank() -> None:
    run = run_of()
    choices = {**run.provenance["choices"], "feature_store": "sliced"}
    run = replace(run, provenance={**run.provenance, "choices": choices})
    assert work_of(run).loaded_bytes["host"] == pytest.approx(200 * 1.1 * 100 * 4 / 2)


def test_a_larger_graph_has_larger_batches_and_as_many_steps() -> None:
    work = Work(2, 10, {"host": 20}, 30, 40, {"features": 50, "gradients": 60}, {"features": 3}, 70, 80)
    assert work.scaled(10) == Work(2, 100, {"host": 200}, 300, 400, {"features": 500, "gradients": 60},
                                   {"features": 3}, 700, 800)
