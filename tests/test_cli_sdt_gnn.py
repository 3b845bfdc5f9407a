"""Streamed partitions and model averaging at the command line: what is recorded, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import place

from gnnexp.cli.main import run_command

__all__ = ["place"]


def result(*overrides: str) -> dict[str, Any]:
    folder = f"run{len(list(Path().glob('run*')))}"
    assert run_command(["run", "system=sdt_gnn", "tracker=none", "hardware.threads=1", f"hydra.run.dir={folder}",
                        *overrides]) == 0
    found: dict[str, Any] = json.loads((Path(folder) / "result.json").read_text())
    return found


def test_more_parts_than_workers_and_the_same_curve_on_one(place: Path) -> None:
    options = ["partitioner.num_parts=5", "train.epochs=2", "train.batch_size=300"]
    two, one = result(*options, "hardware.workers=2"), result(*options, "hardware.workers=1")
    told = two["paradigm"]
    assert not told["exact"] and "averaged every 1 epochs" in told["approximates"]
    assert told["parts"] == 5 and told["parts_per_rank"] == [3, 2] and sum(told["train"]) > 0
    assert sum(told["owned"]) == 1797 and told["replication"] >= 1 and told["local_batch_size"] == 60
    curves = [[{name: epoch["metrics"][name] for name in ("loss/train", "acc/val", "acc/test")}
               for epoch in run["epochs"]] for run in (two, one)]
    assert curves[0] == curves[1]
    last = two["epochs"][-1]["metrics"]
    assert last["work/parts_loaded"] == 3 and last["time/unaccounted_s"] < 0.2 * last["time/epoch_s"]
    assert last["comm/rounds_parameters"] == 1


def test_memory_decides_how_many_parts(place: Path) -> None:
    """Section III-C: S bytes of data, q = 2, T = 2/3 M by default."""
    found = result("hardware.workers=2", "train.epochs=1", "paradigm.memory=300000")["paradigm"]
    features = 4 * 1797 * 64
    parts = found["parts"]
    room = 300_000 - 2 * 300_000 // 3
    assert parts > 2 and (parts - 1) * room > features, "topology and features need that many"


@pytest.mark.parametrize(("overrides", "words"), [
    ("paradigm.sync_every=0", ["paradigm.sync_every=0", "1 or more epochs", "mend: set paradigm.sync_every=1"]),
    ("paradigm.sync_every=3 train.eval_every=2", ["train.eval_every=2", "multiple of 3", "set train.eval_every=3"]),
    ("paradigm.optimizer_state=lost paradigm.local_batch_size=0",
     ["paradigm.optimizer_state='lost'", "kept or averaged or reset", "1 config"]),
    ("paradigm.local_batch_size=0 paradigm.memory=0",
     ["paradigm.local_batch_size=0", "paradigm.memory=0", "2 config"]),
    ("paradigm.reserve=5", ["paradigm.reserve=5", "below the memory of a rank"]),
    ("feature_store=partitioned", ["feature_store=", "one feature matrix"]),
    ("partitioner.num_parts=5000", ["partitioner.num_parts=5000", "1 to 1797"]),
    ("partitioner.alpha=-1 partitioner.beta=0", ["partitioner.alpha=-1", "partitioner.beta=0", "2 config"]),
], ids=lambda value: value.replace(" ", "_") if isinstance(value, str) else "")
def test_mistakes_end_with_2_and_name_the_mend(
    place: Path, overrides: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["run", "system=sdt_gnn", *overrides.split()]) == 2
    said = capsys.readouterr().err
    assert [word for word in words if word not in said] == [], said
    assert "Traceback" not in said


@pytest.mark.parametrize(("content", "name", "words"), [
    (b"0\t1\n2\tx\n", "edges.tsv", ["edges.tsv, line 2", "2\\tx"]),
    (b"0\t1\n2\t-3\n", "edges.tsv", ["edges.tsv, line 2"]),
    (b"", "edges.tsv", ["0 edges"]),
    (b"\0" * 12, "edges.bin", ["12 bytes", "multiple of 8 bytes"]),
    (np.array([[0, 1], [7, 1]], "<i4").tobytes(), "edges.bin", ["edge 1", "7 -> 1", "0 to 4"]),
], ids=["letter", "negative", "empty", "truncated", "range"])
def test_files_of_edges_with_mistakes(
    place: Path, content: bytes, name: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_bytes(content)
    nodes = ["dataset.num_nodes=5"] if "bin" in name else []
    assert run_command(["partition", "dataset=edge_list", f"dataset.path={name}", "dataset.streamed=true",
                        "partitioner=spring", "partitioner.num_parts=2", *nodes]) == 2
    said = capsys.readouterr().err
    assert [word for word in words if word not in said] == [], said
    assert "Traceback" not in said
    cache = Path(".gnnexp") if Path(".gnnexp").exists() else place
    assert not list(cache.rglob("edge_list-*/meta.json"))
