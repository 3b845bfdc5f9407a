"""Graphs of PyG become the same graphs: counts of PyG, labels of every kind, splits, weights, types, reverses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnexp.datasets.formats.pyg.dataset import Pyg
from gnnexp.datasets.reading.names import names_of
from gnnexp.errors import DataError
from gnnexp.graph.graph import Graph
from gnnexp.graph.sparse import SparseRows

pyg = pytest.importorskip("torch_geometric.data")
transforms = pytest.importorskip("torch_geometric.transforms")

AS_IT_IS: dict[str, Any] = {"symmetrize": False, "self_loops": "keep", "duplicates": "keep"}


def homogeneous(**more: Any) -> Any:
    """A directed graph of 8 vertices with a self loop, a parallel edge, and the isolated vertex 7."""
    ends = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 6, 0], [1, 2, 3, 4, 5, 6, 1, 6, 2]])
    rows = torch.arange(24.0).reshape(8, 3)
    return pyg.Data(x=rows, edge_index=ends, y=torch.arange(8) % 3, **more)


def typed(**more: Any) -> Any:
    found = pyg.HeteroData()
    found["author"].x = torch.arange(8.0).reshape(4, 2)
    found["paper"].x, found["paper"].y = torch.arange(15.0).reshape(5, 3), torch.tensor([0, 1, 0, 1, 2])
    found["paper"].train_mask = torch.tensor([1, 1, 0, 0, 0]).bool()
    found["paper"].val_mask, found["paper"].test_mask = (torch.arange(5) == 2), (torch.arange(5) > 2)
    found["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 2, 3, 3], [0, 1, 2, 3, 4]])
    found["paper", "cites", "paper"].edge_index = torch.tensor([[0, 1, 2], [1, 2, 4]])
    for name, value in more.items():
        found["paper"][name] = value
    return found


def loaded(data: Any, place: Path, **options: Any) -> Graph:
    file = place / "graph.pt"
    torch.save(data, file)
    return Pyg(path=str(file), **options).load()


def edges_of(graph: Graph) -> list[tuple[int, ...]]:
    columns = [graph.indices.tolist(), graph.destinations().tolist()]
    if graph.edge_types is not None:
        columns.append(graph.edge_types.tolist())
    return sorted(zip(*columns, strict=True))


def same(one: Graph, other: Graph) -> bool:
    def alike(name: str) -> bool:
        left, right = getattr(one, name), getattr(other, name)
        return left is right or (left is not None and right is not None and torch.equal(left, right))

    return all(map(alike, ("indptr", "indices", "features", "labels", "edge_types", "node_types", "edge_weights")))


def test_counts_are_those_of_pyg(tmp_path: Path) -> None:
    data = homogeneous()
    graph = loaded(data, tmp_path, **AS_IT_IS)
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (data.num_nodes, data.num_edges, 3)
    assert edges_of(graph) == sorted(zip(*data.edge_index.tolist(), strict=True))
    assert torch.equal(graph.features, data.x) and torch.equal(graph.labels, data.y) and graph.num_classes == 3
    both = transforms.ToUndirected()(homogeneous())
    added = loaded(data, tmp_path, self_loops="keep")
    assert added.num_edges == both.num_edges and same(added, loaded(both, tmp_path, **AS_IT_IS))
    assert same(added, loaded(both, tmp_path, self_loops="keep", duplicates="keep")), "reverses are not added twice"


def test_all_forms_of_a_file_are_one_graph(tmp_path: Path) -> None:
    data = homogeneous(train_mask=torch.arange(8) < 5, val_mask=torch.arange(8) == 5, test_mask=torch.arange(8) > 5)
    expected = loaded(data, tmp_path)
    assert expected.splits.train.tolist() == [0, 1, 2, 3, 4] and expected.splits.test.tolist() == [6, 7]
    slices = {name: torch.tensor([0, 8]) for name in data.keys()}  # noqa: SIM118  PyG's Data has no such iterator
    for form in (data.to_dict(), (data, None), (data, slices), (data.to_dict(), None, pyg.Data), [data]):
        assert same(loaded(form, tmp_path), expected)
    pyg.InMemoryDataset.save([data], tmp_path / "saved.pt")
    assert same(Pyg(path=str(tmp_path / "saved.pt")).load(), expected)
    data.is_node_attr("x")  # fills a cache of the storage, which is saved, too
    assert same(loaded(data, tmp_path), expected)
    with pytest.raises(DataError, match=r"2 graphs.*\n.*dataset\[0\]"):
        loaded(pyg.InMemoryDataset.collate([data, data]), tmp_path)
    with pytest.raises(DataError, match="2 graphs"):
        loaded([data, data], tmp_path)


def test_types_of_vertices_and_edges(tmp_path: Path) -> None:
    data = typed()
    graph = loaded(data, tmp_path, **AS_IT_IS)
    assert (graph.num_nodes, graph.num_edges, graph.num_relations) == (data.num_nodes, data.num_edges, 2)
    assert graph.node_types is not None and graph.node_types.tolist() == [0] * 4 + [1] * 5
    assert graph.labels is not None and graph.labels.tolist() == [-1] * 4 + [0, 1, 0, 1, 2]
    assert graph.splits.train.tolist() == [4, 5] and graph.splits.test.tolist() == [7, 8]
    assert graph.num_features == 2 + 2 + 3, "the code of the type, then columns for each type"
    assert same(graph, loaded(data.to_dict(), tmp_path, **AS_IT_IS))
    assert loaded(data, tmp_path).num_relations == 4 and loaded(data, tmp_path).num_edges == 2 * data.num_edges


def test_reverses_that_are_there_are_not_added_again(tmp_path: Path) -> None:
    plain, both = typed(), transforms.ToUndirected(merge=False)(typed())
    assert len(both.edge_types) == 4
    assert same(loaded(both, tmp_path), loaded(plain, tmp_path))
    assert any("rev_writes has the reverses of writes" in note for note in loaded(both, tmp_path).notes)
    kept = loaded(both, tmp_path, symmetrize=False)
    assert kept.num_edges == both.num_edges and kept.num_relations == 4
    only = pyg.HeteroData()
    only["a"].x, only["b"].x = torch.rand(2, 1), torch.rand(3, 1)
    only["a", "to", "b"].edge_index = torch.tensor([[0, 1, 1], [0, 1, 2]])
    graph = loaded(transforms.ToUndirected()(only), tmp_path)
    assert graph.num_edges == 6 and graph.num_relations == 2, "reverses keep a relation of their own"
    held = loaded(transforms.ToUndirected()(only), tmp_path, link_split={"val": 0.3, "test": 0.3})
    assert held.num_edges == 2 and len(held.links["train"]) == 1, "a held-out link leaves with its reverse"
    other = transforms.ToUndirected()(only)
    other["b", "rev_to", "a"].edge_index = torch.tensor([[0, 1, 0], [0, 1, 1]])
    assert loaded(other, tmp_path).num_relations == 4, "these are no reverses"
    notes = loaded(transforms.ToUndirected()(typed()), tmp_path).notes
    assert any("cites has both directions" in note for note in notes)


def test_a_relation_for_each_edge_type(tmp_path: Path) -> None:
    data = homogeneous(edge_type=torch.tensor([0, 0, 3, 3, 0, 0, 3, 0, 3]))
    graph = loaded(data, tmp_path, **AS_IT_IS)
    assert graph.num_relations == 2 and graph.edge_types is not None and int((graph.edge_types == 1).sum()) == 4
    data.edge_type = torch.tensor([0, 1])
    with pytest.raises(DataError, match=r"edge_type.*each of the 9 edges"):
        loaded(data, tmp_path)


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_a_matrix_of_edges(tmp_path: Path, layout: str) -> None:
    data = homogeneous().coalesce()
    expected = loaded(data, tmp_path, **AS_IT_IS)
    ends, size = data.edge_index.flip(0), (8, 8)
    matrix = torch.sparse_coo_tensor(ends, torch.ones(data.num_edges), size).coalesce()
    data.adj_t = matrix if layout == "coo" else getattr(matrix, f"to_sparse_{layout}")()
    del data.edge_index
    assert same(loaded(data, tmp_path, **AS_IT_IS), expected)
    weighted = torch.sparse_coo_tensor(ends, torch.arange(1.0, 9), size).coalesce()
    data.adj_t = weighted if layout == "coo" else getattr(weighted, f"to_sparse_{layout}")()
    graph = loaded(data, tmp_path, **AS_IT_IS)
    assert graph.edge_weights is not None and sorted(graph.edge_weights.tolist()) == list(range(1, 9))


def test_the_matrix_of_pyg_itself(tmp_path: Path) -> None:
    data = transforms.ToSparseTensor()(homogeneous().coalesce())
    assert same(loaded(data, tmp_path, **AS_IT_IS), loaded(homogeneous().coalesce(), tmp_path, **AS_IT_IS))
    rows = pyg.HeteroData.from_dict(typed().to_dict())
    sparse = transforms.ToSparseTensor()(pyg.HeteroData.from_dict(typed().to_dict()))
    assert same(loaded(sparse, tmp_path, **AS_IT_IS), loaded(rows, tmp_path, **AS_IT_IS))


def test_pygs_index_of_edges(tmp_path: Path) -> None:
    edge_index = pytest.importorskip("torch_geometric").EdgeIndex
    data = homogeneous()
    data.edge_index = edge_index(data.edge_index, sparse_size=(8, 8))
    assert same(loaded(data, tmp_path), loaded(homogeneous(), tmp_path))


def test_weights(tmp_path: Path) -> None:
    weights = torch.arange(1.0, 10)
    expected = loaded(homogeneous(edge_weight=weights), tmp_path, **AS_IT_IS)
    assert expected.edge_weights is not None and expected.edge_weights.dtype == torch.float32
    order = np.lexsort((homogeneous().edge_index[0], homogeneous().edge_index[1]))
    assert expected.edge_weights.tolist() == weights[order].tolist()
    for same_weights in (weights.double()[:, None], weights.half(), weights.long()):
        assert same(loaded(homogeneous(edge_attr=same_weights), tmp_path, **AS_IT_IS), expected)
    assert any("edge_attr has one column" in note for note in loaded(homogeneous(edge_attr=weights), tmp_path).notes)
    wide = loaded(homogeneous(edge_attr=torch.rand(9, 2)), tmp_path)
    assert wide.edge_weights is None and any("left out: edge_attr [9, 2]" in note for note in wide.notes)
    assert loaded(homogeneous(edge_weight=weights), tmp_path, weight=None).edge_weights is None
    assert loaded(homogeneous(cost=weights), tmp_path, weight="cost").edge_weights is not None
    for data, text in (
        (homogeneous(edge_weight=weights[:3]), "each of the 9 edges"),
        (homogeneous(edge_weight=weights / 0), "finite"),
    ):
        with pytest.raises(DataError, match=text):
            loaded(data, tmp_path)


LABELS: dict[str, tuple[torch.Tensor, list[int]]] = {
    "int32": (torch.tensor([0, 1, 2, -1, 0, 1, 2, 0], dtype=torch.int32), [0, 1, 2, -1, 0, 1, 2, 0]),
    "one column": (torch.tensor([0, 1, 2, -100, 0, 1, 2, 0])[:, None], [0, 1, 2, -1, 0, 1, 2, 0]),
    "bool": (torch.arange(8) > 4, [0] * 5 + [1] * 3),
    "whole floats": (torch.tensor([0.0, 1, 2, torch.nan, 0, 1, 2, 0]), [0, 1, 2, -1, 0, 1, 2, 0]),
    "float64": (torch.tensor([0.0, 1, 2, torch.nan, 0, 1, 2, 0]).double(), [0, 1, 2, -1, 0, 1, 2, 0]),
    "one-hot": (torch.eye(3)[torch.arange(8) % 3], [0, 1, 2, 0, 1, 2, 0, 1]),
    "one-hot of integers": (torch.eye(3)[torch.arange(8) % 3].long(), [0, 1, 2, 0, 1, 2, 0, 1]),
}


@pytest.mark.parametrize("kind", LABELS)
def test_classes(tmp_path: Path, kind: str) -> None:
    values, expected = LABELS[kind]
    data = homogeneous()
    data.y = values
    graph = loaded(data, tmp_path)
    assert graph.labels is not None and graph.labels.dtype == torch.int64 and graph.labels.tolist() == expected
    drawn = torch.cat([graph.splits.train, graph.splits.val, graph.splits.test])
    assert sorted(drawn.tolist()) == [vertex for vertex in range(8) if expected[vertex] >= 0]


def test_several_labels(tmp_path: Path) -> None:
    data = homogeneous()
    for values in (torch.eye(8)[:, :4] + torch.eye(8)[:, 4:], torch.ones(8, 3).int(), torch.ones(8, 2).bool()):
        data.y = values
        data.y[0] = 0
        graph = loaded(data, tmp_path)
        assert graph.multilabel and graph.labels is not None and torch.equal(graph.labels, data.y.float())
    data.y = torch.ones(8, 3)
    data.y[2] = torch.nan
    graph = loaded(data, tmp_path)
    assert 2 not in torch.cat([graph.splits.train, graph.splits.val, graph.splits.test])
    data.y = torch.full((8, 2), 3)
    with pytest.raises(DataError, match=r"row 0.*\[3, 3\].*\n.*data.y\[:, 0\]"):
        loaded(data, tmp_path)


def test_labels_of_something_else_are_left_out(tmp_path: Path) -> None:
    data = homogeneous()
    data.y = torch.tensor([1])
    graph = loaded(data, tmp_path)
    assert graph.labels is None and any("y [1] is left out" in note for note in graph.notes)
    data.train_mask = torch.arange(8) < 3
    assert any("the split" in note for note in loaded(data, tmp_path).notes)
    assert loaded(homogeneous(), tmp_path, label=None).labels is None
    assert loaded(homogeneous(kind=torch.arange(8)), tmp_path, label="kind").num_classes == 8
    with pytest.raises(DataError, match=r"dataset.label='kind'.*edge_index, x, y"):
        loaded(homogeneous(), tmp_path, label="kind")


def test_one_of_several_splits(tmp_path: Path) -> None:
    masks = torch.stack([torch.arange(8) < 3, torch.arange(8) < 5], dim=1)
    data = homogeneous(train_mask=masks, val_mask=~masks, test_mask=torch.zeros(8).bool())
    assert loaded(data, tmp_path).splits.train.tolist() == [0, 1, 2]
    graph = loaded(data, tmp_path, mask=1)
    assert graph.splits.train.tolist() == [0, 1, 2, 3, 4] and any("split 1 of 2" in note for note in graph.notes)
    with pytest.raises(DataError, match=r"dataset.mask=2.*has 2 splits"):
        loaded(data, tmp_path, mask=2)
    numbers = homogeneous(train_mask=masks[:, 0].long(), val_idx=torch.tensor([5, 4]), test_idx=torch.tensor([7]))
    graph = loaded(numbers, tmp_path)
    parts = graph.splits.train, graph.splits.val, graph.splits.test
    assert [part.tolist() for part in parts] == [[0, 1, 2], [4, 5], [7]]
    for wrong, text in (
        ({"train_mask": masks[:4, 0]}, "each of the 8 vertices"),
        ({"train_mask": torch.arange(8)}, "1 and 0"),
        ({"train_idx": torch.tensor([9])}, "ids 0 to 7"),
        ({"train_mask": masks[:, 0], "val_mask": masks[:, 1]}, "disjoint"),
    ):
        with pytest.raises(DataError, match=text):
            loaded(homogeneous(**wrong), tmp_path)


def test_labels_next_to_the_ids_of_a_split(tmp_path: Path) -> None:
    data = pyg.Data(
        edge_index=homogeneous().edge_index,
        num_nodes=8,
        train_idx=torch.tensor([4, 1]),
        train_y=torch.tensor([1, 0]),
        test_idx=torch.tensor([2]),
        test_y=torch.tensor([1]),
    )
    graph = loaded(data, tmp_path)
    assert graph.labels is not None and graph.labels.tolist() == [-1, 0, 1, -1, 1, -1, -1, -1]
    assert graph.splits.train.tolist() == [1, 4] and graph.splits.test.tolist() == [2]


def test_features_of_every_kind(tmp_path: Path) -> None:
    rows = torch.tensor([[0.0, 1, 0], [2, 0, 0]] * 4)
    expected = loaded(pyg.Data(x=rows, edge_index=homogeneous().edge_index), tmp_path)
    for values in (
        rows.double(),
        rows.half(),
        rows.bfloat16(),
        rows.long(),
        rows.to_sparse(),
        rows.to_sparse_csr(),
        rows.to_sparse_csc(),
        torch.nn.Parameter(rows),
        rows.t().contiguous().t(),
        rows[:, None, :],
    ):
        assert same(loaded(pyg.Data(x=values, edge_index=homogeneous().edge_index), tmp_path), expected)
    graph = loaded(pyg.Data(x=rows.to_sparse(), edge_index=homogeneous().edge_index), tmp_path, sparse=True)
    assert isinstance(graph.features, SparseRows) and graph.num_features == 3
    for values, width in ((torch.ones(1, 2).expand(8, 2), 2), (torch.arange(8), 1)):
        assert loaded(pyg.Data(x=values, edge_index=homogeneous().edge_index), tmp_path).num_features == width
    for values, text in (
        (rows[:3], "outside|vertices 0 to 2"),
        (rows + 1j, "torch_geometric|real|Complex"),
        (rows / 0, "finite"),
    ):
        with pytest.raises(DataError, match=text):
            loaded(pyg.Data(x=values, edge_index=homogeneous().edge_index), tmp_path)


def test_the_number_of_vertices(tmp_path: Path) -> None:
    ends = homogeneous().edge_index
    assert loaded(pyg.Data(edge_index=ends), tmp_path).num_nodes == 7
    assert loaded(pyg.Data(edge_index=ends, num_nodes=9), tmp_path).num_nodes == 9
    assert loaded(pyg.Data(edge_index=ends, num_nodes=torch.tensor(9)), tmp_path).num_nodes == 9
    assert loaded(pyg.Data(edge_index=ends, num_nodes=np.int64(9)), tmp_path).num_nodes == 9
    assert loaded(pyg.Data(edge_index=ends, pos=torch.rand(10, 2)), tmp_path).num_nodes == 10
    one = loaded(pyg.Data(edge_index=torch.tensor([[0], [0]]), x=torch.ones(1, 1)), tmp_path, self_loops="keep")
    assert (one.num_nodes, one.num_edges) == (1, 1)
    none = torch.empty(2, 0, dtype=torch.long)
    for data, text in (
        (pyg.Data(edge_index=ends, num_nodes=3), "vertices 0 to 2"),
        (pyg.Data(edge_index=ends - 1), "-1"),
        (pyg.Data(edge_index=ends, num_nodes=1 << 45), "too large"),
        (pyg.Data(edge_index=ends * (1 << 40)), "too large"),
        (pyg.Data(edge_index=ends.t()), r"\[2, E\]"),
        (pyg.Data(edge_index=ends.float()), r"\[2, E\]"),
        (pyg.Data(x=torch.ones(3, 1)), "edge_index or adj_t"),
        (pyg.Data(edge_index=none, num_nodes=3), "no edges"),
    ):
        with pytest.raises(DataError, match=text):
            loaded(data, tmp_path)


def test_ids(tmp_path: Path) -> None:
    from pyarrow import parquet

    def ids(data: Any, **options: Any) -> list[Any]:
        torch.save(data, tmp_path / "graph.pt")
        folder = tmp_path / f"graph{len(list(tmp_path.iterdir()))}"
        Pyg(path=str(tmp_path / "graph.pt"), **options).generate(folder)
        assert names_of(folder).types == ["vertex"]
        found: list[Any] = parquet.read_table(folder / "ids_vertex.parquet").column("id").to_pylist()
        return found

    assert ids(homogeneous()) == list(range(8))
    assert ids(homogeneous(n_id=torch.arange(8) * 5)) == list(range(0, 40, 5))
    names = [f"page {number}" for number in range(8)]
    assert ids(homogeneous(title=names), ids="title") == names
    assert ids(homogeneous(n_id=torch.arange(8) * 5), ids=None) == list(range(8))
    assert ids(homogeneous(n_id=torch.zeros(8).long())) == list(range(8)), "they are no ids"
    with pytest.raises(DataError, match="different number or text"):
        ids(homogeneous(title=["a"] * 8), ids="title")
