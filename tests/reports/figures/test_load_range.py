"""Load by rank: least, mean and most of counters, seconds, bytes and memory, from the ranks' own records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from figure_runs import figure_run

from gnnexp.record.runs import RecordedRun
from gnnexp.reports.figures.draw import draw_figure
from gnnexp.reports.figures.load_range import load_of, rank_value
from gnnexp.reports.figures.panels import Figure
from gnnexp.reports.tables.groups import group_runs


def rank_record(edges: int, seconds: float) -> dict[str, object]:
    phases = {"forward": seconds, "backward": 2 * seconds, "update": 0.5, "wait": 0.25}
    return {
        "times": {"epoch_s": 9.0, "phases": phases, "hidden": {}},
        "memory": {"device_peak_bytes": 10 * edges},
        "work": {"edges_computed": edges, "tier/h2d_bytes": 7},
        "traffic": {"features": {"sent_bytes": 3 * edges}},
    }


def recorded_run(
    folder: Path, system: str, *epochs: list[dict[str, object]], resumed: int | None = None
) -> RecordedRun:
    folder.mkdir()
    lines = [{"epoch": number, "time": 0.0, "metrics": {}, "ranks": ranks} for number, ranks in enumerate(epochs)]
    if resumed is not None:
        lines[resumed]["resumed"] = [{"step": 1}]
    (folder / "epochs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return figure_run(system, 1.0, path=folder)


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("time/forward_s", 2.0),
        ("time/fb_s", 6.0),
        ("time/compute_s", 6.5),
        ("time/epoch_s", 9.0),
        ("work/edges_computed", 5.0),
        ("tier/h2d_bytes", 7.0),
        ("comm/bytes_features", 15.0),
        ("comm/bytes_gradients", 0.0),
        ("memory/device_peak_bytes", 50.0),
        ("work/none", None),
        ("time/none_s", None),
        ("acc/test", None),
    ],
)
def test_one_rank(metric: str, value: float | None) -> None:
    assert rank_value(rank_record(5, 2.0), metric) == value


def test_the_first_epoch_those_of_other_ranks_and_half_ones_are_left_out(tmp_path: Path) -> None:
    two = [rank_record(10, 1.0), rank_record(30, 1.0)]
    run = recorded_run(
        tmp_path / "a",
        "dgl",
        [rank_record(900, 1.0)] * 2,
        [rank_record(800, 1.0)],
        [*two],
        [rank_record(700, 1.0)] * 2,
        [rank_record(20, 1.0), rank_record(40, 1.0)],
        resumed=3,
    )
    (group,) = group_runs([run], ("system",))
    assert load_of(group, "work/edges_computed") == (15.0, 25.0, 35.0), "medians of 10, 20; 20, 30; 30, 40"
    assert load_of(group, "work/none") is None


def test_the_figure(tmp_path: Path) -> None:
    uneven = recorded_run(tmp_path / "a", "dgl", *[[rank_record(10, 1.0), rank_record(30, 1.0)]] * 2)
    even = recorded_run(tmp_path / "b", "neutrontp", *[[rank_record(20, 1.0)] * 2] * 2)
    drawn = draw_figure(
        Figure("loads", "range", ("work/edges_computed",), series=("system",)),
        [uneven, even, figure_run("gone", 1.0, path=tmp_path / "nowhere")],
        (),
    )
    (axes,) = drawn.canvas.axes
    assert [text.get_text() for text in axes.texts] == ["1.50", "1.00"]
    bars = [bar for container in axes.containers for bar in container]
    assert [(bar.get_y(), bar.get_height()) for bar in bars] == [(10, 20), (20, 0)]
    assert drawn.table.texts[0] == ("", "dgl", "work/edges_computed", "10", "20", "30", "1.5000")
    assert "Not recorded by rank, not drawn: gone." in drawn.table.caption
