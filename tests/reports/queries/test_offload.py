"""Offload: tables and figures of runs with chunks, every cell by hand; what was not recorded is no number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from asking import both_of, data
from run_folder import write_job, write_result

from gnnexp.cli.main import run_command
from gnnexp.record.runs import RecordedRun, read_run
from gnnexp.reports.figures import drawing
from gnnexp.reports.tables.table import ReportTable

make_table, draw = both_of("offload")
Record = dict[str, Any]
# 40 vertices; of 100 rows 20 are shared by ranks, 50 more stay where the next batch reads them.
BEFORE = {"original": 100, "inter": 80, "both": 40, "intra": 60, "foreign": 24, "foreign_new": 12}
AFTER = {**BEFORE, "both": 30, "foreign_new": 10}
FACTS = {
    "exact": True,
    "chunks": 4,
    "keeps": ["sums", "outputs"],
    "order": "reorganised: Equation 4 falls (mine)",
    "chunk_bytes_bound": 5_000_000,
    "rows_initial": BEFORE,
    "rows_reorganised": AFTER,
    "cost_initial": 40.0,
    "cost_reorganised": 30.0,
    "order_s": 0.5,
    "setup_s": 2.0,
    "row_bytes": [400, 64, 28],
}
COUNTS = {"work/vertices_computed": 80, "tier/h2d_rows_forward": 60, "tier/d2d_rows_forward": 20}
BASE = {"dedup": {"inter": False, "intra": False}, "reorganise": False}
LABELS = ("system", "dataset", "ranks")
COLUMNS = (
    "topology MB",
    "vertex MB",
    "intermediate MB",
    "device peak MB",
    "promised MB",
    "chunks",
    "parts",
    "V",
    "V_ori",
    "V_+p2p",
    "V_+ru",
    "alpha",
    "shared / V",
    "shared %",
    "reused / V",
    "reused %",
    "both kinds save %",
    "foreign rows",
    "foreign rows, new",
    "host rows",
    "saved %",
    "peer rows",
    "cost before",
    "cost after",
    "order",
    "setup s",
    "order s",
    "setup % of 100 epochs",
    "H2D s",
    "D2H s",
    "D2D s",
    "hosts s",
    "host add s",
    "compute s",
    "wait s",
    "epoch s",
)
SECONDS = COLUMNS[-8:]


def rank(
    forward: float = 3.0,
    epoch_s: float = 9.0,
    load: float = 0.0,
    crossings: dict[str, float] | None = None,
    activations: float = 0.5,
    hidden: float = 0.0,
    memory: int = 1_000_000,
) -> Record:
    """One rank's record of an epoch: backward 2 s, update 0.5 s, wait 1 s, gradients' sum 0.25 s."""
    phases = {
        "sample": 0.0,
        "load": load,
        "forward": forward,
        "backward": 2.0,
        "sync": 0.25,
        "update": 0.5,
        "wait": 1.0,
    }
    times = {"epoch_s": epoch_s, "phases": phases, "hidden": {"comm": hidden} if hidden else {}}
    return {
        "times": times if crossings is None else {**times, "crossings": crossings},
        "traffic": {
            "activations": {"sent_bytes": 8, "rounds": 2, "seconds": activations},
            "gradients": {"sent_bytes": 8, "rounds": 1, "seconds": 0.25},
        },
        "work": {},
        "memory": {"topology_bytes": memory, "vertex_bytes": 2 * memory, "intermediate_bytes": 3 * memory},
    }


CROSSINGS = {"h2d": 0.75, "d2h": 0.25, "host_add": 0.125}
COLD = [rank(90.0, 99.0, 0.001, {"h2d": 50.0})] * 2
WARM = [COLD, [rank(crossings=CROSSINGS)] * 2]


def make_run(
    folder: Path,
    epochs: list[list[Record]],
    system: str = "hongtu",
    facts: dict[str, Any] | None = None,
    paradigm: str = "offload",
    counts: dict[str, int] | None = None,
    status: str = "finished",
    device: str = "cpu",
    **options: Any,
) -> RecordedRun:
    """A run that has ended, with the records of its epochs' ranks; `options` of the paradigm."""
    write_job(
        folder,
        uid=str(folder),
        chosen={"device": device},
        choices={"dataset": "rmat", "model": "gcn", "paradigm": paradigm, "partitioner": "metis"},
    )
    job = json.loads((folder / "job.json").read_text())
    job["config"] |= {
        "dataset": {"name": "computers"},
        "hardware": {"nodes": 1, "workers": len(epochs[-1])},
        "system": system,
        "model": {"_target_": "M", "layers": 2},
        "partitioner": {"_target_": "Q"},
        "name": folder.name,
        "paradigm": {"_target_": "P", "dedup": {"inter": True, "intra": True}, "prefetch": True, **options},
    }
    (folder / "job.json").write_text(json.dumps(job))
    metrics = {"acc/test": 0.5, "memory/device_peak_bytes": 3_500_000, **(COUNTS if counts is None else counts)}
    lines = [{"epoch": number, "metrics": metrics, "ranks": ranks} for number, ranks in enumerate(epochs)]
    (folder / "epochs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_result(
        folder,
        status,
        "" if status == "finished" else "rank 0 failed",
        **({"paradigm": FACTS if facts is None else facts}),
    )
    return read_run(folder)


def in_memory(folder: Path, **more: Any) -> RecordedRun:
    return make_run(
        folder,
        [COLD, [rank(crossings={})] * 2],
        "hongtu_im",
        {"exact": True},
        "vertex_parallel",
        {"work/edges_redundant": 0, "work/vertices_computed": 80},
        **more,
    )


def cells(table: ReportTable, row: int = 0) -> dict[str, str]:
    return dict(zip(table.header, table.texts[row], strict=True))


def test_cells_by_hand(tmp_path: Path) -> None:
    epochs = [
        COLD,
        [rank(3.0, 8.0, crossings=CROSSINGS, memory=2_000_000), rank(5.0, 9.0, crossings=CROSSINGS)],
        [rank(4.0, 9.5, crossings=CROSSINGS), rank(4.0, 10.5, crossings={"h2d": 1.25}, activations=1.5)],
        [rank(3.0, 30.0, crossings=CROSSINGS, memory=2_000_000), rank(3.0, 30.0, crossings=CROSSINGS)],
    ]
    table = make_table([make_run(tmp_path / "a", epochs)])
    assert table.header == (*LABELS, *COLUMNS)
    assert cells(table) == {
        "system": "hongtu",
        "dataset": "computers",
        "ranks": "2",
        "topology MB": "3.000",
        "vertex MB": "6.000",
        "intermediate MB": "9.000",  # both ranks
        "device peak MB": "3.500",
        "promised MB": "5.000",
        "chunks": "4",
        "parts": "8",
        "V": "40",
        "V_ori": "100",
        "V_+p2p": "80",
        "V_+ru": "30",
        "alpha": "2.500",
        "shared / V": "0.500",
        "shared %": "20.0",
        "reused / V": "1.250",
        "reused %": "50.0",
        "both kinds save %": "70.0",
        "foreign rows": "24",
        "foreign rows, new": "10",
        "host rows": "30",
        "saved %": "70.0",
        "peer rows": "10",  # of two layers
        "cost before": "40",
        "cost after": "30",
        "order": "reorganised: Equation 4 falls (mine)",
        "setup s": "2.0000",
        "order s": "0.5000",
        "setup % of 100 epochs": "0.20",  # of 1000 s
        # Means over ranks 0.75, 1.0, 0.75 and so on; medians of these.
        "H2D s": "0.7500",
        "D2H s": "0.2500",
        "D2D s": "0.5000",
        "hosts s": "0.0000",
        "host add s": "0.1250",
        # forward + backward - 0.5 - 1.125: 3.375 and 5.375; 4.375 and 6 - 1.5 - 1.25; 3.375 twice.
        "compute s": "3.8125",
        "wait s": "1.0000",
        "epoch s": "10.0000",
    }
    assert "Left out" not in table.caption and "RAM" in table.caption


def test_an_epoch_that_looks_for_features_and_reads_none_is_warm(tmp_path: Path) -> None:
    """The phase is entered in every epoch, for microseconds; rows are counted where there are any."""

    def loading(epoch_s: float, load: float, rows: int) -> list[Record]:
        return [{**rank(epoch_s=epoch_s, load=load, crossings=CROSSINGS), "work": {"features_loaded_host": rows}}] * 2

    epochs = [loading(99.0, 0.5, 7), loading(4.0, 1e-5, 0), loading(6.0, 1e-5, 0)]
    assert cells(make_table([make_run(tmp_path / "a", epochs)]))["epoch s"] == "5.0000"


def test_an_order_that_costs_no_less_was_not_taken(tmp_path: Path) -> None:
    dear = make_run(tmp_path / "a", WARM, facts={**FACTS, "cost_reorganised": 40.0})
    never = make_run(tmp_path / "b", WARM, facts={**FACTS, "rows_reorganised": None, "cost_reorganised": None})
    for run, after in ((dear, "40"), (never, "–")):
        row = cells(make_table([run]))
        assert (row["V_+ru"], row["foreign rows, new"], row["cost after"]) == ("40", "12", after)


def test_what_a_run_brought_follows_its_own_switches(tmp_path: Path) -> None:
    counts = {"work/vertices_computed": 80, "tier/h2d_rows_forward": 200}
    row = cells(make_table([make_run(tmp_path / "a", WARM, "hongtu_base", counts=counts, **BASE)]))
    assert (row["host rows"], row["saved %"], row["peer rows"], row["both kinds save %"]) == ("100", "0.0", "0", "70.0")
    assert (row["D2D s"], row["hosts s"], row["compute s"]) == ("0.0000", "0.5000", "3.3750")


def test_training_in_memory_has_seconds_without_crossings_and_no_plan(tmp_path: Path) -> None:
    table = make_table([make_run(tmp_path / "a", WARM), in_memory(tmp_path / "b")])
    row = cells(table, 1)
    assert row["system"] == "hongtu_im"
    assert [row[name] for name in COLUMNS[4:-8]] == ["–"] * 24
    assert [row[name] for name in SECONDS] == [
        "0.0000",
        "0.0000",
        "0.5000",
        "0.0000",
        "0.0000",
        "4.5000",
        "1.0000",
        "9.0000",
    ]
    assert row["vertex MB"] == "4.000"


def test_what_was_not_recorded_is_not_told(tmp_path: Path) -> None:
    plain = {"chunks": 4, "rows_initial": {name: BEFORE[name] for name in ("original", "inter", "both")}}
    old = make_run(tmp_path / "a", [COLD, [rank()] * 2], facts=plain, counts={"work/vertices_computed": 80})
    row = cells(make_table([old]))
    untold = {
        "promised MB",
        "V",
        "alpha",
        "shared / V",
        "reused / V",
        "foreign rows",
        "foreign rows, new",
        "host rows",
        "saved %",
        "peer rows",
        "cost before",
        "cost after",
        "order",
        "setup s",
        "order s",
        "setup % of 100 epochs",
        "H2D s",
        "D2H s",
        "host add s",
        "compute s",
    }
    assert {name for name, cell in row.items() if cell == "–"} == untold, "crossings were not timed once"
    assert (row["V_ori"], row["shared %"], row["parts"], row["D2D s"]) == ("100", "20.0", "8", "0.5000")
    assert draw([old], tmp_path / "none") == [] and not (tmp_path / "none").exists()
    row = cells(make_table([make_run(tmp_path / "b", WARM, facts={"exact": True}, counts={})]))
    assert [row[name] for name in COLUMNS[5:-8]] == ["–"] * 23 and row["H2D s"] == "0.7500"
    cold = make_run(tmp_path / "c", [COLD])
    row = cells(make_table([cold]))
    assert [row[name] for name in (*SECONDS, "setup % of 100 epochs")] == ["–"] * 9 and row["alpha"] == "2.500"
    nothing = make_run(
        tmp_path / "d",
        WARM,
        facts={**FACTS, "rows_initial": dict.fromkeys(BEFORE, 0), "rows_reorganised": None},
        counts={},
    )
    row = cells(make_table([nothing]))
    assert (row["V_ori"], row["shared %"], row["both kinds save %"]) == ("0", "–", "–")


def test_vertices_that_the_layers_do_not_share_evenly_are_no_v(tmp_path: Path) -> None:
    counts = {"work/vertices_computed": 81, "tier/h2d_rows_forward": 61}
    row = cells(make_table([make_run(tmp_path / "a", WARM, counts=counts)]))
    assert (row["V"], row["alpha"], row["shared / V"], row["host rows"]) == ("–", "–", "–", "30.5")


def test_the_formula_of_section_4_3(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / str(chunks), WARM, facts={**FACTS, "chunks": chunks}, chunks=chunks) for chunks in (4, 2)
    ]
    assert [row["subgraph_mb"] for row in data("offload", "chunks", runs)] == [
        pytest.approx((1 + 2.5) * 40 / (2 * chunks) * 400 / 1e6) for chunks in (4, 2)
    ]
    assert data("offload", "chunks", [in_memory(tmp_path / "b")]) == []


def test_on_a_gpu_that_prefetches_the_rest_is_no_computation(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / str(beside), WARM, device="cuda:0", prefetch=beside) for beside in (True, False)]
    runs.append(in_memory(tmp_path / "c", device="cuda:0"))
    assert [row["compute s"] for row in map(cells, [make_table(runs)] * 3, range(3))] == ["–", "3.3750", "4.5000"]
    assert {row["axis"] for row in data("offload", "offload", runs)} == {"seconds per epoch"}, "no tier is emulated"


def test_hidden_exchanges_are_in_no_bar(tmp_path: Path) -> None:
    ranks = [rank(crossings={}, activations=2.0, hidden=1.5)] * 2
    row = cells(make_table([make_run(tmp_path / "a", [COLD, ranks])]))
    assert (row["D2D s"], row["compute s"]) == ("0.5000", "4.5000")


def test_what_is_left_out_is_named(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / "a", WARM, status="failed"),
        make_run(tmp_path / "b", WARM),
        make_run(tmp_path / "c", WARM, facts={**FACTS, "setup_s": 3.0}),
        make_run(tmp_path / "d", WARM, "dgl", {"exact": True}, "data_parallel", {"work/edges_computed": 3}),
        make_run(tmp_path / "e", WARM, "older", {"exact": True}, counts={}),
    ]
    table = make_table(runs)
    assert [row[0] for row in table.rows] == ["hongtu", "older"]
    assert cells(table)["setup s"] == "3.0000", "of a setting the last run"
    for words in (
        "Left out: 1 runs failed.",
        "Left out: 1 runs of mini-batches.",
        "Left out: 1 runs repeated later.",
        "Offloaded without a recorded plan: 1 runs.",
    ):
        assert words in table.caption
    nothing = make_table(runs[:1])
    assert nothing.rows == () and nothing.header == (*LABELS, *COLUMNS)
    assert draw(runs[:1], tmp_path / "none") == []


def by_chunks(folder: Path, ranks: int = 2, **more: Any) -> list[RecordedRun]:
    epochs = [[rank(load=1.0)] * ranks, [rank(crossings=CROSSINGS)] * ranks]
    return [
        make_run(
            folder / f"{ranks}-{chunks}",
            epochs,
            chunks=chunks,
            facts={
                **FACTS,
                "chunks": chunks,
                "chunk_bytes_bound": 8_000_000 // chunks,
                "rows_initial": {**BEFORE, "original": 80 * chunks},
                "rows_reorganised": None,
                **more,
            },
        )
        for chunks in (4, 1, 2)
    ]


def test_ranks_and_chunks_that_differ_are_rows(tmp_path: Path) -> None:
    table = make_table([*by_chunks(tmp_path / "a"), *by_chunks(tmp_path / "b", 3)])
    assert table.header[:4] == (*LABELS, "paradigm.chunks")
    assert [(row[2], row[3], cells(table, number)["parts"]) for number, row in enumerate(table.rows)] == [
        ("2", "4", "8"),
        ("2", "1", "2"),
        ("2", "2", "4"),
        ("3", "4", "12"),
        ("3", "1", "3"),
        ("3", "2", "6"),
    ]


def test_the_figures_are_those_that_the_runs_support(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    kept: dict[str, Figure] = {}
    monkeypatch.setattr(drawing, "save_figure", lambda figure, file: kept.update({file.name: figure}))
    runs = [
        make_run(tmp_path / "a", WARM),
        make_run(tmp_path / "b", WARM, "hongtu_base", **BASE),
        in_memory(tmp_path / "c"),
    ]
    assert draw(runs[2:], tmp_path / "none") == [], "nothing is offloaded"
    assert [file.name for file in draw(runs, tmp_path / "one")] == ["offload.png", "offload.svg"]
    (axes,) = kept["offload.png"].axes
    bars = {bar.get_label(): [patch.get_height() for patch in bar] for bar in axes.containers}
    assert bars == {
        "H2D": [0.75, 0.75, 0],
        "D2H": [0.25, 0.25, 0],
        "D2D": [0.5, 0, 0.5],
        "between hosts": [0, 0.5, 0],
        "compute": [3.375, 3.375, 4.5],
        "host accumulation": [0.125, 0.125, 0],
    }
    assert [label.get_text().split("\n")[0] for label in axes.get_xticklabels()] == [
        "hongtu",
        "hongtu_base",
        "hongtu_im",
    ]
    assert "RAM" in axes.get_ylabel()


def test_curves_run_along_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    kept: dict[str, Figure] = {}
    monkeypatch.setattr(drawing, "save_figure", lambda figure, file: kept.update({file.name: figure}))
    files = draw(by_chunks(tmp_path / "a"), tmp_path / "out")
    assert [file.name for file in files] == [
        f"{name}.{suffix}" for name in ("offload", "chunks", "replication") for suffix in ("png", "svg")
    ]
    memory, seconds = kept["chunks.png"].axes
    assert [(line.get_label(), line.get_xydata().tolist()) for line in memory.lines] == [
        ("measured peak", [[1, 3.5], [2, 3.5], [4, 3.5]]),
        ("promised", [[1, 8.0], [2, 4.0], [4, 2.0]]),
        # alpha is 2, 4, 8; 40 vertices on 2, 4, 8 subgraphs; 400 bytes.
        ("(1+α)|V|/mn rows", [[1, 0.024], [2, 0.02], [4, 0.018]]),
    ]
    assert seconds.lines[0].get_xydata().tolist() == [[1, 9], [2, 9], [4, 9]]
    (axes,) = kept["replication.png"].axes
    assert [line.get_xydata().tolist() for line in axes.lines] == [[[2, 2], [4, 4], [8, 8]]]
    both = [*by_chunks(tmp_path / "b"), *by_chunks(tmp_path / "c", 3, row_bytes=None)]
    draw(both, tmp_path / "out")
    assert [line.get_label() for line in kept["replication.png"].axes[0].lines] == ["hongtu ranks=2", "hongtu ranks=3"]
    assert len(kept["chunks.png"].axes[0].lines) == 5, "of the second no formula: its rows' bytes are not known"


def test_the_command_takes_the_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    by_chunks(tmp_path / "runs" / "x")
    assert run_command(["report", "offload", "runs/x", "--csv", "--markdown"]) == 0
    assert {file.name for file in (tmp_path / "reports" / "x").iterdir()} == {
        f"{name}.{suffix}"
        for name, suffixes in (("offload", "csv html md png svg"), ("chunks", "png svg"), ("replication", "png svg"))
        for suffix in suffixes.split()
    }
    assert all(file.stat().st_size > 500 for file in (tmp_path / "reports" / "x").iterdir())
    lines = (tmp_path / "reports" / "x" / "offload.csv").read_text().splitlines()
    assert len(lines) == 4 and lines[0].startswith("system,dataset,ranks,paradigm.chunks,topology MB")
    assert "both kinds save %" in capsys.readouterr().out
