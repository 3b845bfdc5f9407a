"""Redundancy: micro against mini from recorded counters, ratios by hand, nothing left out unsaid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from asking import both_of
from run_folder import write_job, write_result

from gnnexp.cli.main import run_command
from gnnexp.record.runs import RecordedRun, read_run

make_table, _ = both_of("redundancy")
HEADER = (
    "dataset",
    "ranks",
    "edges micro",
    "edges mini",
    "edges ratio",
    "features micro",
    "features mini",
    "features ratio",
    "paper's edges ratio",
    "paper's features ratio",
)
SHAPED = {"name": "rmat", "shape": "orkut_like", "scale": 0.01}


def make_run(
    folder: Path,
    paradigm: str,
    ranks: int,
    epochs: list[dict[str, int]],
    key: str = "global",
    dataset: dict[str, Any] | None = None,
    status: str = "finished",
    **options: Any,
) -> RecordedRun:
    """A run that has ended, whose epochs recorded these `work/*` counters."""
    write_job(folder, uid=str(folder), choices={"dataset": "rmat", "model": "sage", "paradigm": paradigm})
    job = json.loads((folder / "job.json").read_text())
    job["config"] |= {
        "dataset": dataset or {"name": "computers"},
        "paradigm": {"_target_": "P", "assign": "even", **options},
        "hardware": {"nodes": 1, "workers": ranks},
        "sampler": {"fanouts": [15, 15], "key": key},
        "model": {"layers": 2},
        "system": {"split_parallel": "gsplit", "data_parallel": "dgl"}.get(paradigm, paradigm),
    }
    (folder / "job.json").write_text(json.dumps(job))
    lines = [
        {"epoch": n, "metrics": {"acc/test": 0.5, **{f"work/{name}": count for name, count in epoch.items()}}}
        for n, epoch in enumerate(epochs)
    ]
    (folder / "epochs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_result(folder, status, "" if status == "finished" else "rank 0 failed")
    return read_run(folder)


def work(edges: int, **features: int) -> dict[str, int]:
    return {"edges_computed": edges, "edges_sampled": 7, **{f"features_loaded_{k}": v for k, v in features.items()}}


def micro(folder: Path, ranks: int = 4, edges: int = 300, host: int = 80, **more: Any) -> RecordedRun:
    return make_run(folder, "data_parallel", ranks, [work(edges, host=host)], key="micro", **more)


def mini(folder: Path, ranks: int = 4, edges: int = 200, local: int = 40, **more: Any) -> RecordedRun:
    return make_run(folder, "split_parallel", ranks, [work(edges, local=local)], **more)


def test_ratios_are_of_the_means_over_epochs_and_seeds(tmp_path: Path) -> None:
    runs = [
        # 100, 140 and 120 edges: 120; 30 + 10, 40 + 20, 50 features: 50.
        make_run(
            tmp_path / "a", "data_parallel", 4, [work(100, host=30, peer=10), work(140, local=40, disk=20)], "micro"
        ),
        make_run(tmp_path / "b", "data_parallel", 4, [work(120, remote=50)], "micro"),
        # 80 edges; (10 + 15 + 0, 15) features: 20.
        make_run(tmp_path / "c", "split_parallel", 4, [work(80, local=10, host=15, peer=0), work(80, local=15)]),
    ]
    table = make_table(runs)
    assert table.header == HEADER
    assert table.rows == (("computers", "4", "120", "80", "1.50x", "50", "20", "2.50x", "-", "-"),)
    assert "without" not in table.caption and "one rank" not in table.caption and "Neither" not in table.caption


@pytest.mark.parametrize(
    ("shape", "paper"),
    [
        ("orkut_like", ("1.2x", "2.5x")),
        ("papers_like", ("1.2x", "1.5x")),
        ("friendster_like", ("1.0x", "1.2x")),
        ("small", ("-", "-")),
    ],
)
def test_the_papers_ratios_stand_beside_its_graphs(tmp_path: Path, shape: str, paper: tuple[str, str]) -> None:
    dataset = SHAPED | {"shape": shape}
    table = make_table([micro(tmp_path / "a", dataset=dataset), mini(tmp_path / "b", dataset=dataset)])
    assert [row[:10] for row in table.rows] == [
        (f"rmat {shape} x0.01", "4", "300", "200", "1.50x", "80", "40", "2.00x", *paper)
    ]


def test_counts_stand_beside_the_papers_at_its_size(tmp_path: Path) -> None:
    """A hundredth of Orkut, a 20th of it trained where the artifact trains a tenth: 200 times as many."""
    dataset = SHAPED | {"train": 0.05}
    more = {"micro": {"edges": 4_630_000, "host": 1_000_000}, "mini": {"edges": 2_000_000, "local": 845_000}}
    runs = [
        micro(tmp_path / "a", dataset=dataset, **more["micro"]),
        mini(tmp_path / "b", dataset=dataset, **more["mini"]),
    ]
    for run in runs:
        run.config["train"]["batch_size"] = 8
    table = make_table(runs)
    assert table.header[10:12] == ("edges micro, full size / paper", "edges mini, full size / paper")
    assert table.rows[0][10:] == (
        "926M / 926M (equal)",
        "400M / 751M (1.9x off)",
        "200M / 422M (2.1x off)",
        "169M / 169M (equal)",
    )


def test_only_the_same_setting_is_compared(tmp_path: Path) -> None:
    runs = [
        micro(tmp_path / "a", 2),
        micro(tmp_path / "b", 4),
        mini(tmp_path / "c", 4),
        mini(tmp_path / "d", 8),
        micro(tmp_path / "e", 4, dataset=SHAPED),
        mini(tmp_path / "f", 4, dataset=SHAPED | {"scale": 0.02}),
        micro(tmp_path / "g", 2, status="failed"),
    ]
    table = make_table(runs)
    assert [row[:2] for row in table.rows] == [("computers", "4")]
    setting = "(fanouts [15, 15], batch null, 2 layers)"
    assert f"Micro without its mini: computers on 2 ranks {setting}." in table.caption
    assert f"Micro without its mini: rmat orkut_like x0.01 on 4 ranks {setting}." in table.caption
    assert f"Mini without its micro: computers on 8 ranks {setting}." in table.caption
    assert f"Mini without its micro: rmat orkut_like x0.02 on 4 ranks {setting}." in table.caption
    assert "Failed: 1 runs." in table.caption


def test_a_rank_alone_stands_in_for_the_mini_batch(tmp_path: Path) -> None:
    alone = make_run(tmp_path / "a", "data_parallel", 1, [work(150, host=40)])
    table = make_table([micro(tmp_path / "b", 4), alone])
    assert table.rows[0][2:8] == ("300", "150", "2.00x", "80", "40", "2.00x")
    setting = "(fanouts [15, 15], batch null, 2 layers)"
    assert f"Mini of computers on 4 ranks {setting} is a run of one rank." in table.caption
    table = make_table([micro(tmp_path / "b"), alone, mini(tmp_path / "c")])
    assert table.rows[0][3] == "200", "split parallelism on as many ranks comes first"
    assert "Mini without its micro: computers on 1 rank " in table.caption
    table = make_table([micro(tmp_path / "d", 1)])
    assert table.rows[0][2:5] == ("300", "300", "1.00x"), "a rank's micro-batch is the mini-batch"
    assert f"Mini of computers on 1 rank {setting} is a run of one rank." in table.caption


def test_batches_are_compared_as_the_global_ones_that_they_are(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "one", "data_parallel", 1, [work(1)]), *(micro(tmp_path / f"{n}", n) for n in (2, 4))]
    sizes = ({"batch_size": 512}, {"batch_size": 256, "batch_of": "rank"}, {"batch_size": 256, "batch_of": "rank"})
    runs = [
        RecordedRun(
            run.path, {**run.config, "train": {"epochs": 1, **size}}, run.provenance, run.epochs, {}, "finished"
        )
        for run, size in zip(runs, sizes, strict=True)
    ]
    table = make_table(runs)
    assert [row[1] for row in table.rows] == ["2"]
    assert "Micro without its mini: computers on 4 ranks (fanouts [15, 15], batch 1024, 2 layers)." in table.caption


def test_what_is_on_neither_side_is_counted(tmp_path: Path) -> None:
    runs = [
        micro(tmp_path / "a"),
        mini(tmp_path / "b"),
        mini(tmp_path / "c", edges=1, group_size=2),
        make_run(tmp_path / "d", "data_parallel", 4, [work(1)]),
        micro(tmp_path / "e", edges=1, assign="owner"),
        make_run(tmp_path / "f", "push_pull", 4, [work(1)]),
        mini(tmp_path / "g", group_size=4),
    ]
    table = make_table(runs)
    assert table.rows[0][2:5] == ("300", "200", "1.50x")
    assert "Neither micro nor mini: 1 of gsplit, 2 of dgl, 1 of push_pull." in table.caption


def test_what_differs_heads_a_row_and_what_was_not_recorded_is_no_number(tmp_path: Path) -> None:
    other = {"model": {"layers": 3}}
    runs = [make_run(tmp_path / "a", "data_parallel", 4, [{"edges_computed": 9}], "micro"), mini(tmp_path / "b")]
    for name in ("c", "d"):
        run = micro(tmp_path / name) if name == "c" else mini(tmp_path / name)
        runs.append(RecordedRun(run.path, {**run.config, **other}, run.provenance, run.epochs, run.summary, run.status))
    table = make_table(runs)
    assert table.header[:3] == ("dataset", "ranks", "layers")
    assert [row[:9] for row in table.rows] == [
        ("computers", "4", "2", "9", "200", "0.04x", "–", "40", "–"),
        ("computers", "4", "3", "300", "200", "1.50x", "80", "40", "2.00x"),
    ]


@pytest.mark.slow
def test_the_command_takes_a_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["report", "redundancy"]) == 2
    assert "no run that has ended" in capsys.readouterr().err
    for ranks in (2, 4):
        micro(tmp_path / "runs" / "x" / f"micro{ranks}", ranks)
        mini(tmp_path / "runs" / "x" / f"mini{ranks}", ranks)
    assert run_command(["report", "redundancy", "--csv"]) == 0
    assert (tmp_path / "reports" / "redundancy" / "redundancy.csv").read_text().count("1.50x") == 2
    cases = [{"label": side, "run_dir": f"runs/x/{side}4"} for side in ("micro", "mini")]
    state = {"schema": 1, "name": "mine", "rows": [], "kind": "redundancy", "cases": cases}
    (tmp_path / "runs" / "sweeps").mkdir()
    (tmp_path / "runs" / "sweeps" / "mine.json").write_text(json.dumps(state))
    for words in (["mine"], ["redundancy", "mine"], ["redundancy", "runs/x/micro4", "runs/x/mini4", "--out=o"]):
        assert run_command(["report", *words, "--csv"]) == 0
    files = [tmp_path / "reports" / "mine" / "redundancy.csv", tmp_path / "o" / "redundancy.csv"]
    assert [file.read_text().splitlines()[1:] for file in files] == [["computers,4,300,200,1.50x,80,40,2.00x,-,-"]] * 2
    assert run_command(["report", "mine", "--rows", "system", "--csv"]) == 0
    assert (tmp_path / "reports" / "mine" / "table.csv").exists(), "rows ask for the comparison table"
    assert run_command(["report", "redundancy", "mine", "--rows", "system"]) == 2
    assert "--rows" in capsys.readouterr().err
