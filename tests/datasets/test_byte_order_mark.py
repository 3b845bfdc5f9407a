"""A text that begins with a byte order mark, as programs of Windows write it, is the same graph as one without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from gnnexp.datasets.base import Dataset
from gnnexp.datasets.edge_list import EdgeList
from gnnexp.datasets.formats.matrix import AdjacencyMatrix
from gnnexp.datasets.formats.metis import Metis
from gnnexp.datasets.formats.networkx_files import NetworkX
from gnnexp.datasets.published.triples import Triples
from gnnexp.datasets.tables.dataset import Tables
from gnnexp.graph.graph import Graph

MARK = b"\xef\xbb\xbf"
PLAIN = nx.DiGraph([("a", "b"), ("b", "c"), ("c", "a")])
NODE_LINK = json.dumps(nx.node_link_data(PLAIN))
ROWS = {"labels.txt": "0\n1\n0\n", "features.csv": "1.5,2\n3,4\n5,6\n"}
SIDES: dict[str, Any] = {"labels": "labels.txt", "features": "features.csv"}
CASES: dict[str, tuple[dict[str, str], Callable[[Path], Dataset]]] = {
    "tables": (
        {"edges.csv": "src,dst\na,b\nb,c\n", "nodes.csv": "id,f\na,1\nb,2\nc,3\n"},
        lambda folder: Tables(path=str(folder), nodes="nodes.csv"),
    ),
    "json lines": (
        {"edges.jsonl": '{"src": 1, "dst": 2}\n'},
        lambda folder: Tables(path=str(folder), edges="edges.jsonl"),
    ),
    "triples": (
        {"train.txt": "a\tr\tb\nb\tr\tc\n", "valid.txt": "b\ts\ta\n", "test.txt": "a\tr\tc\n"},
        lambda folder: Triples(path=str(folder)),
    ),
    "edge list": (
        {"edges.tsv": "0\t1\n1\t2\n", **ROWS, "train.txt": "0\n", "val.txt": "1\n", "test.txt": "2\n"},
        lambda folder: EdgeList(
            path=str(folder / "edges.tsv"),
            **SIDES,
            split="files",
            train_ids="train.txt",
            val_ids="val.txt",
            test_ids="test.txt",
        ),
    ),
    "matrix": (
        {"a.mtx": "%%MatrixMarket matrix coordinate real general\n3 3 2\n2 1 4\n3 1 2\n", **ROWS},
        lambda folder: AdjacencyMatrix(path=str(folder / "a.mtx"), **SIDES),
    ),
    "metis": ({"a.graph": "3 2\n2\n1 3\n2\n", **ROWS}, lambda folder: Metis(path=str(folder / "a.graph"), **SIDES)),
    **{
        ending: ({f"a{ending}": content}, lambda folder, ending=ending: NetworkX(path=str(folder / f"a{ending}")))
        for ending, content in (
            (".json", NODE_LINK),
            (".edgelist", "a b\nb c\n"),
            (".adjlist", "a b c\nb c\n"),
            (".gml", "\n".join(nx.generate_gml(PLAIN))),
            (".net", "\n".join(nx.generate_pajek(PLAIN))),
            (".graphml", "\n".join(nx.generate_graphml(PLAIN))),
            (".gexf", "\n".join(nx.generate_gexf(PLAIN))),
        )
    },
}


def values(graph: Graph) -> list[object]:
    arrays = (
        graph.indptr,
        graph.indices,
        graph.features,
        graph.labels,
        graph.edge_types,
        graph.edge_weights,
        graph.splits.train,
        graph.splits.val,
        graph.splits.test,
        *graph.links.values(),
    )
    return [None if one is None else np.asarray(one).tolist() for one in arrays]


@pytest.mark.parametrize("case", CASES)
def test_the_graph_is_the_one_without_the_mark(case: str, tmp_path: Path) -> None:
    files, make = CASES[case]
    found = []
    for mark in (b"", MARK):
        folder = tmp_path / f"mark{len(mark)}"
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(mark + content.encode())
        dataset = make(folder)
        found.append(values(dataset.generate(folder / "made" / "graph") or dataset.load()))
    assert found[0] == found[1]


def test_a_graph_of_triples_with_a_mark_has_another_key_than_before(tmp_path: Path) -> None:
    """So that no graph is taken from the cache that has the mark in a name."""
    keys = set()
    for mark in (b"", MARK):
        folder = tmp_path / f"with {len(mark)}"
        folder.mkdir()
        for name in ("train", "valid", "test"):
            (folder / f"{name}.txt").write_bytes(mark + b"a\tr\tb\n")
        dataset = Triples(path=str(folder))
        keys |= {dataset.key(), Dataset.key(dataset)}
    assert len(keys) == 3
