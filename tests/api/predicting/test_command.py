"""`gnnexp predict` and `gnnexp export --to pyg` on runs, by the ids of the user's tables."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyarrow import parquet

import gnnexp
from gnnexp.cli.main import run_command

Trains = Callable[..., Path]
SMALL = (
    "train=default",
    "sampler.fanouts=[4,3]",
    "model.layers=2",
    "train.batch_size=64",
    "model.hidden=8",
    "train.epochs=2",
    "train.eval_every=1",
    "tracker=none",
    "hardware.device=cpu",
    "system=dgl",
)


def said(capsys: Any, *words: str) -> tuple[int, str, str]:
    code = run_command(words)
    return code, *capsys.readouterr()


def rows_of(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as opened:
        return list(csv.DictReader(opened))


def write(folder: Path, name: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    folder.mkdir(exist_ok=True)
    with (folder / name).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def shops(folder: Path, kept: Callable[[int], bool] = lambda _: True, *, labels: bool = True) -> Path:
    """80 shops in two components: even and odd numbers. Their ids have signs of CSV."""
    draw = random.Random(4)
    numbers = [
        (draw.randrange(18, 90), draw.random() * 1000, "abc"[number % 3], ("groß", "klein")[number // 2 % 2])
        for number in range(80)
    ]
    edges = [(number, (number + 2 * draw.randrange(1, 9)) % 80) for number in range(80) for _ in range(2)]
    ids = [f'shop "{number}", {chr(10) if number % 7 == 0 else ""}Ü' for number in range(80)]
    last = ["size"] if labels else []
    write(
        folder,
        "nodes.csv",
        ["id", "age", "income", "town", *last],
        [[ids[number], *numbers[number][: 3 + labels]] for number in range(80) if kept(number)],
    )
    write(
        folder,
        "edges.csv",
        ["source", "target"],
        [[ids[one], ids[other]] for one, other in edges if kept(one) and kept(other)],
    )
    return folder


OPTIONS = (
    "dataset=tables",
    "dataset.nodes=nodes.csv",
    "dataset.label=size",
    "dataset.categories=[town]",
    "dataset.standardize=true",
)


@pytest.mark.slow
def test_other_tables_have_the_numbers_of_the_training_tables(trains: Trains, tmp_path: Path, capsys: Any) -> None:
    """One of two components alone has the predictions that it has in the run, with labels and without."""
    run_dir = trains(*OPTIONS, f"dataset.path={shops(tmp_path / 'own')}", *SMALL, size=1)
    assert said(capsys, "predict", str(run_dir), "--out", "own.csv", "--probabilities")[0] == 0
    own = {row["id"]: row for row in rows_of(Path("own.csv"))}
    assert len(own) == 80 and 'shop "7", \nÜ' in own and {row["class"] for row in own.values()} <= {"groß", "klein"}

    half = shops(tmp_path / "half", lambda number: number % 2 == 1, labels=False)
    code, _, err = said(capsys, "predict", str(run_dir), "--out", "half.csv", "--probabilities", f"dataset.path={half}")
    assert code == 0, err
    alike(rows_of(Path("half.csv")), own)

    half = shops(tmp_path / "labelled", lambda number: number % 4 == 3)
    code, out, err = said(capsys, "predict", str(run_dir), "--out", "p.parquet", f"dataset.path={half}", "--json")
    assert code == 0, err
    found = parquet.read_table("p.parquet").to_pylist()
    truth = {row["id"]: row["size"] for row in rows_of(half / "nodes.csv")}
    assert set(truth.values()) == {"klein"}  # the second class of the run, and the first one here
    accuracy = sum(row["class"] == truth[row["id"]] for row in found) / len(found)
    assert json.loads(out)["metrics"]["acc"] == pytest.approx(accuracy) and "acc " in err
    refused(capsys, run_dir, tmp_path)
    embeddings_and_twin(capsys, run_dir)


def alike(part: Sequence[dict[str, str]], whole: dict[str, dict[str, str]]) -> None:
    assert len(part) == 40
    for row in part:
        for name in ("p_groß", "p_klein", "probability"):
            assert float(row[name]) == pytest.approx(float(whole[row["id"]][name]), abs=1e-5)


def refused(capsys: Any, run_dir: Path, tmp_path: Path) -> None:
    """Mistakes of predict."""
    strange = shops(tmp_path / "strange", lambda number: number < 20)
    text = (strange / "nodes.csv").read_text(encoding="utf-8")
    (strange / "nodes.csv").write_text(text.replace("groß", "mittel"), encoding="utf-8")
    for words, said_text in (
        ([f"dataset.path={strange}"], "1 classes of tables are none of the model: groß, klein"),
        (["--out", "p.txt"], "must end in"),
        (["model=gat"], "only keys of the dataset can change"),
        (["--links", str(strange / "edges.csv")], "was trained for vertices"),
        (["--embeddings", "--probabilities"], "either embeddings or predictions"),
        ([f"dataset.path={strange}", "dataset.label=null", "dataset.nodes=null"], "features"),
    ):
        code, _, err = said(capsys, "predict", str(run_dir), *words)
        assert code == 2 and said_text in err, err


def embeddings_and_twin(capsys: Any, run_dir: Path) -> None:
    """Embeddings in both formats, and the twin of PyG."""
    for file in ("e.csv", "e.parquet"):
        assert said(capsys, "predict", str(run_dir), "--embeddings", "--out", file)[0] == 0
    listed = np.stack(parquet.read_table("e.parquet").column("embedding").to_numpy())
    flat = [[float(row[f"e_{number}"]) for number in range(8)] for row in rows_of(Path("e.csv"))]
    assert listed.shape == (80, 8) and np.array_equal(np.array(flat, np.float32), listed)
    pytest.importorskip("torch_geometric")
    code, _, err = said(capsys, "export", str(run_dir), "--to", "pyg", "--out", "my_twin.pt")
    assert code == 0, err
    sys.path.insert(0, str(Path.cwd()))
    try:
        from my_twin import load  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(Path.cwd()))
    model = gnnexp.load(run_dir)
    edges = torch.stack((model.graph.indices, model.graph.destinations())).long()
    with torch.no_grad():
        assert torch.allclose(load()(model.graph.features, edges), model(), atol=1e-5)
    assert said(capsys, "export", str(run_dir), "--to", "pyg", "--out", "my_twin.pt")[0] == 0
    Path("mine.py").write_text("print()\n")
    for file, text in (("mine.pt", "a file that gnnexp did not write"), ("a.pth", "end with .pt")):
        code, _, err = said(capsys, "export", str(run_dir), "--to", "pyg", "--out", file)
        assert code == 2 and text in err


def authors(folder: Path) -> Path:
    """Papers and authors with the same ids, `writes` and `cites` edges, and a feature of each vertex."""
    draw = random.Random(1)
    for kind, count in (("papers", 40), ("authors", 20)):
        write(folder, f"{kind}.csv", ["id", "x"], [[number, draw.random()] for number in range(count)])
    write(folder, "writes.csv", ["author", "paper"], [[draw.randrange(20), draw.randrange(40)] for _ in range(150)])
    write(folder, "cites.csv", ["source", "target"], [[draw.randrange(40), draw.randrange(40)] for _ in range(150)])
    return folder


TYPED = (
    "dataset=tables",
    "dataset.nodes={author: authors.csv, paper: papers.csv}",
    "dataset.edges={writes: {table: writes.csv, from: author, to: paper}, "
    "cites: {table: cites.csv, from: paper, to: paper}}",
    "task=link_prediction",
    "model=rgcn",
    "dataset.link_split={val: 0.1, test: 0.1}",
)


@pytest.mark.slow
def test_links_are_scored_by_their_ids_and_relations(trains: Trains, tmp_path: Path, capsys: Any) -> None:
    run_dir = trains(*TYPED, f"dataset.path={authors(tmp_path / 'own')}", *SMALL)
    code, _, err = said(capsys, "predict", str(run_dir), "--out", "test.csv")
    assert code == 0, err
    model = gnnexp.load(run_dir)
    links = model.graph.links["test"]
    scores = np.concatenate(list(model.link_scores(links)))
    assert same_links(rows_of(Path("test.csv")), links, scores)

    rows = rows_of(Path("test.csv"))
    write(
        tmp_path,
        "pairs.csv",
        ["source", "target", "relation"],
        [[f"{row['source']}.0", row["destination"], row["relation"]] for row in reversed(rows)],
    )  # as pandas may
    code, _, err = said(capsys, "predict", str(run_dir), "--links", "pairs.csv", "--out", "pairs.parquet")
    assert code == 0, err
    assert f"gnnexp: pairs.csv: {len(rows)} ids of the column source count as integers" in err
    found = parquet.read_table("pairs.parquet").to_pylist()
    assert [
        {name: str(value) for name, value in row.items() if name not in ("score", "probability")}
        for row in reversed(found)
    ] == [{name: row[name] for name in row if name not in ("score", "probability")} for row in rows]
    assert np.array_equal(np.array([row["score"] for row in reversed(found)], np.float32), scores)
    wrong_pairs(capsys, run_dir, tmp_path)
    assert said(capsys, "predict", str(run_dir), "--embeddings", "--out", "e.parquet")[0] == 0
    assert np.array_equal(np.stack(parquet.read_table("e.parquet")["embedding"].to_numpy()), model().numpy())


def same_links(rows: Sequence[dict[str, str]], links: torch.Tensor, scores: np.ndarray) -> bool:
    """Authors are the vertices 0 to 19, papers follow."""
    assert len(rows) == links.shape[0] > 20
    for row, (head, relation, tail), score in zip(rows, links.tolist(), scores, strict=True):
        assert (row["source"], row["source_type"]) == (
            (str(head), "author") if head < 20 else (str(head - 20), "paper")
        )
        assert (row["destination"], row["destination_type"]) == (str(tail - 20), "paper")
        assert row["relation"] == ("writes", "cites")[relation] and np.float32(row["score"]) == score
        assert float(row["probability"]) == pytest.approx(1 / (1 + np.exp(-float(score))))
    return True


def wrong_pairs(capsys: Any, run_dir: Path, folder: Path) -> None:
    """Each mistake names its row."""
    for header, rows, text in (
        (["source", "target", "relation"], [[1, 2, "writes"], [99, 2, "writes"]], "line 3, column source='99'"),
        (["source", "target", "relation"], [[1, 2, "writes"], [1, "", "writes"]], "line 3, column target=None"),
        (["source", "target", "relation"], [[1, 2, "writes"], ["01", 2, "writes"]], "line 3, column source='01'"),
        (["source", "target", "relation"], [[1, 2, "likes"]], "column relation='likes': is no relation of the model"),
        (["source", "target"], [[1, 2]], "no column has a usual name of the relation"),
        (["source", "target", "relation", "source_type"], [[1, 2, "cites", "shop"]], "is no type of vertices"),
        (["source", "target", "relation"], [], "there are no pairs"),
        (["anna", "berta", "carla"], [["x", "y", "z"]], "give the table a first line"),
    ):
        write(folder, "wrong.csv", header, rows)
        code, _, err = said(capsys, "predict", str(run_dir), "--links", "wrong.csv", "--out", "no.csv")
        assert code == 2 and text in err and not Path("no.csv").exists(), err
    code, _, err = said(capsys, "predict", str(run_dir), "--probabilities")
    assert code == 2 and "was trained for links" in err


@pytest.mark.slow
def test_a_dataset_without_ids_has_numbers_and_its_graph_is_prepared_again(
    trains: Trains, tmp_path: Path, capsys: Any
) -> None:
    run_dir = trains("dataset=digits", *SMALL, "train.batch_size=512", "train.dtype=float64")
    job = json.loads((run_dir / "job.json").read_text())
    (run_dir / "job.json").write_text(json.dumps({**job, "graph": "/gone"}))
    assert said(capsys, "predict", str(run_dir))[0] == 0
    rows = rows_of(Path("predictions.csv"))
    assert [row["id"] for row in rows] == [str(number) for number in range(1797)]
    assert [int(row["class"]) for row in rows] == gnnexp.load(run_dir)().argmax(1).tolist()


@pytest.mark.slow
def test_runs_without_a_model_and_with_trained_rows(trains: Trains, tmp_path: Path, capsys: Any) -> None:
    folder = shops(tmp_path / "own")
    run_dir = trains(
        *OPTIONS, f"dataset.path={folder}", *SMALL, "feature_store=embedding", "feature_store.dim=4", size=1
    )
    assert said(capsys, "predict", str(run_dir))[0] == 0
    code, _, err = said(capsys, "predict", str(run_dir), f"dataset.path={folder}")
    assert code == 2 and "knows the vertices of its own graph only" in err
    code, _, err = said(capsys, "export", str(run_dir), "--to", "pyg")
    assert code == 2 and "trained rows replace features" in err
    shutil.rmtree(run_dir / "checkpoints")
    for words, text in (([], "--last"), (["--last"], "train.checkpoint_every=1, which keeps the best model")):
        code, _, err = said(capsys, "predict", str(run_dir), *words)
        assert code == 2 and text in err


def test_data_that_have_changed_since_the_run_are_said(
    trains: Trains, tmp_path: Path, capsys: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """`predict`, `load` and `run --from` name the change; asked-for data are no change."""
    own, half = shops(tmp_path / "own"), shops(tmp_path / "half", lambda number: number % 2 == 1)
    run_dir = trains(*OPTIONS, f"dataset.path={own}", *SMALL, size=1)
    predict, again = ("predict", str(run_dir), "--out", "p.csv"), ("run", "--from", str(run_dir), "--cfg")
    says = "have changed since the run"

    for words in (predict, again):
        code, _, err = said(capsys, *words)
        assert (code, says in err) == (0, False), err
    gnnexp.load(run_dir)
    assert says not in caplog.text

    table, lines = own / "nodes.csv", (own / "nodes.csv").read_text(encoding="utf-8")
    before = table.stat()
    table.write_text(lines.replace("groß", "XXXX").replace("klein", "groß").replace("XXXX", "klein"), encoding="utf-8")
    os.utime(table, ns=(before.st_atime_ns, before.st_mtime_ns))
    code, _, err = said(capsys, *predict)
    assert code == 0 and "the rows are of the data of the run" in err
    assert f"the data of tables or the code that reads them {says} (key " in err
    assert f"gnnexp predict {run_dir} dataset.path=PLACE" in err and len(rows_of(Path("p.csv"))) == 80
    code, _, err = said(capsys, *again)
    assert code == 0 and f"{says} (key " in err
    gnnexp.load(run_dir)
    assert says in caplog.text
    code, _, err = said(capsys, *predict, f"dataset.path={half}")
    assert (code, says in err, len(rows_of(Path("p.csv")))) == (0, False, 40), err

    shutil.rmtree(own)
    code, _, err = said(capsys, *predict)
    assert (code, says in err, len(rows_of(Path("p.csv")))) == (0, False, 80), err
