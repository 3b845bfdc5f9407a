"""Tables of GraphStorm's gconstruct, written after its documentation."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from gnn_gconstruct.graphstorm import GraphStorm
from hostile_places import KINDS, hostile
from installing import installing

from gnnexp.cli.main import run_command
from gnnexp.components.packages import is_installed
from gnnexp.config.compose import compose
from gnnexp.config.plugins import GROUP
from gnnexp.datasets.base import Dataset
from gnnexp.errors import DataError
from gnnexp.experiment.build import build
from gnnexp.graph.graph import Graph

PACKAGE = Path(__file__).parents[1]


def load(folder: Path, **options: Any) -> Graph:
    return GraphStorm(path=str(folder), **options).load()


def made(folder: Path, **options: Any) -> tuple[Graph, Path]:
    target = folder / "made" / "graph"
    return GraphStorm(path=str(folder), **options).generate(target), target


def ids_of(folder: Path, kind: str) -> list[Any]:
    ids: list[Any] = pq.read_table(folder / f"ids_{kind}.parquet").column("id").to_pylist()
    return ids


def example(folder: Path) -> dict[str, Any]:
    """Papers in two Parquet files, authors in CSV, and two types of edges; what their JSON file says."""
    (folder / "papers_0.parquet").parent.mkdir(exist_ok=True)
    for number, ids in enumerate((["p1", "p2"], ["p0"])):
        pq.write_table(
            pa.table(
                {
                    "nid": ids,
                    "emb": [[float(number), 1.0]] * len(ids),
                    "venue": [["kdd", "icml"], ["kdd"]][number],
                    "class": [[4, 7], [4]][number],
                    "score": [0.5] * len(ids),
                }
            ),
            folder / f"papers_{number}.parquet",
        )
    (folder / "authors.csv").write_text("aid|age|town\na9|30|x\na8|50|y\n")
    (folder / "writes.json").write_text('{"a": "a9", "p": "p0"}\n{"a": "a8", "p": "p2"}\n')
    pq.write_table(
        pa.table({"s": ["p0", "p1"], "d": ["p1", "p2"], "weight": [0.5, 2.0], "t": [1, 2]}), folder / "cites.parquet"
    )
    return description(folder)


def description(folder: Path) -> dict[str, Any]:
    return {
        "version": "gconstruct-v0.1",
        "nodes": [
            {
                "node_type": "paper",
                "format": {"name": "parquet"},
                "files": "papers_*.parquet",
                "node_id_col": "nid",
                "features": [
                    {"feature_col": "emb", "transform": {"name": "no-op", "truncate_dim": 2}},
                    {"feature_col": "venue", "transform": {"name": "to_categorical"}},
                ],
                "labels": [{"label_col": "class", "task_type": "classification", "split_pct": [0.5, 0.25, 0.25]}],
            },
            {
                "node_type": "author",
                "format": {"name": "csv", "separator": "|"},
                "files": ["authors.csv"],
                "node_id_col": "aid",
                "features": [{"feature_col": ["age"], "feature_name": "a", "transform": {"name": "max_min_norm"}}],
            },
        ],
        "edges": [
            {
                "relation": ["author", "writes", "paper"],
                "format": {"name": "json"},
                "files": "writes.json",
                "source_id_col": "a",
                "dest_id_col": "p",
            },
            {
                "relation": ["paper", "cites", "paper"],
                "format": {"name": "parquet"},
                "files": str(folder / "cites.parquet"),
                "source_id_col": "s",
                "dest_id_col": "d",
                "features": [{"feature_col": "weight"}, {"feature_col": "t"}],
                "labels": [{"task_type": "link_prediction", "split_pct": [0.8, 0.1, 0.1]}],
            },
        ],
    }


def written(folder: Path, content: dict[str, Any]) -> Path:
    (folder / "conf.json").write_text(json.dumps(content))
    return folder


def test_tables_of_all_formats_are_one_graph(tmp_path: Path) -> None:
    graph, folder = made(written(tmp_path, example(tmp_path)), symmetrize=False)
    papers, authors = ids_of(folder, "paper"), ids_of(folder, "author")
    names = [*papers, *authors]
    assert sorted(papers) == ["p0", "p1", "p2"] and sorted(authors) == ["a8", "a9"]
    assert graph.edge_types is not None and graph.edge_weights is not None
    edges = {
        (names[u], names[v], kind, weight)
        for u, v, kind, weight in zip(
            graph.indices.tolist(),
            graph.destinations().tolist(),
            graph.edge_types.tolist(),
            graph.edge_weights.tolist(),
            strict=True,
        )
    }
    assert edges == {("a9", "p0", 0, 1.0), ("a8", "p2", 0, 1.0), ("p0", "p1", 1, 0.5), ("p1", "p2", 1, 2.0)}
    assert graph.labels is not None
    labels = {name: int(label) for name, label in zip(names, graph.labels, strict=True)}
    assert labels == {"p0": 0, "p1": 0, "p2": 1, "a8": -1, "a9": -1} and graph.num_classes == 2
    features = graph.features if isinstance(graph.features, torch.Tensor) else graph.features.to_dense()  # type: ignore[union-attr]
    rows = {name: row[2:].tolist() for name, row in zip(names, features, strict=True)}
    assert rows["p2"] == [0, 1, 1, 0, 0] and rows["p0"] == [1, 1, 0, 1, 0]
    assert rows["a9"] == [0, 0, 0, 0, 0] and rows["a8"] == [0, 0, 0, 0, 1]
    found = json.loads((folder / "names.json").read_text())
    assert found["types"] == ["paper", "author"] and found["classes"] == ["4", "7"]
    assert found["relations"] == ["writes", "cites"]
    assert graph.notes[:2] == (
        "paper:cites:paper: the task link_prediction, shares [0.8, 0.1, 0.1] of the file is not used; "
        "dataset.link_split holds out links",
        "features of the edges paper:cites:paper that are not used: t",
    )


def split_of(graph: Graph, folder: Path) -> dict[str, set[str]]:
    papers = ids_of(folder, "paper")
    return {name: {papers[one] for one in getattr(graph.splits, name).tolist()} for name in ("train", "val", "test")}


@pytest.mark.parametrize("parquet", [True, False])
def test_splits_by_files_of_ids(parquet: bool, tmp_path: Path) -> None:
    content = example(tmp_path)
    given: dict[str, Any] = {"column": ["ids"]} if parquet else {}
    for name, ids in (("train", ["p1"]), ("valid", ["p0"]), ("test", [])):
        file = tmp_path / f"{name}.{'parquet' if parquet else 'json'}"
        if parquet:
            pq.write_table(pa.table({"ids": pa.array(ids, pa.string())}), file)
        else:
            file.write_text("".join(json.dumps(one) + "\n" for one in ids))
        given[name] = [str(file)]
    content["nodes"][0]["labels"][0]["custom_split_filenames"] = given
    graph, folder = made(written(tmp_path, content))
    assert split_of(graph, folder) == {"train": {"p1"}, "val": {"p0"}, "test": set()}
    assert sum(map(len, split_of(*made(tmp_path, split="random", train=0.4, val=0.3)).values())) == 3
    (tmp_path / "train.json").write_text('"p9"\n')
    content["nodes"][0]["labels"][0]["custom_split_filenames"]["train"] = "train.json"
    with pytest.raises(DataError, match=r"p9.*are no vertices"):
        load(written(tmp_path, content))


def test_classes_and_categories_of_two_files_are_the_same_values(tmp_path: Path) -> None:
    """pandas writes one of the files with `.0`, after an empty cell."""
    (tmp_path / "n0.csv").write_text("id,f,y\n0,7,4\n1,8,10\n")
    (tmp_path / "n1.csv").write_text("id,f,y\n2,7.0,10\n")
    (tmp_path / "e.csv").write_text("src,dst\n0,2\n1,2\n")
    content = {
        "nodes": [
            {
                "node_type": "n",
                "format": {"name": "csv"},
                "files": ["n0.csv", "n1.csv"],
                "node_id_col": "id",
                "labels": [{"label_col": "y", "task_type": "classification"}],
                "features": [{"feature_col": "f", "transform": {"name": "to_categorical"}}],
            }
        ],
        "edges": [
            {
                "relation": ["n", "r", "n"],
                "format": {"name": "csv"},
                "files": "e.csv",
                "source_id_col": "src",
                "dest_id_col": "dst",
            }
        ],
    }
    graph, folder = made(written(tmp_path, content))
    found = json.loads((folder / "names.json").read_text())
    assert found["columns"]["n"][0]["values"] == ["7", "8"] and found["classes"] == ["4", "10"]
    assert "1 categories of the column f count as integers: 1 of 2 files write all of theirs with .0" in graph.notes


def test_integer_ids_and_rows_as_ids(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("f,y\n1,0\n2,1\n3,0\n")
    (tmp_path / "e.csv").write_text("src,dst\n0,2\n1,2\n")
    content = {
        "nodes": [
            {
                "node_type": "n",
                "format": {"name": "csv"},
                "files": "n.csv",
                "features": [{"feature_col": "f"}],
                "labels": [{"label_col": "y", "task_type": "classification"}],
            }
        ],
        "edges": [
            {
                "relation": ["n", "to", "n"],
                "format": {"name": "csv"},
                "files": "e.csv",
                "source_id_col": "src",
                "dest_id_col": "dst",
            }
        ],
    }
    graph, folder = made(written(tmp_path, content), symmetrize=False)
    assert ids_of(folder, "n") == [0, 1, 2] and graph.indices.tolist() == [0, 1]
    assert graph.destinations().tolist() == [2, 2] and graph.edge_types is None and graph.node_types is None
    assert isinstance(graph.features, torch.Tensor) and graph.features.flatten().tolist() == [1, 2, 3]


def test_the_order_of_rows_is_kept_with_many_rows(tmp_path: Path) -> None:
    count = 30_000
    draw = np.random.default_rng(0)
    ids = draw.permutation(count)
    pq.write_table(pa.table({"i": ids, "f": ids.astype(np.float32), "y": ids % 3}), tmp_path / "n.parquet")
    pq.write_table(pa.table({"a": ids, "b": np.roll(ids, 1)}), tmp_path / "e.parquet")
    (tmp_path / "t.json").write_text("".join(f"{one}\n" for one in range(0, count, 2)))
    content = {
        "nodes": [
            {
                "node_type": "n",
                "files": "n.parquet",
                "node_id_col": "i",
                "features": [{"feature_col": "f"}],
                "labels": [
                    {"label_col": "y", "task_type": "classification", "custom_split_filenames": {"train": "t.json"}}
                ],
            }
        ],
        "edges": [{"relation": ["n", "to", "n"], "files": "e.parquet", "source_id_col": "a", "dest_id_col": "b"}],
    }
    graph, folder = made(written(tmp_path, content), symmetrize=False)
    found = np.array(ids_of(folder, "n"))
    assert isinstance(graph.features, torch.Tensor) and graph.labels is not None
    assert np.array_equal(graph.features[:, 0].numpy(), found) and np.array_equal(graph.labels.numpy(), found % 3)
    assert set(found[graph.splits.train.numpy()].tolist()) == set(range(0, count, 2))


def changed(place: str, value: Any) -> Any:
    def change(content: Any, folder: Path) -> None:
        keys = [int(key) if key.isdigit() else key for key in place.split(".")]
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    return change


TITLE = [{"feature_col": "venue", "transform": {"name": "tokenize_hf", "max_seq_length": 16}}]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed("nodes.0.files", "none_*.parquet"), "no such file"),
        (changed("nodes.0.node_id_col", "x"), "nid, emb"),
        (changed("nodes.0.features", TITLE), "tokenize_hf.*no-op and max_min_norm"),
        (changed("nodes.0.features", [{"feature_col": "venue"}]), "no-op of VARCHAR"),
        (changed("nodes.0.labels.0.label_col", "x"), "x='missing'"),
        (changed("edges.0.dest_id_col", "x"), "x='missing'"),
        (changed("nodes.0.labels.0.split_pct", [2, 0, 0]), "split_pct"),
        (changed("edges.0.relation", ["a"]), "relation"),
        (changed("nodes.1.node_type", "paper"), "more than once"),
        (changed("nodes.0.format", {"name": "orc"}), "format orc"),
        (changed("edges.1.relation", ["paper", "cites", "author"]), r"cites\.parquet.*row"),
        (changed("nodes.1.format", {"name": "csv"}), "aid"),
        (changed("nodes.0.features", [{"transform": {}}]), "feature_col"),
    ],
)
def test_mistakes_name_the_users_tables(change: Any, said: str, tmp_path: Path) -> None:
    content = example(tmp_path)
    change(content, tmp_path)
    with pytest.raises(DataError, match=said) as caught:
        load(written(tmp_path, content))
    assert "vertices_" not in str(caught.value) and "edges_" not in str(caught.value)


def test_unknown_transforms_may_be_left_out(tmp_path: Path) -> None:
    content = example(tmp_path)
    content["nodes"][0]["features"] += TITLE
    graph = load(written(tmp_path, content), transforms="skip")
    assert "paper: the feature venue (transform tokenize_hf) is not used" in graph.notes and graph.num_features == 7


def test_one_of_several_labels_is_chosen(tmp_path: Path) -> None:
    content = example(tmp_path)
    content["nodes"][1]["labels"] = [{"label_col": "town", "task_type": "classification"}]
    with pytest.raises(DataError, match="class of paper, town of author"):
        load(written(tmp_path, content))
    assert load(tmp_path, label="town").num_classes == 2
    assert load(tmp_path, target="paper").num_classes == 2


def test_edges_to_unknown_vertices_are_dropped_if_asked(tmp_path: Path) -> None:
    content = example(tmp_path)
    (tmp_path / "writes.json").write_text('{"a": "a9", "p": "p0"}\n{"a": "a7", "p": "p2"}\n')
    with pytest.raises(DataError, match=r"writes\.json.*a7"):
        load(written(tmp_path, content))
    assert load(tmp_path, on_unknown="drop", symmetrize=False).num_edges == 3


def test_max_min_norm_with_bounds(tmp_path: Path) -> None:
    content = example(tmp_path)
    (tmp_path / "authors.csv").write_text("aid|age\na9|30\na8|50\na7|100\n")
    content["nodes"][1]["features"][0]["transform"] |= {"max_bound": 70, "min_bound": 40}
    graph, folder = made(written(tmp_path, content))
    features = graph.features if isinstance(graph.features, torch.Tensor) else graph.features.to_dense()  # type: ignore[union-attr]
    ages = dict(zip(ids_of(folder, "author"), features[3:, -1].tolist(), strict=True))
    assert ages == pytest.approx({"a9": 0, "a8": 1 / 3, "a7": 1})
    content["nodes"][1]["features"][0]["transform"] |= {"max_val": [130], "min_val": [30]}  # as GraphStorm keeps them
    graph, folder = made(written(tmp_path, content))
    features = graph.features if isinstance(graph.features, torch.Tensor) else graph.features.to_dense()  # type: ignore[union-attr]
    ages = dict(zip(ids_of(folder, "author"), features[3:, -1].tolist(), strict=True))
    assert ages == pytest.approx({"a9": 0, "a8": 0.2, "a7": 0.7})


def test_hdf5_needs_h5py(tmp_path: Path) -> None:
    content = example(tmp_path)
    (tmp_path / "n.h5").write_bytes(b"no HDF5")
    content["nodes"][1] |= {"format": {"name": "HDF5"}, "files": "n.h5"}
    said = "must be HDF5" if is_installed("h5py") else "pip install h5py"
    with pytest.raises(DataError, match=said):
        load(written(tmp_path, content))


def test_hdf5_is_read(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    content = example(tmp_path)
    with h5py.File(tmp_path / "n.h5", "w") as file:
        file["aid"], file["age"], file["v"] = [b"a9", b"a8"], np.array([30, 50]), np.ones((2, 3))
    content["nodes"][1] |= {"format": {"name": "HDF5"}, "files": "n.h5", "features": [{"feature_col": ["age", "v"]}]}
    assert load(written(tmp_path, content)).num_features == 2 + 4 + 4


@pytest.mark.parametrize("text", ["{", "[" * 5000, '{"nodes": [], "edges": []}', '{"nodes": 1, "edges": [1]}'])
def test_a_broken_file_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "conf.json").write_text(text)
    with pytest.raises(DataError, match="gconstruct"):
        load(tmp_path)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "closed"])  # root may read what is closed
def test_a_hostile_path_is_an_error_that_names_it(kind: str, tmp_path: Path) -> None:
    place = hostile(tmp_path / "it.json", kind)
    with pytest.raises(DataError, match="fix: ") as caught:
        load(place)
    assert str(place) in str(caught.value)


def test_the_installed_package_has_the_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installing(tmp_path, monkeypatch, GROUP)("gnn-gconstruct", gconstruct="gnn_gconstruct")
    folder = tmp_path / "data"
    folder.mkdir()
    written(folder, example(folder))
    for place in (folder, folder / "conf.json"):
        config = compose(["dataset=graphstorm", f"dataset.path={place}"]).config["dataset"]
        assert build(config, Dataset).load().num_nodes == 5
        assert run_command(["data", str(place)]) == 2
        assert f"fix: gnnexp run dataset=graphstorm dataset.path={place}" in capsys.readouterr().err
    assert run_command(["list", "datasets", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["choices"]
    assert {line["name"]: line["package"] for line in listed}["graphstorm"] == "gnn-gconstruct 1.0"


@pytest.mark.slow
def test_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, example(tmp_path))
    monkeypatch.chdir(PACKAGE)
    assert (
        run_command(
            [
                "run",
                "--config-dir",
                "gnn_gconstruct/conf",
                "dataset=graphstorm",
                f"dataset.path={tmp_path}",
                "model=rgcn",
                "train.epochs=1",
                "dataset.weight=null",
                "tracker=none",
                "hardware.workers=1",
                f"hydra.run.dir={tmp_path / 'run'}",
            ]
        )
        == 0
    )
