"""OGB's layout of several kinds of vertices and edges: a small ogbn-mag."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
import torch

from gnnexp.datasets.published.ogb import Ogb
from gnnexp.errors import DataError
from gnnexp.graph.graph import Graph
from gnnexp.graph.sparse import SparseRows

WRITES, CITES = "raw/relations/author___writes___paper", "raw/relations/paper___cites___paper"


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))


@pytest.fixture
def mag(tmp_path: Path) -> Path:
    """2 authors (0, 1), 1 field without edges (2), 4 papers (3..6)."""
    folder = tmp_path / "ogbn_tiny"
    put(folder / "raw/num-node-dict.csv.gz", "author,field_of_study,paper\n2,1,4\n")
    put(folder / "raw/triplet-type-list.csv.gz", "author,writes,paper\npaper,cites,paper\npaper,has,field_of_study\n")
    put(folder / f"{WRITES}/edge.csv.gz", "0,0\n1,0\n1,3\n")
    put(folder / f"{WRITES}/num-edge-list.csv.gz", "3\n")
    put(folder / f"{WRITES}/edge_reltype.csv.gz", "0\n0\n0\n")
    put(folder / f"{CITES}/edge.csv.gz", "0,1\n2,1\n1,2\n3,3\n")
    put(folder / "raw/relations/paper___has___field_of_study/edge.csv.gz", "")
    put(folder / "raw/node-feat/paper/node-feat.csv.gz", "1,2\n3,0\n0,0\n5,6\n")
    put(folder / "raw/node-label/paper/node-label.csv.gz", "1\n0\nnan\n2\n")
    put(folder / "raw/nodetype-has-label.csv.gz", "author,field_of_study,paper\nFalse,False,True\n")
    for name, ids in (("train", "3\n"), ("valid", "0\n"), ("test", "1\n")):
        put(folder / f"split/time/paper/{name}.csv.gz", ids)
    put(folder / "split/time/nodetype-has-split.csv.gz", "author,field_of_study,paper\nFalse,False,True\n")
    return folder


def load(folder: Path, **options: Any) -> Graph:
    return Ogb(name="ogbn-tiny", path=str(folder), **options).load()


def edges(graph: Graph) -> set[tuple[int, int, int]]:
    assert graph.edge_types is not None
    return set(zip(graph.indices.tolist(), graph.edge_types.tolist(), graph.destinations().tolist(), strict=True))


def test_types_follow_each_other_in_the_order_of_the_list(mag: Path) -> None:
    graph = load(mag)
    assert graph.node_types is not None and graph.labels is not None
    assert graph.node_types.tolist() == [0, 0, 1, 2, 2, 2, 2]
    forward = {(0, 0, 3), (1, 0, 3), (1, 0, 6), (3, 1, 4), (5, 1, 4), (4, 1, 5)}
    assert edges(graph) == forward | {(v, r + 3, u) for u, r, v in forward}
    assert edges(load(mag, inverse_relations=False)) == forward | {(v, r, u) for u, r, v in forward}
    assert edges(load(mag, symmetrize=False, self_loops="keep")) == forward | {(6, 1, 6)}
    assert graph.labels.tolist() == [-1, -1, -1, 1, 0, -1, 2]
    assert [ids.tolist() for ids in (graph.splits.train, graph.splits.val, graph.splits.test)] == [[6], [3], [4]]
    assert graph.num_classes == 3
    assert "author, field_of_study, paper" in graph.notes[1]
    assert "author-writes-paper, paper-cites-paper" in graph.notes[2]


def test_features_of_the_others_are_zeros_or_have_columns_of_their_own(mag: Path) -> None:
    plain, wide = load(mag).features, load(mag, features_by_type=True).features
    assert isinstance(plain, torch.Tensor) and isinstance(wide, torch.Tensor)
    papers = [[1, 2], [3, 0], [0, 0], [5, 6]]
    assert plain.tolist() == [[0, 0]] * 3 + papers
    assert wide.tolist() == [[1, 0, 0, 0, 0]] * 2 + [[0, 1, 0, 0, 0]] + [[0, 0, 1, *row] for row in papers]
    sparse = load(mag, features_by_type=True, sparse=True).features
    assert isinstance(sparse, SparseRows)
    assert sparse.columns.tolist() == [0, 0, 1, 2, 3, 4, 2, 3, 2, 2, 3, 4]
    (mag / "raw/node-feat/paper/node-feat.csv.gz").unlink()
    assert load(mag).features is None
    types = load(mag, features_by_type=True).features
    assert isinstance(types, torch.Tensor) and types.argmax(1).tolist() == [0, 0, 1, 2, 2, 2, 2]


def test_every_file_counts_for_the_key(mag: Path) -> None:
    before = Ogb(name="ogbn-tiny", path=str(mag)).key()
    put(mag / f"{CITES}/edge.csv.gz", "0,1\n")
    assert Ogb(name="ogbn-tiny", path=str(mag)).key() != before


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("raw/num-node-dict.csv.gz", "author,paper\n2\n", "names and one of counts"),
        ("raw/num-node-dict.csv.gz", "../x,paper\n2,4\n", "names and one of counts"),
        ("raw/num-node-dict.csv.gz", "author,paper\n2,900000000000000\n", "memory"),
        ("raw/triplet-type-list.csv.gz", "author,writes,book\n", "of the types author"),
        ("raw/triplet-type-list.csv.gz", "author,wri/tes,paper\n", "of the types author"),
        ("raw/triplet-type-list.csv.gz", "author,writes,paper\nauthor,writes,paper\n", "each once"),
        (f"{WRITES}/edge.csv.gz", "2,0\n", "below 2 and 4"),
        (f"{WRITES}/edge.csv.gz", "0,4\n", "below 4"),
        (f"{WRITES}/edge.csv.gz", "0\n", "two columns"),
        ("raw/node-feat/paper/node-feat.csv.gz", "1\n2\n", "must have 4"),
        ("raw/node-label/author/node-label.csv.gz", "1\n2\n", "one type of vertices"),
        ("split/time/paper/train.csv.gz", "4\n", "below 4"),
    ],
)
def test_wrong_files(mag: Path, file: str, text: str, found: str) -> None:
    put(mag / file, text)
    with pytest.raises(DataError, match=found):
        load(mag)


def test_all_that_is_missing_is_said_at_once(mag: Path) -> None:
    for file in (f"{WRITES}/edge.csv.gz", f"{CITES}/edge.csv.gz", "raw/node-label/paper/node-label.csv.gz"):
        (mag / file).unlink()
    with pytest.raises(DataError) as caught:
        load(mag)
    assert [Path(one.key).name for one in caught.value.problems] == ["edge.csv.gz", "edge.csv.gz", "node-label"]


def test_what_cannot_be_read_is_refused(mag: Path) -> None:
    with pytest.raises(DataError, match="edge features are not read"):
        load(mag, edge_features=True)
    with pytest.raises(DataError, match=r"valid\.pt"):
        Ogb(name="ogbl-tiny", path=str(mag)).load()
