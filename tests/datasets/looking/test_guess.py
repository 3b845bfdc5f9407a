import json
from pathlib import Path

import numpy as np
import pytest

from gnnexp.config.compose import compose
from gnnexp.config.folders import own_folders
from gnnexp.config.hints import classes_of
from gnnexp.datasets.base import Dataset
from gnnexp.datasets.looking.guess import recognised
from gnnexp.errors import DataError
from gnnexp.experiment.build import build
from gnnexp.graph.graph import Graph

CLASSES = classes_of("dataset", own_folders())


def text(path: Path, *lines: str) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def loaded(place: Path, *more: str) -> Graph:
    """The graph that the guessed overrides load."""
    config = compose([*recognised(place, CLASSES).overrides, *more]).config["dataset"]
    return build(config, Dataset).load()


def test_a_single_table_is_edges(tmp_path: Path) -> None:
    text(tmp_path / "my friends' [1].csv", "from,to", "ann,bob", "bob,zoë")
    assert loaded(tmp_path / "my friends' [1].csv").num_nodes == 3


@pytest.mark.parametrize("weight", ["", " 0.5"])
def test_the_first_edge_between_texts_is_no_header(weight: str, tmp_path: Path) -> None:
    """Each vertex is once a source and once a destination, so no word is there twice in a column."""
    text(tmp_path / "edges.txt", *(f"v{one} v{(3 * one + 1) % 20}{weight}" for one in range(20)))
    graph = loaded(tmp_path / "edges.txt", "dataset.symmetrize=false", "dataset.self_loops=keep")
    assert (graph.num_nodes, graph.num_edges) == (20, 20)
    text(tmp_path / "named.txt", "one other", *(f"v{one} v{(3 * one + 1) % 20}" for one in range(20)))
    assert "dataset.header=true" in recognised(tmp_path / "named.txt", CLASSES).overrides


def test_a_list_of_igraph_with_names_and_weights(tmp_path: Path) -> None:
    """`write_ncol`: two names and a weight, with spaces between them and without a header."""
    text(tmp_path / "g.ncol", "ann bob 1.5", "bob cid 2", "cid ann 0.5", "cid dan 1")
    graph = loaded(tmp_path / "g.ncol", "dataset.symmetrize=false")
    assert (graph.num_nodes, graph.num_edges) == (4, 4) and graph.edge_weights is not None
    assert sorted(graph.edge_weights.tolist()) == [0.5, 1, 1.5, 2]


def test_vertices_and_words_are_found(tmp_path: Path) -> None:
    text(tmp_path / "x_edges.csv", "id_1,id_2", "0,1", "1,2")
    text(tmp_path / "x_target.csv", "id,page,kind", '0,"a, b",tv', "1,c,gov", "2,d,tv")
    (tmp_path / "x_features.json").write_text(json.dumps({"0": [1, 2], "1": [0], "2": []}))
    graph = loaded(tmp_path, "dataset.label=kind")
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (3, 3, 2)


def test_a_matrix_is_features(tmp_path: Path) -> None:
    text(tmp_path / "edges.tsv", "src\tdst", "0\t1")
    np.save(tmp_path / "rows.npy", np.ones((4, 2), np.float32))
    np.save(tmp_path / "order.npy", np.ones(4))
    assert loaded(tmp_path).num_nodes == 4


def test_types_follow_from_names_or_ids(tmp_path: Path) -> None:
    text(tmp_path / "authors.csv", "id,h", "a1,3", "a2,4")
    text(tmp_path / "papers.csv", "paper_id,year", "1,2000", "2,2001")
    text(tmp_path / "writes.csv", "author,paper", "a1,2", "a2,1")
    text(tmp_path / "cites.csv", "citing,cited", "1,2")
    graph = loaded(tmp_path)
    assert graph.node_types is not None and graph.node_types.tolist() == [0, 0, 1, 1]
    assert graph.num_relations == 4 and graph.num_edges == 6


def test_published_folders_are_recognised(tmp_path: Path, real) -> None:
    assert list(recognised(real("cora"), CLASSES).overrides)[:2] == ["dataset=planetoid", "dataset.name=cora"]
    assert recognised(real("fb15k-237"), CLASSES).overrides[0] == "dataset=triples"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "no known format"),
        ({"a.csv": "id,label\n1,x\n"}, "no table has two columns"),
        ({"a.csv": "p,q,r\n1,2,3\n"}, "not clear whether"),
        ({"a.parquet": "no"}, "cannot be read"),
    ],
)
def test_what_cannot_be_told_is_said(files: dict[str, str], said: str, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=said):
        recognised(tmp_path, CLASSES)
    with pytest.raises(DataError, match="no such file"):
        recognised(tmp_path / "missing", CLASSES)
