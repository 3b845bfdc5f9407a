"""Partitioning: every cell by hand from the recorded quality; collapsed partitions are marked and never compared."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from asking import both_of
from run_folder import write_job, write_result

from gnnexp.record.runs import RecordedRun, read_run
from gnnexp.reports.figures.chart import Chart, ChartPanel, draw_chart

make_table, draw = both_of("partitioning")
HEADER = (
    "dataset",
    "parts",
    "partitioner",
    "copies, full",
    "copies, artifact",
    "copies, cut",
    "SPRING / it, full",
    "SPRING / it, artifact",
    "edge cut %",
    "balance vertices",
    "balance edges",
    "balance train",
    "seconds",
    "SPRING faster",
    "added MB",
    "data MB",
    "clusters (size)",
    "merged (size)",
)


def quality(
    copies: tuple[float, float, float],
    seconds: float,
    balance: tuple[float, float] = (1.0, 1.0),
    parts: int = 2,
    **more: float,
) -> dict[str, float]:
    """Copies: full, artifact, cut; balance of vertices and of edges; 250,000 edges in each part."""
    named = dict(zip(("replication_full", "replication_artifact", "replication_cut"), copies, strict=True))
    return {
        "parts": float(parts),
        "edge_cut": 0.125,
        **named,
        "balance_vertices": balance[0],
        "balance_edges": balance[1],
        "seconds": seconds,
        "peak_rss_bytes": 300e6,
        **{f"part{part}/edges": 250e3 for part in range(parts)},
        **more,
    }


CLUSTERS = {
    "clusters_clustered/count": 900.0,
    "clusters_clustered/mean_size": 7.25,
    "clusters_clustered/std_size": 50.0,
    "clusters_merged/count": 30.0,
    "clusters_merged/mean_size": 217.5,
    "clusters_merged/std_size": 99.96,
}
SPRING = quality((1.5, 1.5, 1.5), 0.5, (1.05, 2.5), rss_before_bytes=296e6, balance_train=1.1, **CLUSTERS)
HDRF = quality((2.0, 2.5, 1.2), 1.25, (1.5, 1.0), rss_before_bytes=290e6)


def make_run(
    folder: Path,
    partitioner: str,
    measured: dict[str, float],
    graph: str = "computers",
    shape: str | None = None,
    status: str = "finished",
    **options: Any,
) -> RecordedRun:
    """A run that has ended, on a partition of this quality."""
    parts = int(measured.get("parts", 0))
    name = f"{partitioner}-{parts}-{graph}-{options}"
    write_job(
        folder,
        uid=str(folder),
        dataset_key=f"key of {graph}",
        partition=f"/cache/{name}" if parts else None,
        choices={"dataset": "rmat", "model": "gcn", "paradigm": "model_averaging", "partitioner": partitioner},
    )
    job = json.loads((folder / "job.json").read_text())
    job["config"] |= {
        "dataset": {"name": graph, "shape": shape},
        "hardware": {"nodes": 1, "workers": 1},
        "partitioner": {"_target_": "P", "num_parts": parts, **options},
    }
    (folder / "job.json").write_text(json.dumps(job))
    write_result(folder, status, quality=measured)
    return read_run(folder)


def test_cells_are_those_of_the_record(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a", "spring", SPRING), make_run(tmp_path / "b", "hdrf", HDRF)]
    table = make_table(runs)
    assert table.header == HEADER
    assert table.rows == (
        (
            "computers",
            "2",
            "spring",
            "1.500",
            "1.500",
            "–",
            "1.000",
            "1.000",
            "12.50",
            "1.050",
            "2.500",
            "1.100",
            "0.5000",
            "1.00x",
            "4.00",
            "4.00",
            "900 (7.2 ± 50.0)",
            "30 (217.5 ± 100.0)",
        ),
        # 1.5 / 2, 1.5 / 2.5, 1.25 / 0.5 seconds, 300 - 290 MB, 8 bytes for each of 500,000 edges.
        (
            "computers",
            "2",
            "hdrf",
            "2.000",
            "2.500",
            "1.200",
            "0.750",
            "0.600",
            "12.50",
            "1.500",
            "1.000",
            "–",
            "1.2500",
            "2.50x",
            "10.00",
            "4.00",
            "–",
            "–",
        ),
    )
    assert "geometric mean, full and artifact: hdrf 0.750, 0.600 (1 partitions)." in table.caption
    assert "Left out" not in table.caption


def test_means_are_geometric_over_graphs_and_parts(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / "a", "spring", SPRING),
        make_run(tmp_path / "b", "hdrf", HDRF),
        make_run(tmp_path / "c", "spring", quality((3.0, 3.0, 3.0), 0.5), graph="other"),
        make_run(tmp_path / "d", "hdrf", quality((2.0, 3.0, 1.5), 1.0), graph="other"),
    ]
    full, artifact = math.sqrt(0.75 * 1.5), math.sqrt(0.6 * 1.0)
    assert f"hdrf {full:.3f}, {artifact:.3f} (2 partitions)" in make_table(runs).caption


def test_a_collapsed_partition_is_marked_and_not_compared(tmp_path: Path) -> None:
    homes, edges = quality((1.1, 1.2, 1.3), 0.25, (2.01, 1.0)), quality((1.1, 1.2, 1.3), 0.25, (1.0, 2.01))
    runs = [
        make_run(tmp_path / "a", "spring", SPRING),
        make_run(tmp_path / "b", "dbh", homes),
        make_run(tmp_path / "c", "greedy", edges),
        make_run(tmp_path / "d", "hdrf", HDRF),
    ]
    table = make_table(runs)
    marks = [(row[2], row[6], row[7], row[13]) for row in table.rows]
    assert marks == [
        # In-edges of an edge-cut may pile up: SPRING has 2.5 times the mean in a part.
        ("spring", "1.000", "1.000", "1.00x"),
        ("dbh (collapsed)", "–", "–", "–"),
        ("greedy (collapsed)", "–", "–", "–"),
        ("hdrf", "0.750", "0.600", "2.50x"),
    ]
    assert "dbh" not in table.caption
    fallen = make_run(tmp_path / "e", "spring", quality((1.5, 1.5, 1.5), 0.5, (2.5, 1.0)))
    rows = make_table([fallen, runs[3]]).rows
    assert [(row[2], row[6], row[13]) for row in rows] == [("spring (collapsed)", "–", "–"), ("hdrf", "–", "–")]


def test_only_the_same_graph_parts_and_order_are_compared(tmp_path: Path) -> None:
    four = quality((4.0, 4.0, 3.0), 2.0, parts=4)
    runs = [
        make_run(tmp_path / "a", "spring", SPRING, order="stored"),
        make_run(tmp_path / "b", "spring", quality((1.8, 1.8, 1.8), 1.0), order="shuffled"),
        make_run(tmp_path / "c", "hdrf", HDRF, order="shuffled", home="most"),
        make_run(tmp_path / "d", "hdrf", four, order="stored", home="most"),
        make_run(tmp_path / "e", "metis", quality((1.2, 1.2, 1.2), 5.0)),
        make_run(tmp_path / "f", "hdrf", HDRF, graph="other", order="stored", home="most"),
    ]
    # SPRING's 1.5 copies in the stored order and 1.8 in the other, over this partitioner's.
    assert [(*row[:3], row[6]) for row in make_table(runs).rows] == [
        ("computers", "2", "spring order=stored", "1.000"),
        ("computers", "2", "spring order=shuffled", "1.000"),
        ("computers", "2", "hdrf order=shuffled", "0.900"),
        ("computers", "2", "metis", "1.250"),
        ("computers", "4", "hdrf order=stored", "–"),
        ("other", "2", "hdrf order=stored", "–"),
    ]


def test_a_partition_is_shown_once_with_what_was_recorded_last(tmp_path: Path) -> None:
    again = SPRING | {"seconds": 0.75}
    old = {name: value for name, value in HDRF.items() if name != "rss_before_bytes"}
    runs = [
        make_run(tmp_path / "a", "spring", SPRING),
        make_run(tmp_path / "b", "hdrf", old, status="failed"),
        make_run(tmp_path / "c", "spring", again),
        make_run(tmp_path / "d", "random", {}),
    ]
    table = make_table(runs)
    # Older records do not know what was there before, nor do they tell seconds without loading.
    assert [(row[2], row[6], *row[12:15]) for row in table.rows] == [
        ("spring", "1.000", "0.7500", "1.00x", "4.00"),
        ("hdrf", "0.750", "1.2500", "–", "–"),
    ]
    assert "Left out: 1 runs without a recorded partition. Left out: 1 runs of a partition" in table.caption
    assert make_table([runs[3]]).rows == () and draw([runs[3]], tmp_path / "none") == []


@pytest.mark.parametrize(
    ("shape", "metis", "merged"),
    [("products_like", "21.19 (1.68)", "31 (77439 ± 107723)"), ("papers_like", "OOM (54.09)", "–"), (None, None, None)],
)
def test_the_papers_numbers_stand_beside_its_graphs(
    tmp_path: Path, shape: str | None, metis: str | None, merged: str | None
) -> None:
    """Tables I and II."""
    runs = [make_run(tmp_path / name, name, SPRING, shape=shape) for name in ("metis", "spring")]
    table = make_table(runs)
    if metis is None:
        assert table.header == HEADER
        return
    assert table.header[len(HEADER) :] == (
        "paper's METIS GB (data)",
        "paper's clusters (size)",
        "paper's merged (size)",
    )
    assert [(row[-3], row[-1]) for row in table.rows] == [(metis, "–"), ("–", merged)]


def test_figures_have_a_panel_per_graph_and_a_bar_per_partition(tmp_path: Path) -> None:
    fallen = quality((1.1, 1.2, 1.3), 0.25, (2.5, 1.0), rss_before_bytes=299e6)
    runs = [
        make_run(tmp_path / "a", "spring", SPRING),
        make_run(tmp_path / "b", "hdrf", HDRF),
        make_run(tmp_path / "c", "spring", SPRING, graph="other"),
        make_run(tmp_path / "d", "hdrf", fallen, graph="other"),
        make_run(tmp_path / "e", "spring", SPRING | {"parts": 1.0}),
    ]
    files = draw(runs, tmp_path / "f", "title")
    assert [file.name for file in files] == ["replication.png", "replication.svg", "cost.png", "cost.svg"]
    assert files[0].read_bytes()[:4] == b"\x89PNG"
    copies, cost = (file.read_text() for file in (files[1], files[3]))
    assert copies.count('id="axes_') == 2 and copies.count("<pattern") == 1, "one of them has collapsed"
    assert copies.count("fill: #0072b2") == 3 + 1, "with the legend"
    # Of 1 part of the first graph and 2 of the other: SPRING's time, and what it added, each; HDRF of the other added.
    assert cost.count("fill: #0072b2") == 4 + 1 and cost.count("fill: #d55e00") == 1 + 1


@pytest.mark.parametrize(("ratios", "label"), [((0.9, 1.1), "2"), ((1e-9, 1e12), "10^{0}")])
def test_ratios_have_labels_over_few_decades_and_over_many(ratios: tuple[float, float], label: str) -> None:
    rows = [{"graph": str(number), "method": "a", "ratio": ratio} for number, ratio in enumerate(ratios)]
    chart = Chart("cost", "bars", "graph", [ChartPanel(["ratio"], start=1.0, log=True)], series="method")
    drawn = [shown.get_text() for shown in draw_chart(chart, rows).axes[0].get_yticklabels()]
    assert any(label in text for text in drawn), drawn
