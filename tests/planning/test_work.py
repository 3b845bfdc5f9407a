"""Work of a recorded epoch, by hand: GraphSAGE 100 -> 16 -> 4 on 2 ranks, then what grows with the graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gnnexp.planning.work import Workload, widths, work_of
from gnnexp.record.runs import RecordedRun

METRICS = {
    "work/edges_sampled": 1000,
    "imbalance/edges_sampled": 1.2,
    "work/features_loaded_host": 400,
    "imbalance/features_loaded_host": 1.1,
    "work/features_loaded_peer": 100,
    "work/edges_layer1": 600,
    "work/edges_layer2": 400,
    "imbalance/edges_layer1": 1.5,
    "work/vertices_layer1": 200,
    "work/vertices_layer2": 50,
    "comm/bytes_features": 4000,
    "comm/rounds_features": 6,
    "comm/bytes_gradients": 900,
    "comm/rounds_gradients": 3,
    "comm/bytes_evaluation": 7,
    "comm/rounds_evaluation": 1,
    "tier/h2d_bytes": 200_000,
    "memory/device_peak_bytes": 5_000,
}


def run_of(chosen: str = "sage", purpose: str = "node_classification", **more: Any) -> RecordedRun:
    config: dict[str, Any] = {
        "dataset": {},
        "hardware": {"nodes": 1, "workers": 2},
        "model": {"hidden": 16, "layers": 2},
        "feature_store": {},
        "task": {},
        **more,
    }
    graph = {"num_nodes": 50, "num_edges": 700, "num_features": 100, "num_classes": 4}
    provenance = {"choices": {"model": chosen, "task": purpose}, "graph": graph}
    return RecordedRun(Path(), config, provenance, [{}, METRICS, METRICS], {}, "finished")


def test_an_epoch_by_hand() -> None:
    work = work_of(run_of())
    assert work.ranks == 2 and work.sampled_edges == pytest.approx(500 * 1.2)
    assert work.loaded_bytes == {"host": pytest.approx(200 * 1.1 * 400), "disk": 0}, "peers' rows are sent"
    # Both layers narrow: 16 and 4 columns are read, twice, by the rank that has 1.5 times the mean of layer 1.
    assert work.gathered_bytes == pytest.approx(2 * 16 * 4 * 300 * 1.5 + 2 * 4 * 4 * 200)
    # Neighbours are projected where they come from (250 rows read, then 100), a vertex's own row where it is.
    assert work.flops == pytest.approx(2 * 2 * 100 * 16 * (250 + 100) + 3 * 2 * 16 * 4 * (100 + 25))
    assert work.sent_bytes == {"features": 2000, "gradients": 450} and work.rounds == {"features": 6, "gradients": 3}
    assert work.crossing_bytes == pytest.approx(100_000 - 88_000) and work.device_bytes == 5_000


def test_rows_in_bfloat16_have_half_the_bytes() -> None:
    work = work_of(run_of(feature_store={"dtype": "bfloat16"}))
    assert work.loaded_bytes["host"] == pytest.approx(200 * 1.1 * 200)
    assert work.crossing_bytes == pytest.approx(100_000 - 44_000)


@pytest.mark.parametrize(
    ("model", "gathered", "flops"),
    [
        # GCN has no matrix of its own for the vertex; GAT reads projected rows three times; an MLP gathers its rows.
        ("gcn", 2 * 16 * 4 * 450 + 2 * 4 * 4 * 200, 2 * 2 * 100 * 16 * 250 + 3 * 2 * 16 * 4 * 100),
        ("gat", 3 * 16 * 4 * 450 + 3 * 4 * 4 * 200, 2 * 2 * 100 * 16 * 250 + 3 * 2 * 16 * 4 * 100),
        ("mlp", 2 * 16 * 4 * 450 + 2 * 4 * 4 * 200, 2 * 2 * 100 * 16 * 100 + 3 * 2 * 16 * 4 * 25),
    ],
)
def test_models(model: str, gathered: float, flops: float) -> None:
    work = work_of(run_of(model))
    assert work.gathered_bytes == pytest.approx(gathered) and work.flops == pytest.approx(flops)


@pytest.mark.parametrize(("rows", "projected"), [("raw", 300 + 20 + 10), ("cheapest", 300 + 10)])
def test_fetched_rows_that_come_projected_are_projected_by_their_owner(rows: str, projected: int) -> None:
    """Of 2 ranks and 2 layers: 80 rows are fetched and 40 held, so 20 and 10 on a rank in each layer."""
    counts = {**METRICS, "work/halo_fetched": 80, "work/halo_cached": 40, "work/vertices_layer1": 600}
    run = replace(run_of("gcn", paradigm={"rows": rows}), epochs=[{}, counts, counts])
    last = 300  # rows of layer 1, which layer 2 reads
    assert work_of(run).flops == pytest.approx(2 * 2 * 100 * 16 * projected + 3 * 2 * 16 * 4 * last)


def test_rows_of_edges_that_a_gat_without_fused_kernels_keeps() -> None:
    assert work_of(run_of("gat")).edge_rows_bytes == pytest.approx(2 * 16 * 4 * 300 * 1.5 + 2 * 4 * 4 * 200)
    assert work_of(run_of("gat")).scaled(3).edge_rows_bytes == pytest.approx(3 * (2 * 16 * 4 * 450 + 2 * 4 * 4 * 200))
    assert work_of(run_of("gcn")).edge_rows_bytes == 0


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
    # Half of the columns of 250 rows on the neighbours' side: as many products as without slices, shared out.
    assert work_of(run).flops == pytest.approx(2 * 2 * 100 * 16 * (125 + 100) + 3 * 2 * 16 * 4 * (100 + 25))


def test_a_larger_graph_has_larger_batches_and_as_many_steps() -> None:
    work = Workload(2, 10, {"host": 20}, 30, 40, {"features": 50, "gradients": 60}, {"features": 3}, 70, 80)
    assert work.scaled(10) == Workload(
        2, 100, {"host": 200}, 300, 400, {"features": 500, "gradients": 60}, {"features": 3}, 700, 800
    )


def test_what_does_not_grow_with_the_graph() -> None:
    work = Workload(
        2,
        10,
        {},
        30,
        40,
        {},
        {},
        70,
        80,
        elementwise_bytes=50,
        update_bytes=20,
        fixed_bytes=30,
        steps=7,
        pipelined=4,
        pipelined_bytes=5,
    )
    larger = work.scaled(10)
    assert (larger.elementwise_bytes, larger.update_bytes) == (320, 20)
    assert (larger.device_bytes, larger.fixed_bytes) == (530, 30)
    assert (larger.steps, larger.pipelined, larger.pipelined_bytes) == (7, 4, 50)


def test_elementwise_work_by_hand() -> None:
    work = work_of(run_of())
    parameters = (2 * 100 * 16 + 16) + (2 * 16 * 4 + 4)
    assert work.steps == 1 and work.update_bytes == 7 * 4 * parameters
    assert work.elementwise_bytes == pytest.approx(8 * 4 * (16 * 100 + 4 * 25) + work.update_bytes)
    assert work.fixed_bytes == 5_000 < 4 * parameters, "no more than was held"


def test_steps_are_batches_of_training_examples() -> None:
    run = run_of(train={"batch_size": 8, "overlap": True})
    sized = replace(run, provenance={**run.provenance, "graph": {**run.provenance["graph"], "num_train": 30}})
    assert work_of(sized).steps == 4 and work_of(sized).ahead
    assert not work_of(replace(sized, config={**sized.config, "train": {"batch_size": None, "overlap": True}})).ahead


def test_the_rank_that_sends_most() -> None:
    run = run_of()
    uneven = {**METRICS, "imbalance/bytes_features": 1.25}
    assert work_of(replace(run, epochs=[{}, uneven, uneven])).sent_bytes["features"] == pytest.approx(2000 * 1.25)


def test_decoupled_sums_are_of_outputs_and_pass_behind_each_other() -> None:
    run = run_of(paradigm={"mode": "decoupled", "pipeline": True, "chunks": 4})
    work = work_of(run)
    assert work.gathered_bytes == pytest.approx(2 * 4 * 4 * (300 * 1.5 + 200))
    # The gather and its mirror image, of 4 columns of the 25 vertices of a rank, half of which stay; no split.
    assert (work.pipelined, work.pipelined_bytes, work.chunked) == (4, 2 * 25 * 4 * 4 / 2, True)
    blocks = work_of(run_of(paradigm={"mode": "decoupled", "pipeline": True, "chunks": 4, "dense_blocks": 3}))
    assert (blocks.pipelined, blocks.pipelined_bytes) == (3, 2 * work.pipelined_bytes), "the split and its mirror, too"


def test_halo_rows_are_projected_too() -> None:
    halo = {**METRICS, "work/halo_fetched": 40, "work/halo_cached": 360}
    run = run_of("gcn")
    flops = work_of(replace(run, epochs=[{}, halo, halo])).flops
    # 400 rows over 2 ranks and 2 layers: 100 more in each; layer 1 has read 250 rows anyway, which is as many.
    assert flops == pytest.approx(2 * 2 * 100 * 16 * 250 + 3 * 2 * 16 * 4 * (25 + 100))


def test_a_device_holds_a_cache_and_a_full_graph() -> None:
    held = {"memory/device_peak_bytes": 100, "memory/cache_bytes": 20, "memory/topology_bytes": 3}
    run = run_of()
    assert work_of(replace(run, epochs=[{}, {**METRICS, **held}])).device_bytes == 120  # sampled: edges on the host
    full = {name: value for name, value in METRICS.items() if "sampled" not in name}
    assert work_of(replace(run, epochs=[{}, {**full, **held}])).device_bytes == 123
    assert work_of(replace(run_of(paradigm={"chunks": 4}), epochs=[{}, {**full, **held}])).device_bytes == 120
