"""A graph in memory becomes a dataset: its content is the key, your ids stay, and mistakes are problems."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

import gnnexp
from gnnexp.api.running import run
from gnnexp.datasets.gnnexp_format import GnnexpFormat
from gnnexp.datasets.reading.names import names_of
from gnnexp.preparation.artifacts import prepare_graph

pyg = pytest.importorskip("torch_geometric.data")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def data(**more: Any) -> Any:
    return pyg.Data(
        **{
            "x": torch.arange(8.0).reshape(4, 2),
            "edge_index": torch.tensor([[0, 1, 2], [1, 2, 3]]),
            "y": torch.tensor([0, 1, 0, 1]),
            **more,
        }
    )


def test_the_same_graph_is_stored_once(cache: Path) -> None:
    first, again = gnnexp.from_pyg(data()), gnnexp.from_pyg(data().to_dict())
    assert first == again and first.folder.is_relative_to(cache) and len(list((cache / "graphs").glob("pyg-*"))) == 1
    different = [
        gnnexp.from_pyg(data(n_id=torch.arange(4) + 7)),
        gnnexp.from_pyg(data(x=torch.ones(4, 2))),
        gnnexp.from_pyg(data(y=torch.tensor([0, 1, 1, 1]))),
        gnnexp.from_pyg(data(), symmetrize=False),
        gnnexp.from_pyg(data(edge_weight=torch.ones(3))),
        gnnexp.from_pyg(data(), name="other"),
        gnnexp.from_pyg(data(x=torch.ones(4, 2).to_sparse())),
        gnnexp.from_pyg(data(), seed=1),
        gnnexp.from_pyg(data(train_mask=torch.tensor([True, True, False, False]))),
    ]
    assert len({one.folder for one in (first, *different)}) == len(different) + 1


def test_ids_stay_through_the_format(cache: Path) -> None:
    from pyarrow import parquet

    given = gnnexp.from_pyg(data(title=["a, b", 'c"d', "e", "ü"]), ids="title")
    dataset = GnnexpFormat(path=str(given.folder), name=given.name)
    graph, folder = prepare_graph(dataset, cache)
    assert folder != given.folder and graph.num_nodes == 4 and names_of(folder) == names_of(given.folder)
    assert parquet.read_table(folder / "ids_vertex.parquet").column("id").to_pylist() == ["a, b", 'c"d', "e", "ü"]
    key = dataset.key()
    (given.folder / "names.json").write_text((given.folder / "names.json").read_text() + " ")
    assert dataset.key() != key, "names are a part of the content"


def test_arrays_of_numpy_and_scipy(cache: Path) -> None:
    expected = gnnexp.from_pyg(data()).graph
    rows = data().x.numpy()
    for features in (rows, rows.astype(np.float64), rows.astype(np.int32), scipy.sparse.csr_matrix(rows)):
        graph = gnnexp.from_pyg({"x": features, "edge_index": data().edge_index.numpy(), "y": data().y.numpy()}).graph
        assert torch.equal(graph.features, expected.features) and torch.equal(graph.indices, expected.indices)


def test_the_object_does_not_change(cache: Path) -> None:
    given = data(x=torch.randn(4, 2, requires_grad=True))
    before = {name: value.clone() for name, value in given.to_dict().items()}
    gnnexp.from_pyg(given)
    assert all(torch.equal(value, before[name]) for name, value in given.to_dict().items())


@pytest.mark.skipif(find_spec("torch_sparse") is None, reason="torch_sparse is not installed")
def test_a_matrix_of_torch_sparse(cache: Path) -> None:
    from torch_geometric.transforms import ToSparseTensor

    expected = gnnexp.from_pyg(data()).graph
    assert torch.equal(gnnexp.from_pyg(ToSparseTensor()(data())).graph.indices, expected.indices)


def test_a_graph_of_dgl(cache: Path) -> None:
    pytest.importorskip("gnnexp.datasets.formats.dgl.dgl_graph")
    dgl = pytest.importorskip("dgl")
    graph = dgl.graph((torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3])))
    graph.ndata["feat"], graph.ndata["label"] = data().x, data().y
    graph.edata["w"] = torch.tensor([1.0, 2.0, 3.0])
    given, expected = gnnexp.from_dgl(graph), gnnexp.from_pyg(data())
    for name in ("indptr", "indices", "features", "labels"):
        assert torch.equal(getattr(given.graph, name), getattr(expected.graph, name))
    weights = gnnexp.from_dgl(graph, weight="w", symmetrize=False).graph.edge_weights
    assert weights is not None and weights.tolist() == [1, 2, 3]


def test_a_graph_of_networkx_keeps_its_nodes_as_ids(cache: Path) -> None:
    pytest.importorskip("gnnexp.datasets.formats.networkx_graph")
    import networkx
    from pyarrow import parquet

    graph = networkx.Graph()
    for number, name in enumerate("dcba"):
        graph.add_node(name, kind="even" if number % 2 == 0 else "odd", x=[2.0 * number, 2.0 * number + 1])
    graph.add_edges_from([("d", "c"), ("c", "b"), ("b", "a")])
    given, expected = gnnexp.from_networkx(graph, label="kind", features=["x"]), gnnexp.from_pyg(data())
    for name in ("indptr", "indices", "features", "labels"):
        assert torch.equal(getattr(given.graph, name), getattr(expected.graph, name))
    _, folder = prepare_graph(GnnexpFormat(path=str(given.folder)), cache)
    assert parquet.read_table(folder / "ids_vertex.parquet").column("id").to_pylist() == list("dcba")
    assert list(names_of(folder).classes) == ["even", "odd"]


def test_weights_of_parallel_and_opposite_edges(cache: Path) -> None:
    """PyG's rule is the sum (`coalesce`). An undirected edge of NetworkX is there once in each direction."""
    nx = pytest.importorskip("networkx")
    ends, weights = torch.tensor([[0, 1, 0, 2], [1, 0, 1, 3]]), torch.tensor([1.0, 5, 2, 4])
    found = gnnexp.from_pyg(data(edge_index=ends, edge_weight=weights)).graph
    right = data(edge_index=ends, edge_attr=weights).coalesce()
    by_ends = dict(zip(map(tuple, right.edge_index.t().tolist()), right.edge_attr.tolist(), strict=True))
    assert found.edge_weights is not None and by_ends == {(0, 1): 3, (1, 0): 5, (2, 3): 4}
    pairs = zip(found.indices.tolist(), found.destinations().tolist(), strict=True)
    assert dict(zip(pairs, found.edge_weights.tolist(), strict=True)) == {**by_ends, (3, 2): 4}
    graph = nx.MultiGraph()
    graph.add_weighted_edges_from([("a", "b", 1.0), ("b", "a", 3.0), ("b", "c", 2.0)])
    for keep, right_weights in ((True, [1, 3, 1, 3, 2, 2]), (False, [4, 4, 2, 2])):
        options = {"duplicates": "keep"} if keep else {"merge_weights": "sum"}
        found = gnnexp.from_networkx(graph, weight="weight", **options).graph
        assert found.edge_weights is not None and sorted(found.edge_weights.tolist()) == sorted(right_weights)
    with pytest.raises(gnnexp.DataError, match="a -> b: 1 to 3"):
        gnnexp.from_networkx(graph, weight="weight")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sparce": True}, "dataset.sparce"),
        ({"split": "mine"}, "dataset.split"),
        ({"train": 2.0}, "dataset.train"),
        ({"path": "x"}, "dataset.path"),
        ({"train": "much"}, "dataset.train"),
        ({"mask": "a"}, "dataset.mask"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(gnnexp.ConfigError, match=text):
        gnnexp.from_pyg(data(), **options)


def test_what_is_no_graph_is_refused() -> None:
    for value in (None, [data()], torch.ones(3), pyg.TemporalData(), {}, pyg.Data(x=torch.ones(2, 2))):
        with pytest.raises(gnnexp.DataError):
            gnnexp.from_pyg(value)
    with pytest.raises(gnnexp.DataError, match="destination=9"):
        gnnexp.from_pyg(data(edge_index=torch.tensor([[0], [9]])))


def test_a_run_takes_one_dataset() -> None:
    given = gnnexp.from_pyg(data())
    with pytest.raises(gnnexp.ConfigError, match="the argument dataset chooses the dataset"):
        run("dataset=cora", dataset=given)
    with pytest.raises(gnnexp.ConfigError, match=r"what gnnexp.from_pyg"):
        run(dataset=data())
