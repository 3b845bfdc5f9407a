"""The first three commands for one's own graph: data, run, predict."""

import csv
import json
import random
import shlex
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gnnexp.cli.main import run_command


def folder_of_tables(folder: Path) -> Path:
    """Edges, classes and words of 60 pages whose class follows from their words."""
    draw = random.Random(0)
    kinds = {f"page {number}": ("tv", "gov")[number % 2] for number in range(60)}
    names = list(kinds)
    edges = [f'"{draw.choice(names)}","{draw.choice(names)}"' for _ in range(200)]
    (folder / "links.csv").write_text("\n".join(["source,target", *edges]) + "\n")
    (folder / "pages.csv").write_text("\n".join(["name,class", *(f"{name},{kinds[name]}" for name in names)]) + "\n")
    words = {name: [5 * (kinds[name] == "tv") + draw.randrange(5) for _ in range(3)] for name in names}
    (folder / "words.json").write_text(json.dumps(words))
    return folder


def said(capsys: Any, *words: str) -> tuple[int, str, str]:
    code = run_command(words)
    return code, *capsys.readouterr()


@pytest.mark.slow
def test_data_prints_a_command_that_runs(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    code, out, err = said(
        capsys,
        "data",
        str(folder_of_tables(tmp_path / "own")),
        "--json",
        "--picture",
        "p.png",
        "--save",
        "mine/dataset/pages.yaml",
    )
    assert code == 0, err
    found = json.loads(out)
    assert (found["vertices"], found["edges"], found["features"]) == (60, 200, 10)
    assert found["classes"] == [30, 30] and found["names"]["classes"] == ["gov", "tv"]
    assert found["command"] == " ".join(["gnnexp", "run", *map(shlex.quote, found["run"])])
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    small = ["train.epochs=20", "tracker=none", "train.batch_size=16", "model.hidden=16", "optimizer.lr=0.01"]
    assert said(capsys, "run", *found["run"], *small)[0] == 0
    code, _, err = said(capsys, "predict", "latest", "--probabilities")
    assert code == 0, err
    with Path("predictions.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [f"page {number}" for number in range(60)]
    right = [row["class"] == ("tv", "gov")[number % 2] for number, row in enumerate(rows)]
    assert sum(right) > 50
    assert all(abs(float(row["p_gov"]) + float(row["p_tv"]) - 1) < 1e-9 for row in rows)
    assert said(capsys, "predict", "latest", "--out", "p.parquet", f"dataset.path={tmp_path / 'own'}")[0] == 0
    assert pq.read_table("p.parquet").column("class").to_pylist() == [row["class"] for row in rows]
    assert said(capsys, "run", "dataset=pages", "--config-dir", "mine", "--dry-run")[0] == 0
    refused(capsys, tmp_path)


def test_the_command_keeps_weights_of_relations(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "edges.csv").write_text("src,dst,weight,relation,at\n0,1,1,a,5\n1,2,3,b,6\n2,0,2,a,7\n")
    code, out, err = said(capsys, "data", str(tmp_path), "--json")
    found = json.loads(out)
    assert code == 0 and "model=rgcn" in found["run"] and "dataset.weight=null" not in found["run"], err
    assert any(one.endswith("weight=weight; relation=relation; not used: at") for one in found["notes"])


def test_the_command_has_a_rule_if_weights_of_parallel_edges_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "nodes.csv").write_text("id,label\n" + "".join(f"u{one},{'ab'[one % 2]}\n" for one in range(9)))
    rows = ["u1,u2,1", "u2,u1,3", "u1,u2,1.5", "u3,u2,2", "u3,u2,2", "u3,u1,7"]
    (tmp_path / "edges.csv").write_text("src,dst,weight\n" + "\n".join(rows) + "\n")
    folder = str(tmp_path)
    code, out, err = said(capsys, "data", folder, "--json")
    found = json.loads(out)
    assert code == 0 and "dataset.merge_weights=sum" in found["run"], err
    assert (found["duplicates"], found["different_weights"], found["opposite_weights"]) == (2, 1, 0)
    assert any(
        one.startswith("1 of the merged edges stand for edges with different weights") for one in found["surprises"]
    )
    overrides = [one for one in found["run"] if one != "dataset.merge_weights=sum"]
    assert said(capsys, "run", *found["run"], "train.epochs=1", "tracker=none")[0] == 0
    code, _, err = said(capsys, "run", *overrides, "train.epochs=1", "tracker=none")
    assert code == 2 and "(u1 -> u2: 1 to 1.5)" in err
    out = said(capsys, "data", folder, "dataset.merge_weights=max", "--json")[1]
    assert "dataset.merge_weights=max" in json.loads(out)["run"] and "dataset.merge_weights=sum" not in out


def refused(capsys: Any, folder: Path) -> None:
    """Mistakes of predict, with the run of the test above."""
    for words, text in ((["--out", "p.txt"], "--out='p.txt'"), (["model=gat"], "only keys of the dataset can change")):
        code, _, err = said(capsys, "predict", "latest", *words)
        assert code == 2 and text in err
    (folder / "other").mkdir()
    folder_of_tables(folder / "other")
    (folder / "other" / "words.json").write_text(json.dumps({"page 0": [77]}))
    code, _, err = said(capsys, "predict", "latest", f"dataset.path={folder / 'other'}")
    assert code == 2 and "1 words that the model was not trained with" in err


@pytest.mark.parametrize(
    ("words", "text"), [(["data", "nowhere"], "there is no such file or folder"), (["predict", "nowhere"], "nowhere")]
)
def test_missing_places_are_named(words: list[str], text: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = said(capsys, *words)
    assert code == 2 and text in err


SECRET = "${oc.env:GNNEXP_TEST_SECRET}"


@pytest.mark.parametrize("label", ["null", "true", SECRET, "été"])
def test_names_of_data_are_texts_whatever_they_look_like(label: str, tmp_path: Path, monkeypatch, capsys) -> None:
    """A name with an interpolation reads no variable: not in the answer, in a saved choice, or in a message."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_TEST_SECRET", "the secret")
    own = tmp_path / "own"
    own.mkdir()
    columns = ["null", "true", SECRET, "été"]
    rows = [[f"v{number}", *(f"{name} {number % 2}" for name in columns)] for number in range(10)]
    (own / f"nodes{SECRET}.csv").write_text("\n".join(map(",".join, [["id", *columns], *rows])) + "\n")
    (own / f"links{SECRET}.csv").write_text("source,target\n" + "".join(f"v{one},v{one + 1}\n" for one in range(9)))
    code, out, err = said(capsys, "data", "own", "--label", label, "--json", "--save", "mine/dataset/own.yaml")
    assert code == 0, err
    found = json.loads(out)
    assert found["names"]["classes"] == [f"{label} 0", f"{label} 1"] and found["classes"] == [5, 5]
    for words in (["run", *found["run"]], ["run", "dataset=own", "--config-dir", "mine"]):
        code, out, err = said(capsys, *words, "--cfg", "--json")
        assert code == 0, err
        chosen = json.loads(out)["dataset"]
        assert (chosen["label"], chosen["nodes"], chosen["edges"]) == (
            label,
            f"nodes{SECRET}.csv",
            f"links{SECRET}.csv",
        )
    (own / f"links{SECRET}.csv").unlink()
    code, out, err = said(capsys, "run", *found["run"], "--dry-run")
    assert code == 2 and f"links{SECRET}.csv" in err and "the secret" not in out + err


def test_types_of_files_named_as_no_text_get_another_name(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "own"
    own.mkdir()
    for name, prefix in (("12", "a"), ("null", "b")):
        (own / f"{name}.csv").write_text("id,x\n" + "".join(f"{prefix}{one},{one}\n" for one in range(4)))
    (own / "sold.csv").write_text("12_id,null_id\n" + "".join(f"a{one},b{one}\n" for one in range(4)))
    code, out, err = said(capsys, "data", "own", "--json")
    assert code == 0, err
    assert json.loads(out)["names"]["types"] == ["table_12", "table_null"]
