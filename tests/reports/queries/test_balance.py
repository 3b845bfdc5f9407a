"""Balance: loads of every rank from recorded epochs, every cell by hand, nothing left out unsaid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from asking import both_of, data
from run_folder import write_job, write_result

from gnnexp.cli.main import run_command
from gnnexp.record.runs import RecordedRun, read_run
from gnnexp.reports.tables.table import ReportTable

make_table, draw = both_of("balance")
Record = dict[str, Any]
FIGURES = (
    "computation s max",
    "computation s min",
    "communication s max",
    "communication s min",
    "wait s max",
    "epoch s",
    "edges",
    "edges by rank",
    "edges max/mean",
    "bytes",
    "bytes by rank",
    "bytes max/mean",
    "gradient bytes",
    "redundant edges",
    "redundant %",
    "VD edges",
    "VD time %",
    "collectives",
)


def rank(
    edges: int = 100,
    redundant: int = 0,
    cross: int | None = None,
    epoch_s: float = 8.0,
    forward: float = 3.0,
    hidden: float = 0.0,
    load: float = 0.0,
    **traffic: tuple[int, int, float],
) -> Record:
    """One rank's record of an epoch; backward takes 2 s, the update 0.5 s, waiting `redundant` / 100 s."""
    phases = {
        "sample": 0.0,
        "load": load,
        "forward": forward,
        "backward": 2.0,
        "sync": 9.0,
        "update": 0.5,
        "wait": redundant / 100,
    }
    work = {"edges_computed": edges, "edges_redundant": redundant} | ({} if cross is None else {"edges_cross": cross})
    return {
        "times": {"epoch_s": epoch_s, "phases": phases, "hidden": {"comm": hidden, "wait": 7.0} if hidden else {}},
        "traffic": {
            tag: {"sent_bytes": sent, "rounds": rounds, "seconds": seconds}
            for tag, (sent, rounds, seconds) in traffic.items()
        },
        "work": work,
    }


# What an epoch is that reads features: nothing of it may be in any cell.
COLD = [rank(10**6, 10**5, 10**5, 99.0, load=0.001, activations=(10**6, 50, 1.0))] * 2


def make_run(
    folder: Path,
    epochs: list[list[Record]],
    system: str = "neutronstar",
    layers: int = 2,
    status: str = "finished",
    partition: str | None = "/p",
    resumed: int | None = None,
    **groups: Any,
) -> RecordedRun:
    """A run that has ended, with the records of its epochs' ranks; the epoch `resumed` was stopped half way."""
    write_job(
        folder,
        uid=str(folder),
        partition=partition,
        choices={"dataset": "rmat", "model": "gcn", "paradigm": "vertex_parallel", "partitioner": "range"},
    )
    job = json.loads((folder / "job.json").read_text())
    job["config"] |= {
        "dataset": {"name": "computers"},
        "hardware": {"nodes": 1, "workers": len(epochs[-1])},
        "system": system,
        "model": {"_target_": "M", "layers": layers},
        "partitioner": {"_target_": "Q"},
        "name": folder.name,
        **groups,
    }
    (folder / "job.json").write_text(json.dumps(job))
    lines = []
    for number, ranks in enumerate(epochs):
        counted = {f"work/{name}": count for one in ranks for name, count in one["work"].items()}
        more = {"resumed": [{"step": 0}]} if number == resumed else {}
        lines.append({"epoch": number, "metrics": {"acc/test": 0.5, **counted}, "ranks": ranks, **more})
    (folder / "epochs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_result(folder, status, "" if status == "finished" else "rank 0 failed")
    return read_run(folder)


def cells(table: ReportTable, row: int = 0) -> dict[str, str]:
    return dict(zip(table.header, table.texts[row], strict=True))


def test_cells_by_hand(tmp_path: Path) -> None:
    epochs = [
        COLD,
        # Computation 5.5 - (0.5 + 0.25) and 5.5 - (0.25 + 0.25); two exchanges of activations, one of features.
        [
            rank(
                300,
                100,
                40,
                features=(1000, 1, 0.5),
                activations=(400, 2, 0.25),
                gradients=(50, 1, 0.25),
                sizes=(16, 1, 0.0),
            ),
            rank(
                180,
                20,
                10,
                features=(600, 1, 0.25),
                activations=(200, 2, 0.25),
                gradients=(50, 1, 0.5),
                sizes=(16, 1, 0.0),
            ),
        ],
        # Stale: nothing of `features` is sent; computation 5.5 - 0.25, and 6.5 - 0.25.
        [
            rank(300, 100, 40, activations=(400, 2, 0.25), gradients=(50, 1, 0.25)),
            rank(180, 20, 10, 12.0, 4.0, activations=(200, 2, 0.25), gradients=(50, 1, 0.5)),
        ],
    ]
    table = make_table([make_run(tmp_path / "a", epochs)])
    assert table.header == ("system", "dataset", "ranks", *FIGURES)
    assert cells(table) == {
        "system": "neutronstar",
        "dataset": "computers",
        "ranks": "2",
        "computation s max": "5.6250",
        "computation s min": "5.0000",  # (5 + 6.25) / 2, (4.75 + 5.25) / 2
        "communication s max": "0.8750",
        "communication s min": "0.7500",  # (1 + 0.75) / 2, (1 + 0.5) / 2
        "wait s max": "1.0000",
        "epoch s": "10.0000",
        "edges": "480",
        "edges by rank": "300 180",
        "edges max/mean": "1.250",
        "bytes": "1416",
        "bytes by rank": "908 508",
        "bytes max/mean": "1.282",  # (1416 + 400) / 2, (816 + 200) / 2
        "gradient bytes": "100",
        "redundant edges": "120",
        "redundant %": "33.33",  # of 480 - 120
        "VD edges": "170",  # 120 + 40 + 10
        # Rank 0: (0.75 + 0.25) / 2 + 5 x 100 / 300; rank 1: (0.5 + 0.25) / 2 + 5.625 x 20 / 180; of 8 and 10.
        "VD time %": "17.6",
        "collectives": "2.50",  # 3 and 2; sizes and gradients are none
    }
    assert "Left out" not in table.caption


def test_what_ran_behind_the_loop_was_no_part_of_its_phases(tmp_path: Path) -> None:
    record = rank(activations=(0, 4, 3.0), parameters=(0, 1, 0.5), gradients=(0, 1, 9.0), hidden=2.5)
    row = cells(make_table([make_run(tmp_path / "a", [COLD, [record, rank()]])]))
    assert row["computation s min"] == "4.5000", "5.5 - (3.5 - 2.5)"
    assert row["computation s max"] == "5.5000"


def test_tensor_parallelism_depends_on_no_vertex(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", [COLD, [rank(50, activations=(300, 4, 0.5)), rank(49, activations=(300, 4, 0.5))]])
    row = cells(make_table([run]))
    assert [row[name] for name in ("redundant edges", "redundant %", "VD edges", "VD time %", "edges by rank")] == [
        "0",
        "0.00",
        "–",
        "–",
        "50 49",
    ]
    alone = make_run(tmp_path / "b", [COLD[:1], [rank(0, cross=0)]])
    row = cells(make_table([alone]))
    assert [row[name] for name in ("edges max/mean", "bytes max/mean", "redundant %", "VD edges", "VD time %")] == [
        "–",
        "–",
        "–",
        "0",
        "0.0",
    ]


def test_only_epochs_that_read_nothing_in_one_piece_on_the_last_ranks_count(tmp_path: Path) -> None:
    odd = [rank(7)] * 2
    epochs = [COLD, [rank(5)] * 3, odd, [rank(1, load=0.5), rank(1)], [rank(9, 2), rank(12)], [rank(10, 3), rank(12)]]
    row = cells(make_table([make_run(tmp_path / "a", epochs, resumed=2)]))
    assert (row["edges by rank"], row["edges"]) == ("9.50 12", "21.50"), "epochs 4 and 5"
    assert row["redundant edges"] == "2.50"
    assert make_table([make_run(tmp_path / "b", [COLD])]).rows == ()


def test_what_is_left_out_is_named(tmp_path: Path) -> None:
    warm = [rank(10)] * 2
    mini = [{**record, "work": {"edges_computed": 10}} for record in warm]
    runs = [
        make_run(tmp_path / "a", [COLD, warm], status="failed"),
        make_run(tmp_path / "b", [COLD], "sancus"),
        *(make_run(tmp_path / f"mini{number}", [mini, mini], "gsplit") for number in range(2)),
        make_run(tmp_path / "c", [COLD, warm]),
        make_run(tmp_path / "d", [COLD, [rank(20)] * 2]),
    ]
    table = make_table(runs)
    assert [row[:3] for row in table.rows] == [("neutronstar", "computers", "2")]
    assert cells(table)["edges"] == "40", "of a setting the last run"
    for words in ("1 runs failed", "2 runs without counts of full-graph", "1 runs without an epoch", "1 runs repeated"):
        assert f"Left out: {words}" in table.caption
    nothing = make_table(runs[:4])
    assert nothing.rows == () and nothing.header[:3] == ("system", "dataset", "ranks")
    assert draw(runs[:4], tmp_path / "none") == []


def test_settings_that_differ_are_rows_and_only_what_differs_heads_a_column(tmp_path: Path) -> None:
    warm = [COLD, [rank(10)] * 2]
    runs = [
        make_run(tmp_path / "a", warm, "neutrontp", partition=None, paradigm={"chunks": 1}),
        make_run(tmp_path / "b", warm, "neutrontp", partition=None, paradigm={"chunks": 4}),
        make_run(tmp_path / "c", warm, "sancus", paradigm={"staleness": 1}, tracker={"uri": "elsewhere"}),
        make_run(tmp_path / "d", warm, "sancus", paradigm={"staleness": 1}),
    ]
    table = make_table(runs)
    assert table.header[: -len(FIGURES)] == ("system", "dataset", "ranks", "partitioner", "paradigm.chunks")
    assert [row[:5] for row in table.rows] == [
        ("neutrontp", "computers", "2", "–", "1"),
        ("neutrontp", "computers", "2", "–", "4"),
        ("sancus", "computers", "2", "range", "null"),
    ]
    assert list(dict.fromkeys(row["name"] for row in data("balance", "balance", runs))) == [
        "neutrontp\nchunks=1",
        "neutrontp\nchunks=4",
        "sancus\nrange",
    ]


def test_the_figures_have_a_bar_per_rank_and_a_line_per_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    kept: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, file, **_: (kept.append(self), file.write(b"drawn")))
    deep = [
        make_run(
            tmp_path / f"{system}{layers}",
            [COLD, [rank(10 * layers, 3, activations=(7, rounds, 0.1)), rank(20, activations=(9, rounds, 0.1))]],
            system,
            layers,
        )
        for layers in (3, 2)
        for system, rounds in (("naive", 4 * layers - 3), ("decoupled", 4))
    ]
    files = draw(deep[:2], tmp_path / "one", "mine")
    assert [file.name for file in files] == ["balance.png", "balance.svg"], "of one depth there is no line"
    loads = kept[0]
    edges, sent = loads.axes
    assert [bar.get_height() for bar in edges.patches] == [30, 30, 20, 20, 3, 3], "rank by rank, then redundant edges"
    assert [bar.get_height() for bar in sent.patches] == [7, 7, 9, 9]
    assert [label.get_text() for label in sent.get_xticklabels()] == ["naive", "decoupled"]
    files = draw(deep, tmp_path / "all", "mine")
    assert [file.name for file in files] == ["balance.png", "balance.svg", "collectives.png", "collectives.svg"]
    assert all(file.exists() for file in files)
    (axes,) = kept[-1].axes
    assert [(line.get_label(), line.get_xydata().tolist()) for line in axes.lines] == [
        ("naive", [[2, 5], [3, 9]]),
        ("decoupled", [[2, 4], [3, 4]]),
    ]


def test_ranks_may_be_of_other_numbers_in_one_figure(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / str(count), [[rank(load=1.0)] * count, [rank(5)] * count]) for count in (1, 3)]
    assert [cells(make_table(runs), row)["edges by rank"] for row in (0, 1)] == ["5", "5 5 5"]
    for file in draw(runs, tmp_path / "out"):
        assert file.stat().st_size > 1000


def test_the_command_takes_the_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for layers in (2, 3):
        make_run(tmp_path / "runs" / "x" / str(layers), [COLD, [rank(10)] * 2], layers=layers)
    assert run_command(["report", "balance", "runs/x", "--csv", "--markdown"]) == 0
    assert {file.name for file in (tmp_path / "reports" / "x").iterdir()} == {
        "balance.csv",
        "balance.html",
        "balance.md",
        "balance.png",
        "balance.svg",
        "collectives.png",
        "collectives.svg",
    }
    lines = (tmp_path / "reports" / "x" / "balance.csv").read_text().splitlines()
    assert lines[0] == ",".join(("system", "dataset", "ranks", "layers", *FIGURES)) and len(lines) == 3
    shown = capsys.readouterr().out
    assert "VD time %" in shown and "edges max/mean" in shown, "too many columns for a terminal: a line each"
