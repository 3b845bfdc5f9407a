"""The column of estimates: scaled to the published size, compared with the paper's numbers, and out of memory."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from gnnexp.planning.estimate import estimate_epoch
from gnnexp.planning.machine import Machine
from gnnexp.planning.work import work_of
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.comparison import make_columns
from gnnexp.reports.estimates_column import estimated_s, with_estimates
from gnnexp.reports.paper_table import PublishedTable, make_paper_table
from gnnexp.reports.paper_table import make_paper_table as make_published
from gnnexp.reports.tables.groups import RunGroup

MACHINE = Machine(
    "box",
    1,
    2,
    flops=1e9,
    gather=1e9,
    sampling=1e6,
    host=1e8,
    link=1e8,
    latency=1e-4,
    stream=1e9,
    step_s=0.0,
    concurrent=True,
    device_memory=4000,
    source="data sheet",
)
PUBLISHED = PublishedTable("gsplit", "Table 3", {"epoch_s": "time/epoch_s", "load_s": "time/load_s"})


def run_of(system: str, edges: float, device: float = 1000.0, scale: float = 0.5, workers: int = 2) -> RecordedRun:
    config = {
        "dataset": {"shape": "orkut_like", "scale": scale},
        "system": system,
        "hardware": {"workers": workers},
        "model": {"hidden": 4, "layers": 1},
        "task": {},
        "feature_store": {},
        "sampler": {},
        "train": {},
    }
    epoch = {
        "time/epoch_s": 1.0,
        "time/load_s": 0.5,
        "work/edges_sampled": edges,
        "work/edges_layer1": edges,
        "work/vertices_layer1": 10.0,
        "memory/device_peak_bytes": device,
        "comm/bytes_features": 100.0,
    }
    provenance = {"graph": {"num_features": 8, "num_classes": 3}, "choices": {"model": "sage", "dataset": "dcsbm"}}
    return RecordedRun(Path(system), config, provenance, [epoch] * 3, {}, "finished")


def group_of(*runs: RecordedRun) -> RunGroup:
    return RunGroup(
        (runs[0].value("system"),),
        tuple(run for run in runs if run.status == "finished"),
        tuple(run for run in runs if run.status != "finished"),
    )


def test_counts_are_scaled_to_the_published_size() -> None:
    run = run_of("dgl", 1e6)
    expected = estimate_epoch(work_of(run).scaled(2.0), MACHINE).epoch_s
    assert estimated_s(group_of(run), MACHINE) == pytest.approx(expected)
    assert expected > 1.9 * estimate_epoch(work_of(run), MACHINE).sample_s


def test_an_epoch_has_the_targets_that_the_paper_trains() -> None:
    run = run_of("dgl", 1e6)
    run.config["dataset"]["train"], run.config["train"]["batch_size"] = 0.02, 16
    expected = estimate_epoch(work_of(run).scaled(2.0).repeated(0.1 / 0.02), MACHINE).epoch_s
    assert estimated_s(group_of(run), MACHINE, "gsplit") == pytest.approx(expected), "a tenth of Orkut"
    table = with_estimates(
        make_columns([group_of(run)], ["system"], {"epoch s": "time/epoch_s"}), [group_of(run)], MACHINE, "gsplit"
    )
    assert table.texts[0][-1] == f"{expected:.4g}" and "all its targets in gsplit." in table.caption
    assert estimated_s(group_of(run), MACHINE) > 1.5 * expected, "the shape has more"


def test_the_column_stands_after_the_papers_and_the_caption_says_how_good_it_is() -> None:
    # Table 3 has for Orkut and GraphSage: dgl 73.4, p3 14.1, gsplit 16.7.
    failed = replace(run_of("quiver", 1.0), status="failed", kind="out of memory")
    groups = [
        group_of(run_of("dgl", 9e6)),
        group_of(run_of("p3", 3e6)),
        group_of(run_of("gsplit", 2e6)),
        group_of(failed),
    ]
    table = with_estimates(make_paper_table(groups, ["system"], PUBLISHED), groups, MACHINE, PUBLISHED.paper, PUBLISHED)
    assert table.header == (
        "system",
        "epoch_s",
        "epoch_s, paper",
        "epoch_s, estimated",
        "load_s",
        "load_s, paper",
        "runs",
    )
    dgl, p3, gsplit = (estimated_s(group, MACHINE) for group in groups[:3])
    assert [row[3] for row in table.texts] == [f"{dgl:.4g}", f"{p3:.4g}", f"{gsplit:.4g}", "–"]
    order = "By this estimate, 2 of 3 pairs of systems are in the paper's order."
    assert order in table.caption, "p3 before gsplit in the paper"
    factor = sorted([73.4 / dgl, 14.1 / p3, 16.7 / gsplit])[1]
    assert f"differ by a factor of {factor:.2f} (median of 3 rows)" in table.caption
    assert "not measured" in table.caption and "No estimate: 1 rows" in table.caption


def test_what_does_not_fit_is_out_of_memory_and_comes_last() -> None:
    groups = [group_of(run_of("dgl", 9e6)), group_of(run_of("p3", 1e6, device=2200.0))]
    table = with_estimates(make_published(groups, ["system"], PUBLISHED), groups, MACHINE, PUBLISHED.paper, PUBLISHED)
    assert table.texts[1][3] == "OOM", "2200 bytes of half the graph, but for the parameters, 4000 on the device"
    assert "By this estimate, 0 of 1 pairs" in table.caption and "(median of 1 rows)" in table.caption


def test_other_numbers_of_ranks_are_not_estimated() -> None:
    groups = [group_of(run_of("dgl", 1e6, workers=4))]
    table = with_estimates(make_columns(groups, ["system"], {"epoch s": "time/epoch_s"}), groups, MACHINE)
    assert table.header == ("system", "epoch s", "runs", "epoch_s, estimated") and table.texts[0][-1] == "–"
    assert "No estimate: 1 rows." in table.caption and "computed, on the 2 ranks of box, on" in table.caption


def test_several_whole_nodes_of_a_cluster_are_a_smaller_one() -> None:
    cluster = replace(MACHINE, nodes=4, workers=2)
    assert [ranks for ranks in range(1, 12) if cluster.is_filled_by(ranks)] == [4, 6, 8], "one node has other links"
    run = run_of("dgl", 1e6, workers=4)
    assert estimated_s(group_of(run), cluster) == estimate_epoch(work_of(run).scaled(2.0), cluster).epoch_s


def test_fewer_devices_of_one_node_leave_the_others_idle() -> None:
    node = replace(MACHINE, workers=4)
    assert [ranks for ranks in range(1, 7) if node.can_run(ranks)] == [1, 2, 3, 4]
    cores = replace(node, concurrent=False)
    assert [ranks for ranks in range(1, 7) if cores.can_run(ranks)] == [4], "fewer ranks have more cores each"
    assert not replace(node, nodes=2).can_run(3), "a node's network is shared by its ranks"
    assert estimated_s(group_of(run_of("dgl", 1e6)), node) == estimated_s(group_of(run_of("dgl", 1e6)), MACHINE)


def test_memory_of_published_code_that_keeps_edges_rows() -> None:
    run = run_of("dgl", 100.0, device=1000.0, scale=1.0)
    run = replace(run, provenance={**run.provenance, "choices": {"model": "gat", "dataset": "dcsbm"}})
    kept = ("dgl",)  # 50 edges a rank, 2 rows of 3 columns: 1200 bytes more than 1000
    assert math.isfinite(estimated_s(group_of(run), replace(MACHINE, device_memory=2300), "gsplit", kept))
    assert math.isinf(estimated_s(group_of(run), replace(MACHINE, device_memory=2100), "gsplit", kept))
    assert math.isfinite(estimated_s(group_of(run), replace(MACHINE, device_memory=2100), "gsplit"))
