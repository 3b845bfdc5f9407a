"""The loaded graph is Zachary's karate club, mistakes in files are errors, and a run of the command line learns it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from my_dataset.matrix_market import MatrixMarket

from gnnexp.cli.main import run_command
from gnnexp.errors import ConfigError, DataError

HERE = Path(__file__).parent.parent
DATA = str(HERE / "data")


def karate(**options) -> MatrixMarket:
    return MatrixMarket(**{"name": "karate", "path": DATA, **options})


def test_the_graph():
    graph = karate().load()  # checked: order of the edges, shapes, ranges, splits without overlap
    assert (graph.num_nodes, graph.num_edges, graph.num_classes) == (34, 2 * 78, 2)
    assert graph.in_degree[[0, 33, 11]].tolist() == [16, 17, 1], "Mr. Hi, the officer, a member with one friend"
    assert [int(part.numel()) for part in (graph.splits.train, graph.splits.val, graph.splits.test)] == [10, 10, 14]


def test_keys_tell_content_apart(tmp_path: Path):
    for file in Path(DATA).iterdir():
        shutil.copy(file, tmp_path)
    keys = [karate().key(), karate(path=str(tmp_path)).key(), karate(seed=1).key(), karate(symmetrize=False).key()]
    (tmp_path / "karate.labels").write_text("0\n" * 34)
    keys.append(karate(path=str(tmp_path)).key())
    assert keys[0] == keys[1] and len(set(keys)) == 4, "the key depends on the content of the files, not on their place"


def test_mistakes_are_told(tmp_path: Path):
    with pytest.raises(ConfigError, match="train"):
        karate(train=1.5)
    with pytest.raises(DataError, match=r"zachary\.mtx.*missing"):
        karate(name="zachary").load()
    shutil.copy(HERE / "data" / "karate.mtx", tmp_path)
    (tmp_path / "karate.labels").write_text("one\n")
    with pytest.raises(DataError, match="a class per line"):
        karate(path=str(tmp_path)).load()
    (tmp_path / "karate.labels").write_text("1\n")
    with pytest.raises(DataError, match="labels"):
        karate(path=str(tmp_path)).load()


@pytest.mark.slow
def test_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(HERE)
    command = [
        "run",
        "dataset=matrix_market",
        "dataset.name=karate",
        "dataset.path=data",
        "model=gcn",
        "sampler=full",
        "model.dropout=0",
        "model.input_dropout=0",
        "train=planetoid_gcn",
        "train.epochs=60",
        "train.eval_every=20",
        "--config-dir",
        "conf",
        f"hydra.run.dir={tmp_path / 'run'}",
        "tracker=none",
    ]
    assert run_command(command) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["provenance"]["graph"]["num_nodes"] == 34
    losses = [epoch["metrics"]["loss/train"] for epoch in result["epochs"]]
    assert losses[-1] < losses[0] / 2
