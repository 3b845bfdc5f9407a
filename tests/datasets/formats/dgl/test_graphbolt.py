"""GraphBolt's folders, written after its documentation (ondisk-dataset-specification)."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from gnnexp.cli.main import run_command
from gnnexp.config.compose import compose
from gnnexp.config.folders import own_folders
from gnnexp.config.hints import classes_of
from gnnexp.datasets.base import Dataset
from gnnexp.datasets.formats.dgl.graphbolt import GraphBolt
from gnnexp.datasets.looking.guess import recognised
from gnnexp.errors import DataError
from gnnexp.experiment.build import build
from gnnexp.graph.graph import Graph

AS_IT_IS: dict[str, Any] = {"symmetrize": False, "self_loops": "keep", "duplicates": "keep"}
SETS = ("train_set", "validation_set", "test_set")


def load(folder: Path, **options: Any) -> Graph:
    return GraphBolt(path=str(folder), **options).load()


def saved(folder: Path, name: str, values: Any, form: str = "numpy") -> dict[str, str]:
    """An entry for `values`, and its file."""
    path = folder / f"{name}.{'npy' if form == 'numpy' else 'pt'}"
    path.parent.mkdir(parents=True, exist_ok=True)
    if form == "numpy":
        np.save(path, values)
    else:
        torch.save(torch.as_tensor(values), path)
    return {"format": form, "path": str(path.relative_to(folder))}


def written(folder: Path, content: dict[str, Any]) -> Path:
    (folder / "metadata.yaml").write_text(yaml.safe_dump(content))
    return folder


def homogeneous(folder: Path, form: str = "numpy", edges: str = "csv") -> dict[str, Any]:
    source, destination = np.array([0, 1, 2, 3, 0]), np.array([1, 2, 3, 4, 1])
    (folder / "edges").mkdir()
    if edges == "csv":
        lines = [f"{u},{v}\n" for u, v in zip(source, destination, strict=True)]
        (folder / "edges" / "bi.csv").write_text("".join(lines))
        entry = {"format": "csv", "path": "edges/bi.csv"}
    else:
        entry = saved(folder, "edges/bi", np.stack([source, destination]))
    parts = {
        name: [
            {
                "data": [
                    {"name": "seeds", **saved(folder, f"set/{name}-seeds", np.array(ids, np.int64), form)},
                    {"name": "labels", **saved(folder, f"set/{name}-labels", np.array(labels, np.int64), form)},
                ]
            }
        ]
        for name, ids, labels in zip(SETS, ([0, 3], [5], [1]), ([2, 0], [1], [1]), strict=True)
    }
    return {
        "dataset_name": "mine",
        "graph": {"nodes": [{"num": 6}], "edges": [entry]},
        "feature_data": [
            {"domain": "node", "name": "feat", **saved(folder, "data/feat", np.arange(12.0).reshape(6, 2), form)},
            {"domain": "edge", "name": "weight", **saved(folder, "data/weight", np.arange(1.0, 6), form)},
            {"domain": "node", "name": "year", "in_memory": False, **saved(folder, "data/year", np.arange(6))},
        ],
        "tasks": [{"name": "node_classification", "num_classes": 3, **parts}],
    }


def typed(folder: Path) -> dict[str, Any]:
    def one(name: str, values: Any) -> dict[str, str]:
        return saved(folder, name, np.array(values))

    def pairs(name: str, seeds: Any, **more: Any) -> list[dict[str, Any]]:
        data = [{"name": "seeds", **one(f"{name}-seeds", seeds)}]
        data += [{"name": key, **one(f"{name}-{key}", values)} for key, values in more.items()]
        return [{"type": "author:writes:paper", "data": data}]

    return {
        "graph": {
            "nodes": [{"type": "paper", "num": 3}, {"type": "author", "num": 2}],
            "edges": [
                {"type": "author:writes:paper", **one("w", [[0, 1, 1], [0, 0, 2]])},
                {"type": "paper:cites:paper", **one("c", [[0, 1], [1, 2]])},
            ],
        },
        "feature_data": [{"domain": "node", "type": "paper", "name": "feat", **one("feat", [[1.0], [2.0], [3.0]])}],
        "tasks": [
            {
                "name": "node_classification",
                "num_classes": 2,
                "train_set": [
                    {
                        "type": "paper",
                        "data": [
                            {"name": "seed_nodes", **one("s", [2, 0])},
                            {"name": "labels", **one("l", [[1], [0]])},
                        ],
                    }
                ],
            },
            {
                "name": "link_prediction",
                "train_set": pairs("train", [[0, 0], [1, 0]]),
                "validation_set": pairs("valid", [[1, 2], [0, 1]], labels=[1, 0]),
                "test_set": pairs("test", [[0, 2], [1, 1], [0, 1]], labels=[1, 0, 0]),
            },
        ],
    }


def edges_of(graph: Graph) -> list[tuple[int, ...]]:
    more = [values for values in (graph.edge_types, graph.edge_weights) if values is not None]
    return sorted(zip(*(one.tolist() for one in (graph.indices, graph.destinations(), *more)), strict=True))


@pytest.mark.parametrize(("form", "edges"), [("numpy", "csv"), ("torch", "numpy")])
def test_a_graph_of_one_type(form: str, edges: str, tmp_path: Path) -> None:
    graph = load(written(tmp_path, homogeneous(tmp_path, form, edges)), **AS_IT_IS)
    assert edges_of(graph) == sorted([(0, 1, 1.0), (1, 2, 2.0), (2, 3, 3.0), (3, 4, 4.0), (0, 1, 5.0)])
    assert graph.labels is not None and graph.labels.tolist() == [2, 1, -1, 0, -1, 1] and graph.num_classes == 3
    assert [part.tolist() for part in (graph.splits.train, graph.splits.val, graph.splits.test)] == [[0, 3], [5], [1]]
    assert isinstance(graph.features, torch.Tensor) and graph.features.flatten().tolist() == list(range(12))
    assert graph.notes == ("data of the vertices _N that are not used: year",) and not graph.links


def test_types_labels_and_links(tmp_path: Path) -> None:
    graph = load(written(tmp_path, typed(tmp_path)), **AS_IT_IS)
    assert graph.node_types is not None and graph.node_types.tolist() == [0, 0, 0, 1, 1]
    assert edges_of(graph) == sorted([(3, 0, 0), (4, 0, 0), (0, 1, 1), (1, 2, 1)])
    assert graph.labels is not None and graph.labels.tolist() == [0, -1, 1, -1, -1]
    links = {name: pairs.tolist() for name, pairs in graph.links.items()}
    assert links == {
        "train": [[3, 0, 0], [4, 0, 0]],
        "valid": [[4, 0, 2]],
        "valid_neg": [[3, 0, 1]],
        "test": [[3, 0, 2]],
        "test_neg": [[4, 0, 1], [3, 0, 1]],
    }
    assert any(
        "1 of the 1 valid and 0 of the 1 test links are edges" in note and "removed 1 edges" in note
        for note in graph.notes
    )
    everything = load(tmp_path, held_out_edges="keep", **AS_IT_IS)
    assert edges_of(everything) == sorted([(3, 0, 0), (4, 0, 0), (4, 2, 0), (0, 1, 1), (1, 2, 1)])
    chosen = load(tmp_path, task="node_classification")
    assert not chosen.links and chosen.num_classes == 2
    with pytest.raises(DataError, match="has links of its own"):
        load(tmp_path, link_split={"val": 0.2, "test": 0.2})
    with pytest.raises(DataError, match=r"tasks of .* are node_classification, link_prediction"):
        load(tmp_path, task="regression")


def test_pairs_of_older_versions_and_negatives_of_single_links(tmp_path: Path) -> None:
    content = homogeneous(tmp_path)
    sets = {
        name: [
            {
                "data": [
                    {"name": "node_pairs", **saved(tmp_path, f"{name}-p", np.array([[0, 1], [2, 4]]))},
                    {"name": "negative_dsts", **saved(tmp_path, f"{name}-n", np.array([[3], [3]]))},
                ]
            }
        ]
        for name in SETS
    }
    content["tasks"] = [{"name": "lp", **sets}]
    graph = load(written(tmp_path, content), merge_weights="sum")
    assert graph.links["valid"].tolist() == [[0, 1], [2, 4]] and set(graph.links) == {"train", "valid", "test"}
    assert any("negatives of single links are not used" in note for note in graph.notes)


def test_labels_of_several_classes_at_once(tmp_path: Path) -> None:
    content = homogeneous(tmp_path)
    for name, count in zip(SETS, (2, 1, 1), strict=True):
        entry = content["tasks"][0][name][0]["data"][1]
        entry |= saved(tmp_path, f"{name}-multi", np.eye(2, 3, dtype=np.int64)[:count])
    graph = load(written(tmp_path, content), weight=None)
    assert graph.multilabel and graph.num_classes == 3 and graph.labels is not None
    assert graph.labels[0].tolist() == [1, 0, 0] and bool(graph.labels[2].isnan().all())


def test_names_may_be_missing_and_tasks_too(tmp_path: Path) -> None:
    content = homogeneous(tmp_path)
    for name in SETS:
        for one in content["tasks"][0][name][0]["data"]:
            del one["name"]
    assert load(written(tmp_path, content), merge_weights="max").splits.train.tolist() == [0, 3]
    del content["tasks"], content["feature_data"]
    graph = load(written(tmp_path, content))
    assert graph.labels is None and graph.features is None and graph.num_edges == 8


def changed(place: str, value: Any) -> Any:
    def change(content: dict[str, Any], folder: Path) -> None:
        keys = place.split(".")
        for key in keys[:-1]:
            content = content[int(key)] if key.isdigit() else content[key]  # type: ignore[index]
        content[int(keys[-1]) if keys[-1].isdigit() else keys[-1]] = value(folder) if callable(value) else value  # type: ignore[index]

    return change


def with_file(content: bytes) -> Any:
    def make(folder: Path) -> str:
        (folder / "other").write_bytes(content)
        return "other"

    return make


def with_edges(text: str) -> Any:
    """Other edges, and no weights, whose number would not fit."""

    def change(content: dict[str, Any], folder: Path) -> None:
        (folder / "edges" / "bi.csv").write_text(text)
        del content["feature_data"]

    return change


def executing(folder: Path) -> dict[str, str]:
    class Runs:
        def __reduce__(self) -> Any:
            return (folder / "executed").mkdir, ()

    torch.save(Runs(), folder / "bad.pt")
    return {"domain": "node", "name": "feat", "format": "torch", "path": "bad.pt"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed("graph.nodes.0.num", 4), "must have 4 rows"),
        (changed("graph.nodes.0.num", 7), "must have 7 rows"),
        (changed("graph.edges.0.path", "nowhere.csv"), "nowhere.csv"),
        (changed("graph.edges.0.format", "parquet"), "edges"),
        (changed("graph.edges.0.path", with_file(b"0,1\n1,x\n")), "two columns of whole numbers"),
        (changed("graph.edges.0.path", with_file(b"src,dst\n1,2\n")), "two columns of whole numbers"),
        (changed("graph.edges.0.path", with_file(b"0,1,2\n1,2,3\n")), "two columns of whole numbers"),
        (changed("graph.edges.0.path", with_file(b"0,1\n1,\n")), "two columns of whole numbers"),
        (with_edges("0,1\n1,-2\n"), "vertices 0 to 5"),
        (with_edges("0,6\n"), "vertices 0 to 5"),
        (with_edges(""), "no edges"),
        (with_edges("0,1\n9223372036854775808,1\n"), "whole numbers"),
        (changed("feature_data.0.path", with_file(b"\x93NUMPY\x01\x00v\x00")), "other"),
        (changed("feature_data.0", executing), r"bad\.pt"),
        (changed("feature_data.0.format", "pickle"), "numpy and torch"),
        (changed("feature_data.0.type", "paper"), "types are _N"),
        (changed("tasks.0.train_set.0.data.0.path", "set/test_set-seeds.npy"), "there are|labels"),
        (changed("tasks.0.train_set.0.data.0.name", "nodes"), "needs seeds"),
        (changed("graph", {"nodes": []}), "keys"),
    ],
)
def test_mistakes_are_told(change: Any, said: str, tmp_path: Path) -> None:
    content = homogeneous(tmp_path)
    change(content, tmp_path)
    with pytest.raises(DataError, match=said):
        load(written(tmp_path, content))
    assert not (tmp_path / "executed").exists()


def test_the_prepared_form_alone_is_refused_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "preprocessed").mkdir()
    topology = {"type": "FusedCSCSamplingGraph", "path": "preprocessed/fused_csc_sampling_graph.pt"}
    (tmp_path / "preprocessed" / "metadata.yaml").write_text(yaml.safe_dump({"graph_topology": topology}))
    with pytest.raises(DataError, match="pickled object of GraphBolt"):
        load(tmp_path)


@pytest.mark.parametrize(
    "text", ["[1", "graph: &a [*a]", "a: " + "[" * 5000, "graph: !!python/object/apply:os.system [x]"]
)
def test_a_broken_yaml_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "metadata.yaml").write_text(text)
    with pytest.raises(DataError, match=r"metadata\.yaml"):
        load(tmp_path)


def test_the_printed_command_loads_the_graph(tmp_path: Path) -> None:
    written(tmp_path, typed(tmp_path))
    for place in (tmp_path, tmp_path / "metadata.yaml"):
        overrides = list(recognised(place, classes_of("dataset", own_folders())).overrides)
        assert overrides[0] == "dataset=graphbolt"
        assert build(compose(overrides).config["dataset"], Dataset).load().num_nodes == 5


@pytest.mark.slow
def test_a_run(tmp_path: Path) -> None:
    written(tmp_path, homogeneous(tmp_path))
    assert (
        run_command(
            [
                "run",
                "dataset=graphbolt",
                f"dataset.path={tmp_path}",
                "train.epochs=1",
                "tracker=none",
                "dataset.merge_weights=sum",
                "hardware.workers=1",
                f"hydra.run.dir={tmp_path / 'run'}",
            ]
        )
        == 0
    )


# --- files of somebody else -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("where", ["edges", "features", "seeds"])
@pytest.mark.parametrize("name", ["../other.npy", "/etc/passwd"])
def test_names_stay_in_the_folder(where: str, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "graph"
    folder.mkdir()
    np.save(tmp_path / "other.npy", np.zeros((6, 2), np.float32))
    content = homogeneous(folder)
    entry = {
        "edges": content["graph"]["edges"][0],
        "features": content["feature_data"][0],
        "seeds": content["tasks"][0]["train_set"][0]["data"][0],
    }[where]
    entry["path"] = name
    with pytest.raises(DataError, match=r"metadata\.yaml.*must be a place in"):
        load(written(folder, content))


def test_a_link_in_the_folder_is_followed(tmp_path: Path) -> None:
    folder = tmp_path / "graph"
    folder.mkdir()
    content = homogeneous(folder)
    (folder / "data" / "feat.npy").rename(tmp_path / "elsewhere.npy")
    (folder / "data" / "feat.npy").symlink_to(tmp_path / "elsewhere.npy")
    assert load(written(folder, content), weight=None).num_features == 2


def test_metadata_beyond_the_limits_of_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, homogeneous(tmp_path))
    text = (tmp_path / "metadata.yaml").read_text()
    (tmp_path / "metadata.yaml").write_text(f"a: &a [x, x, x]\nb: [{', '.join(['*a'] * 30)}]\n{text}")
    assert load(tmp_path, weight=None).num_nodes == 6
    monkeypatch.setattr("gnnexp.files.foreign_yaml.MAX_NODES", 120)
    for look in (load, GraphBolt.recognised):
        with pytest.raises(DataError, match=r"metadata\.yaml.*more than 120 nodes"):
            look(tmp_path)
    (tmp_path / "metadata.yaml").write_text(f"{text}# {'a' * (1 << 20)}\n")
    for look in (load, GraphBolt.recognised):
        with pytest.raises(DataError, match=r"metadata\.yaml.*more than 1048576 bytes"):
            look(tmp_path)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: torch.save(torch.zeros(1).expand(6, 1 << 45), path), "needs .* GiB"),
        (lambda path: torch.save(torch.empty(6, 2, device="meta"), path), "meta"),
        (lambda path: torch.save(torch.zeros(6, 2, dtype=torch.complex64), path), "torch.ComplexFloatStorage"),
        (lambda path: torch.save([bytearray(3)], path), "bytearray"),
        (lambda path: torch.save(torch.zeros(6, 2).to_sparse(), path), "must be one dense tensor"),
        (lambda path: path.write_bytes(b"PK\3\4"), "zip"),
    ],
)
def test_torch_files_are_read_without_torchs_loader(make: Any, said: str, tmp_path: Path) -> None:
    content = homogeneous(tmp_path, "torch", "numpy")
    make(tmp_path / "data" / "feat.pt")
    with pytest.raises(DataError, match=said) as caught:
        load(written(tmp_path, content))
    assert "feat.pt" in str(caught.value)


def test_a_packed_torch_file_is_refused(tmp_path: Path) -> None:
    content, path = homogeneous(tmp_path, "torch", "numpy"), tmp_path / "data" / "feat.pt"
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(DataError, match=r"feat\.pt.*is packed"):
        load(written(tmp_path, content))


@pytest.mark.filterwarnings("error")
def test_features_on_the_disk_give_no_warning(tmp_path: Path) -> None:
    content = homogeneous(tmp_path)
    np.save(tmp_path / "data" / "feat.npy", np.zeros((6, 2), np.float32))  # single precision is not converted
    assert load(written(tmp_path, content), weight=None).num_features == 2


@pytest.mark.parametrize("count", [float("inf"), float("nan"), -1, "many", None])
def test_a_wrong_number_of_vertices_is_an_error(count: Any, tmp_path: Path) -> None:
    content = homogeneous(tmp_path)
    content["graph"]["nodes"][0]["num"] = count
    with pytest.raises(DataError, match=r"metadata\.yaml.*must have GraphBolt's keys"):
        load(written(tmp_path, content))
