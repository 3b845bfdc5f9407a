"""Graphs of several relations: epochs compared with the sampling system's and the paper's, ratios by hand."""

from __future__ import annotations

import json
from pathlib import Path

from asking import both_of
from run_folder import write_job, write_result

from gnnexp.record.runs import RecordedRun, read_run

make_table, _ = both_of("heterogeneous")
HEADER = (
    "system",
    "dataset",
    "ranks",
    "epoch s",
    "x distdgl",
    "edges computed",
    "MB sent",
    "paper s",
    "paper x distdgl",
)


def make_run(
    folder: Path,
    system: str,
    seconds: float,
    shape: str | None = "mag_like",
    status: str = "finished",
    **sent: int,
) -> RecordedRun:
    """A run that has ended, of a slow first epoch and three of `seconds - 1`, `seconds` and `seconds + 1`."""
    write_job(folder, uid=str(folder), choices={"dataset": "rmat", "model": "rgcn", "paradigm": system})
    job = json.loads((folder / "job.json").read_text())
    job["config"] |= {"dataset": {"name": "rmat", "shape": shape}, "system": system, "model": {"layers": 2}}
    (folder / "job.json").write_text(json.dumps(job))
    traffic = {f"comm/bytes_{tag}": count for tag, count in sent.items()}
    known = {"acc/test": 0.5, "work/edges_computed": 120, **traffic}
    lines = [
        {"epoch": number, "metrics": {"time/epoch_s": wall, **known}}
        for number, wall in enumerate((100.0, seconds - 1, seconds + 1, seconds))
    ]
    (folder / "epochs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_result(folder, status, "" if status == "finished" else "rank 0 failed")
    return read_run(folder)


def test_cells_by_hand(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / "a", "distdgl", 12.0, features=2_000_000, gradients=500_000, frontier=1_000),
        make_run(tmp_path / "b", "neutrontp", 8.0, activations=3_000_000, skipped=9_000_000),
        make_run(tmp_path / "c", "neutronstar", 24.0),
        # The other way round on the larger graph, as in the paper: 56.9 / 695.2 = 0.08.
        make_run(tmp_path / "d", "distdgl", 4.0, "mag_lsc_like"),
        make_run(tmp_path / "e", "neutrontp", 16.0, "mag_lsc_like"),
        make_run(tmp_path / "f", "neutrontp", 2.0, "small"),
    ]
    table = make_table(runs)
    assert table.header == HEADER
    assert table.rows == (
        ("distdgl", "rmat mag_like", "2", "12.0000", "1.00", "120", "2.501", "36.3", "1.00"),
        ("neutrontp", "rmat mag_like", "2", "8.0000", "1.50", "120", "3.000", "5.9", "6.15"),
        ("neutronstar", "rmat mag_like", "2", "24.0000", "0.50", "120", "0", "–", "–"),
        ("distdgl", "rmat mag_lsc_like", "2", "4.0000", "1.00", "120", "0", "56.9", "1.00"),
        ("neutrontp", "rmat mag_lsc_like", "2", "16.0000", "0.25", "120", "0", "695.2", "0.08"),
        ("neutrontp", "rmat small", "2", "2.0000", "–", "120", "0", "–", "–"),
    )
    assert "Left out" not in table.caption


def test_what_is_left_out_is_named(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / "a", "distdgl", 12.0, status="failed"),
        make_run(tmp_path / "b", "neutrontp", 8.0),
        make_run(tmp_path / "c", "neutrontp", 4.0),
    ]
    table = make_table(runs)
    assert [row[3:5] for row in table.rows] == [("4.0000", "–")], "the later one, and nothing to compare it with"
    assert "Left out: 1 runs failed. Left out: 1 runs repeated later." in table.caption
    assert make_table([]).rows == ()
