import gzip
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnexp.datasets.base import ROOT_VARIABLE
from gnnexp.datasets.published.ogb import Ogb
from gnnexp.errors import ConfigError, DataError

Find = Callable[[str], Path]


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.write(text)


@pytest.fixture
def arxiv(tmp_path: Path) -> Path:
    """A tiny ogbn-* folder of 5 vertices."""
    folder = tmp_path / "ogbn_tiny"
    put(folder / "raw/edge.csv.gz", "0,1\n1,2\n3,4\n2,2\n")
    put(folder / "raw/num-node-list.csv.gz", "5\n")
    put(folder / "raw/num-edge-list.csv.gz", "4\n")
    put(folder / "raw/node-feat.csv.gz", "".join(f"{i}.5,{-i}\n" for i in range(5)))
    put(folder / "raw/node-label.csv.gz", "2\n0\nnan\n1\n0\n")
    for name, ids in (("train", "3\n0\n"), ("valid", "1\n"), ("test", "4\n")):
        put(folder / f"split/time/{name}.csv.gz", ids)
    return folder


def test_ddi_links_and_training_graph(real: Find) -> None:
    folder = real("ogbl-ddi")
    graph = Ogb(name="ogbl-ddi", path=str(folder)).load()
    assert (graph.num_nodes, graph.num_edges) == (4267, 2 * 1_067_911)
    assert int(graph.in_degree.max()) == 2234
    assert float(graph.in_degree.float().mean()) == pytest.approx(500.5, abs=0.05)
    assert graph.features is None
    assert graph.labels is None
    sizes = {name: tuple(pairs.shape) for name, pairs in graph.links.items()}
    assert sizes == {
        "train": (1_067_911, 2),
        "valid": (133_489, 2),
        "valid_neg": (101_882, 2),
        "test": (133_489, 2),
        "test_neg": (95_599, 2),
    }
    positives = torch.cat([graph.links[name].sort(dim=1).values for name in ("train", "valid", "test")])
    assert (positives[:, 0] * 4267 + positives[:, 1]).unique().numel() == 1_334_889
    assert graph.splits.train.numel() == 0


def test_ddi_is_found_under_the_root(real: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, str(real("ogbl-ddi").parent))
    names = [path.name for path in Ogb(name="ogbl-ddi").sources()]
    assert names == ["edge.csv.gz", "num-edge-list.csv.gz", "num-node-list.csv.gz", "test.pt", "valid.pt"]


def test_damaged_and_executing_pt_files(copied: Find, bomb: tuple[bytes, Path]) -> None:
    folder = copied("ogbl-ddi")
    path = folder / "split/target/valid.pt"
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], bomb[0] * 5, pickle.dumps(1) * 5, b""):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"valid\.pt"):
            Ogb(name="ogbl-ddi", path=str(folder)).load()
    assert not bomb[1].exists()


def test_pairs_out_of_range_and_newer_torch_files(copied: Find) -> None:
    folder = copied("ogbl-ddi")
    path = folder / "split/target/valid.pt"
    torch.save({"edge": np.array([[0, 1]]), "edge_neg": np.array([[2, 3]])}, path, pickle_protocol=2)
    with zipfile.ZipFile(path) as archive:
        assert any(name.endswith("data.pkl") for name in archive.namelist())
    assert Ogb(name="ogbl-ddi", path=str(folder)).load().links["valid_neg"].tolist() == [[2, 3]]
    torch.save({"edge": np.array([[0, 4267]]), "edge_neg": np.array([[2, 3]])}, path, pickle_protocol=2)
    with pytest.raises(DataError, match="below 4267"):
        Ogb(name="ogbl-ddi", path=str(folder)).load()
    torch.save({"source_node": np.array([0])}, path, pickle_protocol=2)
    with pytest.raises(DataError, match="edge_neg"):
        Ogb(name="ogbl-ddi", path=str(folder)).load()


def test_node_property_folder(arxiv: Path) -> None:
    graph = Ogb(name="ogbn-tiny", path=str(arxiv)).load()
    assert isinstance(graph.features, torch.Tensor)
    assert graph.labels is not None
    assert graph.num_edges == 6
    assert graph.features[3].tolist() == [3.5, -3]
    assert graph.labels.tolist() == [2, 0, -1, 1, 0]
    assert graph.num_classes == 3
    assert [ids.tolist() for ids in (graph.splits.train, graph.splits.val, graph.splits.test)] == [[0, 3], [1], [4]]


def test_links_may_be_held_out(arxiv: Path) -> None:
    """Each edge is a link with its reverse. Splits and features of vertices stay."""
    whole, graph = (
        Ogb(name="ogbn-arxiv", path=str(arxiv), link_split=shares).load()
        for shares in (None, {"val": 0.25, "test": 0.25})
    )
    assert [graph.links[name].shape[0] for name in ("train", "valid", "test")] == [1, 1, 1]
    assert (whole.num_edges, graph.num_edges) == (6, 2) and not whole.links
    held = torch.cat((graph.links["valid"], graph.links["test"])).tolist()
    left = set(zip(graph.indices.tolist(), graph.destinations().tolist(), strict=True))
    assert not left & {ends for u, v in held for ends in ((u, v), (v, u))}
    assert torch.equal(graph.splits.train, whole.splits.train)


def test_edge_features_and_multilabel(arxiv: Path) -> None:
    put(arxiv / "raw/edge-feat.csv.gz", "1,2\n3,4\n5,6\n7,8\n")
    put(arxiv / "raw/node-label.csv.gz", "1,0\n0,1\n1,1\n0,0\n1,0\n")
    graph = Ogb(name="ogbn-tiny", path=str(arxiv), edge_features=True).load()
    assert graph.edge_features is not None
    assert graph.multilabel
    by_edge = {
        (u, v): row
        for u, v, row in zip(
            graph.indices.tolist(), graph.destinations().tolist(), graph.edge_features.tolist(), strict=True
        )
    }
    assert by_edge[0, 1] == by_edge[1, 0] == [1, 2]
    assert by_edge[3, 4] == by_edge[4, 3] == [5, 6]


def test_features_of_parallel_edges_follow_the_rule(arxiv: Path) -> None:
    """The first row gave them: (0, 1) twice; (1, 0) keeps its own."""
    put(arxiv / "raw/edge.csv.gz", "0,1\n1,2\n0,1\n1,0\n")
    put(arxiv / "raw/edge-feat.csv.gz", "1,8\n3,4\n5,6\n9,9\n")
    with pytest.raises(DataError, match=r"1 edge is there more than once with different weights \(0 -> 1: 1 to 5\)"):
        Ogb(name="ogbn-tiny", path=str(arxiv), edge_features=True).load()
    for rule, right in (("sum", [6, 14]), ("mean", [3, 7]), ("max", [5, 8]), ("min", [1, 6])):
        graph = Ogb(name="ogbn-tiny", path=str(arxiv), edge_features=True, merge_weights=rule).load()
        assert graph.edge_features is not None
        rows = dict(
            zip(
                zip(graph.indices.tolist(), graph.destinations().tolist(), strict=True),
                graph.edge_features.tolist(),
                strict=True,
            )
        )
        assert rows == {(0, 1): right, (1, 0): [9, 9], (1, 2): [3, 4], (2, 1): [3, 4]}


def test_binary_layout_of_papers100m(arxiv: Path) -> None:
    text = Ogb(name="ogbn-tiny", path=str(arxiv)).load()
    for name in ("edge", "node-feat", "node-label", "num-node-list"):
        (arxiv / f"raw/{name}.csv.gz").unlink()
    edges = np.array([[0, 1, 3, 2], [1, 2, 4, 2]])
    features = text.features.numpy().astype(np.float16)  # type: ignore[union-attr]
    np.savez_compressed(arxiv / "raw/data.npz", edge_index=edges, node_feat=features, num_nodes_list=np.array([5]))
    labels = np.array([2, 0, np.nan, 1, 0])[:, None]
    np.savez_compressed(arxiv / "raw/node-label.npz", node_label=labels)
    binary = Ogb(name="ogbn-tiny", path=str(arxiv)).load()
    for name in ("indptr", "indices", "features", "labels"):
        assert torch.equal(getattr(binary, name), getattr(text, name))


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        ("raw/edge.csv.gz", "0,1\n0,5\n", "line 2"),
        ("raw/edge.csv.gz", "0,1,2\n", "two columns"),
        ("raw/num-node-list.csv.gz", "5\n5\n", "one number"),
        ("raw/node-feat.csv.gz", "1,2\n", "must have 5"),
        ("raw/node-feat.csv.gz", "1,2\n" * 4 + "nan,2\n", "finite"),
        ("raw/node-label.csv.gz", "0.5\n" * 5, "whole"),
        ("split/time/train.csv.gz", "7\n", "train"),
        ("split/time/train.csv.gz", "2\n", "must all have a label"),
    ],
)
def test_wrong_contents(file: str, text: str, named: str, arxiv: Path) -> None:
    put(arxiv / file, text)
    with pytest.raises(DataError, match=named):
        Ogb(name="ogbn-tiny", path=str(arxiv)).load()


def test_missing_files_and_schemes(arxiv: Path) -> None:
    with pytest.raises(DataError, match="random"):
        Ogb(name="ogbn-tiny", path=str(arxiv), scheme="random").load()
    for name in ("train", "valid"):
        (arxiv / f"split/time/{name}.csv.gz").unlink()
    with pytest.raises(DataError) as error:
        Ogb(name="ogbn-tiny", path=str(arxiv)).load()
    assert len(error.value.problems) == 2
    (arxiv / "raw/edge.csv.gz").unlink()
    with pytest.raises(DataError, match=r"edge\.csv\.gz"):
        Ogb(name="ogbn-tiny", path=str(arxiv)).load()


def test_nothing_is_downloaded_unless_asked(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=ROOT_VARIABLE):
        Ogb(name="ogbn-arxiv", path=str(tmp_path / "ogbn_arxiv")).load()
    with pytest.raises(ConfigError, match="pip install ogb"):
        Ogb(name="ogbn-arxiv", path=str(tmp_path / "ogbn_arxiv"), download=True).load()
    with pytest.raises(ConfigError, match="ogbn_arxiv"):
        Ogb(name="ogbn-arxiv", path=str(tmp_path / "elsewhere"), download=True).load()
    with pytest.raises(ConfigError, match="ogbn-"):
        Ogb(name="arxiv")


def test_what_is_wrong_in_several_files_is_said_at_once(arxiv: Path) -> None:
    put(arxiv / "raw" / "edge.csv.gz", "0,1\n1,999\n")
    put(arxiv / "raw" / "node-feat.csv.gz", "x\n")
    for part in ("train", "test"):
        next((arxiv / "split").rglob(f"{part}.csv.gz")).unlink()
    with pytest.raises(DataError) as caught:
        Ogb(path=str(arxiv)).load()
    found = {Path(problem.key.partition(",")[0]).name for problem in caught.value.problems}
    assert found == {"edge.csv.gz", "node-feat.csv.gz", "train.csv.gz", "test.csv.gz"}


def test_the_folder_gives_the_name_and_is_recognised(arxiv: Path, real: Find) -> None:
    assert Ogb(path=str(arxiv)).name == "ogbn-tiny" and Ogb.recognised(arxiv) == ["dataset.name=ogbn-tiny"]
    moved = arxiv.rename(arxiv.with_name("my_export"))
    graph = Ogb(path=str(moved)).load()
    assert graph.name == "ogbn-my-export" and "bytes not known" in graph.notes[-1]
    assert Ogb(name="ogbn-arxiv-2", path=str(moved)).load().name == "ogbn-arxiv-2"
    assert Ogb.recognised(moved.parent) is None and Ogb.recognised(moved / "raw" / "edge.csv.gz") is None
    dataset = Ogb(path=str(real("ogbl-ddi")))
    origin = dataset.origin()
    assert dataset.name == "ogbl-ddi" and origin is not None and origin.dataset == "ogbl-ddi"


def test_a_packed_folder_is_to_be_unpacked(arxiv: Path) -> None:
    path = shutil.make_archive(str(arxiv.parent / "tiny"), "zip", arxiv.parent, arxiv.name)
    with pytest.raises(DataError, match="unzip"):
        Ogb.recognised(Path(path))
    (arxiv.parent / "text.zip").write_text("no archive")
    assert Ogb.recognised(arxiv.parent / "text.zip") is None


def test_what_is_there_is_listed(tmp_path: Path) -> None:
    (tmp_path / "processed").mkdir()
    with pytest.raises(DataError, match="has processed"):
        Ogb(path=str(tmp_path)).load()
