"""Streamed partitions and model averaging at the command line: what is recorded, and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import place
from full_disk import room_for

from gnnexp.cli.main import run_command
from gnnexp.datasets.published.digits import Digits
from gnnexp.files.cache import cache_root
from gnnexp.graph.partition import open_partition
from gnnexp.partitioners.dbh import DbhPartitioner
from gnnexp.preparation.artifacts import prepare_graph

__all__ = ["place"]


def result(*overrides: str) -> dict[str, Any]:
    folder = f"run{len(list(Path().glob('run*')))}"
    assert (
        run_command(
            ["run", "system=sdt_gnn", "tracker=none", "hardware.threads=1", f"hydra.run.dir={folder}", *overrides]
        )
        == 0
    )
    found: dict[str, Any] = json.loads((Path(folder) / "result.json").read_text())
    return found


@pytest.mark.slow
def test_more_parts_than_workers_and_the_same_curve_on_one(place: Path) -> None:
    options = ["partitioner.num_parts=5", "train.epochs=2", "train.batch_size=300"]
    two, one = result(*options, "hardware.workers=2"), result(*options, "hardware.workers=1")
    told = two["paradigm"]
    assert not told["exact"] and "averaged every 1 epochs" in told["approximates"]
    assert told["parts"] == 5 and told["parts_per_rank"] == [3, 2] and sum(told["train"]) > 0
    assert sum(told["owned"]) == 1797 and told["replication"] >= 1 and told["local_batch_size"] == 60
    curves = [
        [{name: epoch["metrics"][name] for name in ("loss/train", "acc/val", "acc/test")} for epoch in run["epochs"]]
        for run in (two, one)
    ]
    assert curves[0] == curves[1]
    last, epochs = two["epochs"][-1]["metrics"], [epoch["metrics"] for run in (two, one) for epoch in run["epochs"]]
    assert last["work/parts_loaded"] == 3
    shares = [epoch["time/unaccounted_s"] / epoch["time/epoch_s"] for epoch in epochs]
    assert min(shares) < 0.2, "a busy machine may interrupt a rank between two phases, but not in each epoch"
    assert last["comm/rounds_parameters"] == 1
    kept = json.loads((Path(two["partition"]) / "quality.json").read_text())
    assert two["quality"] == one["quality"] == kept and kept["peak_rss_bytes"] >= kept["rss_before_bytes"] > 0
    assert run_command(["report", "partitioning", "run0", "run1", "--csv", "--out=out"]) == 0
    header, row = csv.reader(Path("out/partitioning.csv").read_text().splitlines())
    cells = dict(zip(header, row, strict=True))
    assert (cells["dataset"], cells["parts"], cells["partitioner"]) == ("digits", "5", "spring")
    assert cells["copies, full"] == f"{two['paradigm']['replication']:.3f}" and cells["SPRING faster"] == "1.00x"
    graph = Path(json.loads(Path("run0/job.json").read_text())["graph"])
    edges = json.loads((graph / "meta.json").read_text())["num_edges"]
    assert cells["data MB"] == f"{8e-6 * edges:.2f}" and float(cells["added MB"]) < 50


@pytest.mark.slow
def test_memory_decides_how_many_parts(place: Path) -> None:
    """Section III-C: S bytes of data, q = 2, T = 2/3 M by default."""
    found = result("hardware.workers=2", "train.epochs=1", "paradigm.memory=300000", "model.hidden=8")["paradigm"]
    features = 4 * 1797 * 64
    parts = found["parts"]
    room = 300_000 - 2 * 300_000 // 3
    assert parts > 2 and (parts - 1) * room > features, "topology and features need that many"
    # Two parts would have room without their halos.
    fitting = result("hardware.workers=2", "train.epochs=1", "paradigm.memory=320000", "paradigm.reserve=0")["paradigm"]
    assert fitting["parts"] == 4 and max(fitting["vertices"]) * 64 * 4 <= 320_000


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ("paradigm.reserve=profile paradigm.memory=5", ["paradigm.reserve='profile'", "integer", "1 config"]),
        ("paradigm.sync_every=0", ["paradigm.sync_every=0", "1 or more epochs", "fix: set paradigm.sync_every=1"]),
        ("paradigm.sync_every=3 train.eval_every=2", ["train.eval_every=2", "multiple of 3", "set train.eval_every=3"]),
        ("paradigm.optimizer_state=averaged", ["paradigm.optimizer_state='averaged'", "no such key", "1 config"]),
        (
            "paradigm.local_batch_size=0 paradigm.memory=0",
            ["paradigm.local_batch_size=0", "paradigm.memory=0", "2 config"],
        ),
        ("paradigm.reserve=5", ["paradigm.reserve=5", "below the memory of a rank"]),
        ("feature_store=partitioned", ["feature_store=", "one feature matrix"]),
        # 5,000 models need 17 GB: whether there are is not asked here.
        ("partitioner.num_parts=5000 preflight=off", ["partitioner.num_parts=5000", "1 to 1797"]),
        ("partitioner.alpha=-1 partitioner.beta=0", ["partitioner.alpha=-1", "partitioner.beta=0", "2 config"]),
    ],
    ids=lambda value: value.replace(" ", "_") if isinstance(value, str) else "",
)
def test_mistakes_end_with_2_and_name_the_fix(
    place: Path, overrides: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["run", "system=sdt_gnn", *overrides.split()]) == 2
    said = capsys.readouterr().err
    assert [word for word in words if word not in said] == [], said
    assert "Traceback" not in said


def test_a_stream_is_partitioned_without_a_graph(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same owners and quality as of the graph that holds the same edges."""
    pairs = np.unique(np.random.default_rng(3).integers(0, 300, (4000, 2)), axis=0)
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    both = np.concatenate([pairs, pairs[:, ::-1]])
    both[np.lexsort((both[:, 0], both[:, 1]))].astype("<i4").tofile("edges.bin")
    folders, began = [], Path("edges.bin").stat().st_mtime
    for rule in ("spring", "hdrf"):
        for graph in (["dataset.streamed=true", "dataset.symmetrize=false"], ["dataset.symmetrize=true"]):
            path = "edges.bin" if len(graph) == 2 else "edges.npy"
            np.save("edges.npy", pairs)
            assert (
                run_command(
                    [
                        "partition",
                        "dataset=edge_list",
                        f"dataset.path={path}",
                        f"partitioner={rule}",
                        "partitioner.num_parts=3",
                        *graph,
                    ]
                )
                == 0
            )
            said = capsys.readouterr().out
            assert "pass 1 over" in said and "M edges" in said
            folders.append(Path(said.split("partition: ")[1].split("\n")[0]))
    for streamed, whole in (folders[:2], folders[2:]):
        assert np.array_equal(np.load(streamed / "node_owner.npy"), np.load(whole / "node_owner.npy"))
        quality, expected = (json.loads((folder / "quality.json").read_text()) for folder in (streamed, whole))
        cost = {"seconds", "peak_rss_bytes", "rss_before_bytes"}
        assert {k: v for k, v in quality.items() if k not in cost} == {
            k: v for k, v in expected.items() if k not in cost
        }
    made = [path for path in (cache_root() / "graphs").glob("edge_list-*") if path.stat().st_mtime >= began]
    assert len(made) == 1, "of the list that is read as a whole"


def test_passes_over_a_graph_are_shown_and_change_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """DBH counts degrees in stored order and places edges shuffled; then their homes are counted."""
    assert (
        run_command(
            [
                "partition",
                "dataset=digits",
                "partitioner=dbh",
                "partitioner.num_parts=3",
                "partitioner.order=shuffled",
                "partitioner.seed=5",
            ]
        )
        == 0
    )
    said = capsys.readouterr().out
    assert [f"pass {number} over digits" in said for number in range(1, 5)] == [True, True, True, False]
    graph, _ = prepare_graph(Digits(), cache_root())
    alone = DbhPartitioner(order="shuffled", seed=5).partition(graph, 3)
    shown = open_partition(Path(said.split("partition: ")[1].split("\n")[0]), graph=graph)
    assert torch.equal(shown.node_owner, alone.node_owner)
    assert alone.edge_owner is not None and shown.edge_owner is not None
    assert torch.equal(shown.edge_owner, alone.edge_owner)


@pytest.mark.slow
def test_a_disk_that_fills_ends_with_2_and_the_next_run_succeeds(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the parts: features of one are 64 columns, the partition's owners 2 bytes a vertex."""
    run = [
        "run",
        "system=sdt_gnn",
        "dataset=digits",
        "partitioner.num_parts=3",
        "partitioner.order=shuffled",  # no other test makes these parts, which the cache would keep
        "partitioner.seed=7",
        "tracker=none",
        "train.epochs=1",
        "hardware.threads=1",
        "sampler.threads=0",
    ]
    assert run_command(["partition", *run[1:]]) == 0
    parts = cache_root() / "parts"
    before = set(parts.iterdir()) if parts.exists() else set()
    with room_for(120_000):
        assert run_command([*run, "hydra.run.dir=full"]) == 2
    said = capsys.readouterr().err
    assert "/parts/" in said and "File too large" in said and "fix: make room there" in said
    assert "Traceback" not in said
    assert (set(parts.iterdir()) if parts.exists() else set()) == before and not Path("full").exists()
    assert run_command([*run, "hydra.run.dir=full"]) == 0


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (b"0\t1\n2\tx\n", "edges.tsv", ["edges.tsv, line 2", "2\\tx"]),
        (b"0\t1\n2\t-3\n", "edges.tsv", ["edges.tsv, line 2"]),
        (b"", "edges.tsv", ["0 edges"]),
        (b"\0" * 12, "edges.bin", ["12 bytes", "multiple of 8 bytes"]),
        (np.array([[0, 1], [7, 1]], "<i4").tobytes(), "edges.bin", ["edge 1", "7 -> 1", "0 to 4"]),
    ],
    ids=["letter", "negative", "empty", "truncated", "range"],
)
def test_files_of_edges_with_mistakes(
    place: Path, content: bytes, name: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_bytes(content)
    nodes = ["dataset.num_nodes=5"] if "bin" in name else []
    assert (
        run_command(
            [
                "partition",
                "dataset=edge_list",
                f"dataset.path={name}",
                "dataset.streamed=true",
                "partitioner=spring",
                "partitioner.num_parts=2",
                *nodes,
            ]
        )
        == 2
    )
    said = capsys.readouterr().err
    assert [word for word in words if word not in said] == [], said
    assert "Traceback" not in said
    cache = Path(".gnnexp") if Path(".gnnexp").exists() else place
    assert not list(cache.rglob("edge_list-*/meta.json"))
