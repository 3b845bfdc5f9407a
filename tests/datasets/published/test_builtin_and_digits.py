"""Datasets that come with installed libraries, and graphs in our own format."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import gnnexp
from gnnexp.datasets.gnnexp_format import GnnexpFormat
from gnnexp.datasets.published.dgl_builtin import DglBuiltin
from gnnexp.datasets.published.digits import Digits, nearest_neighbors
from gnnexp.errors import ConfigError, DataError
from gnnexp.graph.storage.format import save_graph


def test_digits_is_a_symmetric_knn_graph() -> None:
    graph = Digits().load()
    assert isinstance(graph.features, torch.Tensor)
    assert graph.labels is not None
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (1797, 64, 10)
    assert int(graph.in_degree.min()) >= 10
    forward = set(zip(graph.indices.tolist(), graph.destinations().tolist(), strict=True))
    assert forward == {(v, u) for u, v in forward}
    assert not any(u == v for u, v in forward)
    assert len(forward) == graph.num_edges
    assert graph.labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert [ids.numel() for ids in (graph.splits.train, graph.splits.val, graph.splits.test)] == [1078, 359, 360]
    assert (float(graph.features.min()), float(graph.features.max())) == (0, 1)


def test_digits_are_those_of_scikit_learn() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    images, labels = datasets.load_digits(return_X_y=True)
    graph = Digits().load()
    assert isinstance(graph.features, torch.Tensor)
    assert graph.labels is not None
    assert np.array_equal(graph.features.numpy() * 16, images.astype(np.float32))
    assert np.array_equal(graph.labels.numpy(), labels)


def test_digits_is_deterministic_and_its_key_follows_options() -> None:
    first, second = Digits().load(), Digits().load()
    assert torch.equal(first.indices, second.indices)
    assert torch.equal(first.splits.train, second.splits.train)
    other = Digits(seed=1).load()
    assert torch.equal(first.indices, other.indices)
    assert not torch.equal(first.splits.train, other.splits.train)
    keys = {Digits().key(), Digits(seed=1).key(), Digits(neighbors=5).key(), Digits().key()}
    assert len(keys) == 3
    assert all(len(key) == 64 for key in keys)
    with pytest.raises(ConfigError, match="neighbors"):
        Digits(neighbors=0)


def test_equal_distances_go_to_the_lower_number() -> None:
    points = np.array([[0.0], [1.0], [-1.0], [1.0], [9.0]])
    assert nearest_neighbors(points, 2)[0].tolist() == [1, 2]
    assert nearest_neighbors(points, 1)[:, 0].tolist() == [1, 3, 0, 1, 1]


def test_dgl_dataset_that_needs_no_network() -> None:
    pytest.importorskip("dgl")
    dataset = DglBuiltin(name="KarateClub")
    graph = dataset.load()
    assert graph.labels is not None
    assert (graph.num_nodes, graph.num_edges) == (34, 156)
    assert graph.labels.bincount().tolist() == [17, 17]
    assert [ids.numel() for ids in (graph.splits.train, graph.splits.val, graph.splits.test)] == [20, 7, 7]
    assert dataset.key() != DglBuiltin(name="KarateClub", seed=3).key()


def test_dgl_reads_its_own_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its class does: gnnexp calls it, and restricts nothing."""
    data = pytest.importorskip("dgl.data")
    called: list[object] = []

    def reads(**options: object) -> object:
        called.append(options)
        return data.KarateClubDataset()

    monkeypatch.setattr(data, "RedditDataset", reads)
    assert DglBuiltin(name="Reddit", path="there").load().num_nodes == 34
    assert called == [{"raw_dir": "there"}]


def test_nothing_else_of_the_package_downloads() -> None:
    """No other module fetches from a network, or calls a class that does; MLflow's client is for trackers."""
    words = re.compile(
        r"urlopen|urlretrieve|import requests|http\.client|aiohttp|fetch_openml|proppred\"|dgl\.data, "
        r"|torch_geometric\.datasets"
    )
    package = Path(gnnexp.__file__).parent
    found = {str(file.relative_to(package)) for file in package.rglob("*.py") if words.search(file.read_text())}
    assert found == {"datasets/published/dgl_builtin.py", "datasets/published/ogb.py"}


def test_unknown_dgl_dataset_lists_the_known_ones() -> None:
    pytest.importorskip("dgl")
    with pytest.raises(ConfigError, match="Reddit"):
        DglBuiltin(name="Redit").load()


def test_failed_download_is_a_data_error(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pytest.importorskip("dgl.data")

    def fail(**_: object) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(data, "RedditDataset", fail)
    with pytest.raises(DataError, match="no network"):
        DglBuiltin(name="Reddit").load()


def test_stored_graph_opens_lazily_and_is_checked(tmp_path: Path) -> None:
    graph = Digits().load()
    save_graph(graph, tmp_path / "mine")
    dataset = GnnexpFormat(path=str(tmp_path / "mine"))
    opened = dataset.load()
    assert torch.equal(opened.indices, graph.indices)
    assert opened.name == "mine"
    key = dataset.key()
    assert key == GnnexpFormat(path=str(tmp_path / "mine")).key()
    labels = tmp_path / "mine" / "labels.npy"
    content = bytearray(labels.read_bytes())
    content[-8] ^= 1
    labels.write_bytes(content)
    with pytest.raises(DataError, match="labels"):
        dataset.load()
    with pytest.raises(DataError):
        GnnexpFormat(path=str(tmp_path / "absent")).key()
