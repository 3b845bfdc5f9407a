import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.config.compose import compose
from gnnexp.config.folders import own_folders
from gnnexp.config.hints import classes_of
from gnnexp.datasets.base import Dataset
from gnnexp.datasets.formats.networkx_files import NetworkX, read_graph_file
from gnnexp.datasets.formats.networkx_graph import foreign_of_networkx
from gnnexp.datasets.looking.guess import recognised
from gnnexp.errors import DataError
from gnnexp.experiment.build import build
from gnnexp.graph.graph import Graph

WRITERS: dict[str, Callable[..., None]] = {
    ".graphml": nx.write_graphml,
    ".gexf": nx.write_gexf,
    ".gml": nx.write_gml,
    ".json": lambda graph, path: Path(path).write_text(json.dumps(nx.node_link_data(graph))),
}
CLASSES = classes_of("dataset", own_folders())


def made(path: Path, **options: Any) -> tuple[Graph, list[Any]]:
    """The graph and the ids of its vertices."""
    target = path.parent / "made" / "graph"
    graph = NetworkX(path=str(path), **options).generate(target)
    return graph, pq.read_table(target / "ids_vertex.parquet").column("id").to_pylist()


def named(graph: Graph, ids: list[Any]) -> dict[tuple[Any, Any], float]:
    """The weight of each edge by the names of its ends."""
    weights = torch.ones(graph.num_edges) if graph.edge_weights is None else graph.edge_weights
    ends = zip(graph.indices.tolist(), graph.destinations().tolist(), weights.tolist(), strict=True)
    return {(ids[source], ids[destination]): weight for source, destination, weight in ends}


def friends(kind: type[nx.Graph] = nx.Graph) -> nx.Graph:
    graph = kind()
    graph.add_node("ann", age=3, income=0.5, town="x", kind="good", group="train")
    graph.add_node("bob", age=5, income=1.5, town="y", kind="bad", group="val")
    graph.add_node("zoë & co", age=7, income=2.5, town="x", kind="good", group="test")
    graph.add_edge("ann", "bob", weight=2.0, since=1999)
    graph.add_edge("bob", "zoë & co", weight=0.25, since=2000)
    return graph


def test_reverses_have_no_type_of_their_own_where_edges_have_one_type(tmp_path: Path) -> None:
    nx.write_graphml(friends(), tmp_path / "g.graphml")
    with pytest.raises(DataError, match="the edges of this graph have one type"):
        made(tmp_path / "g.graphml", inverse_relations=True)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph])
def test_a_file_that_networkx_wrote_is_the_same_graph(
    kind: type[nx.Graph], ending: str, packed: bool, tmp_path: Path
) -> None:
    path = tmp_path / f"friends{ending}"
    WRITERS[ending](friends(kind), str(path))
    if packed:
        path = path.with_name(f"{path.name}.gz")
        path.write_bytes(gzip.compress((tmp_path / f"friends{ending}").read_bytes()))
    options = {"features": ["age", "income"]} if ending == ".gexf" else {}
    graph, ids = made(path, label="kind", split_column="group", categories=["town"], symmetrize=False, **options)
    assert ids == ["ann", "bob", "zoë & co"]
    forward = {("ann", "bob"): 2.0, ("bob", "zoë & co"): 0.25}
    backward = {} if kind is nx.DiGraph else {(v, u): weight for (u, v), weight in forward.items()}
    assert named(graph, ids) == forward | backward
    assert isinstance(graph.features, torch.Tensor) and graph.labels is not None
    assert graph.features.tolist() == [[3, 0.5, 1, 0], [5, 1.5, 0, 1], [7, 2.5, 1, 0]]
    assert graph.labels.tolist() == [1, 0, 1]
    assert [part.tolist() for part in (graph.splits.train, graph.splits.val, graph.splits.test)] == [[0], [1], [2]]
    whole, _ = made(path, symmetrize=True, label=None, features=None)
    assert named(whole, ids) == forward | {(v, u): weight for (u, v), weight in forward.items()}


@pytest.mark.parametrize(
    ("ending", "writer"),
    [
        (".edgelist", nx.write_edgelist),
        (".adjlist", nx.write_adjlist),
        (".net", nx.write_pajek),
        (".edgelist", nx.write_weighted_edgelist),
    ],
)
def test_lists_and_pajek(ending: str, writer: Callable[..., None], tmp_path: Path) -> None:
    graph = nx.karate_club_graph()
    nx.set_node_attributes(graph, {one: {} for one in graph})
    plain = nx.relabel_nodes(nx.Graph(graph.edges(data=True)), str)
    writer(plain, str(tmp_path / f"karate{ending}"))
    found, ids = made(tmp_path / f"karate{ending}")
    expected = {(u, v): data["weight"] for a, b, data in plain.edges(data=True) for u, v in ((a, b), (b, a))}
    weights = named(found, ids)
    assert {*weights} == {*expected}
    if ending != ".adjlist":
        assert weights == expected


@pytest.mark.parametrize("ending", [".edgelist", ".adjlist"])
def test_lists_may_have_directions(ending: str, tmp_path: Path) -> None:
    graph = nx.DiGraph([("a", "b"), ("b", "c"), ("c", "a")])
    (nx.write_edgelist if ending == ".edgelist" else nx.write_adjlist)(graph, str(tmp_path / f"x{ending}"))
    found, ids = made(tmp_path / f"x{ending}", directed=True, symmetrize=False)
    assert {*named(found, ids)} == {*graph.edges}


@pytest.mark.parametrize(
    ("directed", "arcs"),
    [
        (False, [("a", "b"), ("a", "b"), ("a", "c"), ("c", "c")]),
        (True, [("a", "b"), ("a", "b"), ("a", "c"), ("b", "a"), ("b", "a"), ("c", "a"), ("c", "c")]),
    ],
)
def test_adjacency_lists_may_name_an_edge_at_both_ends(
    directed: bool, arcs: list[tuple[str, str]], tmp_path: Path
) -> None:
    (tmp_path / "x.adjlist").write_text("# both ends\na b b c\nb a a\nc a c\n")
    graph = read_graph_file(tmp_path / "x.adjlist", directed=directed)
    assert [(graph.names[u], graph.names[v]) for u, v in sorted(graph.ends.tolist())] == arcs


@pytest.mark.parametrize("kind", [nx.MultiGraph, nx.MultiDiGraph])
def test_parallel_edges_and_loops_are_kept_or_merged(kind: type[nx.Graph], tmp_path: Path) -> None:
    graph = kind()
    graph.add_edges_from([(1, 2), (1, 2), (2, 2)])
    nx.write_graphml(graph, str(tmp_path / "x.graphml"))
    both = 2 if kind is nx.MultiGraph else 1
    found, _ = made(tmp_path / "x.graphml", symmetrize=False, self_loops="keep", duplicates="keep")
    assert found.num_edges == 2 * both + 1
    found, _ = made(tmp_path / "x.graphml")
    assert found.num_edges == 2


@given(
    graph=st.builds(
        lambda count, pairs, directed: (count, pairs, directed),
        st.integers(1, 6),
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 9)), min_size=1),
        st.booleans(),
    )
)
def test_any_graph_keeps_its_vertices_edges_and_weights(graph: Any, tmp_path_factory: Any) -> None:
    count, pairs, directed = graph
    own = nx.MultiDiGraph() if directed else nx.MultiGraph()
    own.add_nodes_from((one, {"h": [one, 0.5], "y": one % 2}) for one in range(count))
    for u, v, weight in pairs:
        own.add_edge(u % count, v % count, w=weight)
    found = foreign_of_networkx(own, label="y", weight="w")
    vertices, [edges] = found.vertices["vertex"], found.edges
    assert vertices.ids is not None and vertices.ids.tolist() == list(own)
    assert vertices.labels is not None and isinstance(vertices.features, np.ndarray)
    assert vertices.features.tolist() == [[one, 0.5] for one in own]
    assert edges.weight is not None
    rows = sorted(zip(edges.source.tolist(), edges.destination.tolist(), edges.weight.tolist(), strict=True))
    every = [(u, v, float(w)) for u, v, w in own.edges(data="w")]
    every += [] if directed else [(v, u, w) for u, v, w in every if u != v]
    number = {name: place for place, name in enumerate(own)}
    assert rows == sorted((number[u], number[v], w) for u, v, w in every)


def test_masks_are_the_split_and_no_features() -> None:
    graph = nx.path_graph(3)
    for one, data in graph.nodes(data=True):
        data |= {"x": [float(one)], "train_mask": one == 0, "val_mask": one == 1, "test_mask": one == 2}
    found = foreign_of_networkx(graph).vertices["vertex"]
    assert {name: part.tolist() for name, part in found.splits.items()} == {
        "train": [True, False, False],
        "val": [False, True, False],
        "test": [False, False, True],
    }
    assert isinstance(found.features, np.ndarray) and found.features.tolist() == [[0], [1], [2]]


def test_labels_may_be_missing_or_several() -> None:
    graph = nx.path_graph(4)
    nx.set_node_attributes(graph, {0: 7, 1: -1, 2: 5.0}, "y")
    nx.set_node_attributes(graph, {0: [0, 1], 1: [1, 1], 3: [0, 0]}, "many")
    found = foreign_of_networkx(graph, label="y", features=()).vertices["vertex"]
    assert found.labels is not None and found.labels.tolist() == [1, -1, 0, -1] and list(found.classes) == ["5", "7"]
    several = foreign_of_networkx(graph, label="many", features=()).vertices["vertex"].labels
    assert several is not None and np.isnan(several[2]).all()
    assert several[[0, 1, 3]].tolist() == [[0, 1], [1, 1], [0, 0]]


def test_a_label_that_is_a_name_of_each_vertex_has_no_classes(tmp_path: Path) -> None:
    graph = nx.path_graph(5)
    nx.set_node_attributes(graph, {one: f"page {one}" for one in graph}, "label")
    nx.write_gexf(graph, str(tmp_path / "x.gexf"))
    found, _ = made(tmp_path / "x.gexf")
    assert found.labels is None and any("not used: label (5 values, for display)" in note for note in found.notes)


def test_names_of_any_kind_are_ids(tmp_path: Path) -> None:
    grid = nx.grid_2d_graph(2, 2)
    ids = foreign_of_networkx(grid).vertices["vertex"].ids
    assert ids is not None and ids.tolist() == ["(0, 0)", "(0, 1)", "(1, 0)", "(1, 1)"]
    large = nx.Graph([(2**63, 1)])
    ids = foreign_of_networkx(large).vertices["vertex"].ids
    assert ids is not None and ids.tolist() == [str(2**63), "1"]
    with pytest.raises(DataError, match="name of two vertices"):
        foreign_of_networkx(nx.Graph([(1, "1")]))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"features": ["age", "missing"]}, "no vertex has this attribute; attributes are age, town"),
        ({"label": "age"}, "classes must be names or whole numbers"),
        ({"weight": "w"}, "edge 0 - 1.*is no finite number"),
        ({"weight": "missing"}, "no edge has this attribute"),
        ({"features": ["town"]}, "is no number"),
        ({"split_column": "town"}, "words of a split are"),
        ({"features": ["age"]}, "vertex 1, attribute age.*finite"),
        ({"categories": ["town"], "features": None}, "vertex 1, attribute town.*is missing"),
    ],
)
def test_mistakes_name_vertices_and_attributes(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    graph = nx.path_graph(3)
    graph.nodes[0].update(age=0.5, town="x")
    graph.nodes[2].update(age=2.5, town="y")
    graph.edges[0, 1]["w"] = "heavy"
    nx.write_gml(graph, str(tmp_path / "x.gml"))
    with pytest.raises(DataError, match=f"(?s){said}"):
        made(tmp_path / "x.gml", **{"features": None, "weight": None, **options})


def test_missing_numbers_can_be_filled(tmp_path: Path) -> None:
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, {0: 1.0, 2: 3.0}, "age")
    nx.write_graphml(graph, str(tmp_path / "x.graphml"))
    found, _ = made(tmp_path / "x.graphml", empty="mean", standardize=True)
    assert isinstance(found.features, torch.Tensor)
    assert np.allclose(found.features[:, 0], np.array([-1, 0, 1]) * 1.5**0.5)


BOMB = (
    '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>'
    '<graphml><graph edgedefault="directed"><node id="&b;"/></graph></graphml>'
)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("ending", [".graphml", ".gexf"])
def test_a_type_declaration_is_refused(ending: str, encoding: str, tmp_path: Path) -> None:
    (tmp_path / f"x{ending}").write_bytes(BOMB.replace('"1.0"', f'"1.0" encoding="{encoding}"').encode(encoding))
    with pytest.raises(DataError, match="type declaration"):
        made(tmp_path / f"x{ending}")


@pytest.mark.parametrize("ending", [".graphml", ".gexf", ".gml", ".net", ".json"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\xff\x00",
        b"<graphml>",
        b"graph [\nnode [\nid 1",
        b"*Vertices x\n1 a",
        b'{"nodes": [{"id": [1]}], "links": 3}',
        b"a {'weight': ",
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_named(ending: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / f"x{ending}").write_bytes(content)
    with pytest.raises(DataError, match=rf"x\{ending}|0 edges|no vertices"):
        made(tmp_path / f"x{ending}")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"a {'weight': ",
        b"a b {'weight': ",
        b"a b {[}",
        b"a b 1\na b x\n",
        b"a b {'w': " + b"(" * 9999 + b")" * 9999 + b"}",
        b"a b\nc\n",
    ],
)
def test_a_damaged_list_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.edgelist").write_bytes(content)
    with pytest.raises(DataError, match=r"x\.edgelist|0 edges"):
        made(tmp_path / "x.edgelist")


def test_a_packed_file_cannot_fill_the_memory(tmp_path: Path) -> None:
    (tmp_path / "x.gml.gz").write_bytes(gzip.compress(b" " * (1 << 25)))
    with pytest.raises(DataError, match="unpacks to more than"):
        made(tmp_path / "x.gml.gz")


def test_a_long_row_of_an_edge_list_is_refused_before_its_attributes_are_parsed(tmp_path: Path) -> None:
    (tmp_path / "x.edgelist").write_text(f"1 2 {{}}\n2 3 {{'a': [{'1,' * (1 << 15)}]}}\n")
    with pytest.raises(DataError, match="row 2 has more than 65536 signs"):
        made(tmp_path / "x.edgelist")


def test_node_link_refuses_ends_that_are_not_listed(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"nodes": [{"id": 1}], "links": [{"source": 1, "target": 2}]}')
    with pytest.raises(DataError, match="is no node of the file; 1 such ends, 1 nodes are listed"):
        made(tmp_path / "x.json")


@pytest.mark.parametrize("ending", [*WRITERS, ".net", ".adjlist", ".edgelist"])
def test_data_prints_overrides_that_load_it(ending: str, tmp_path: Path) -> None:
    graph = nx.relabel_nodes(nx.karate_club_graph(), str)
    path = tmp_path / "my karate" / f"club{ending}"
    path.parent.mkdir()
    writers = {**WRITERS, ".net": nx.write_pajek, ".adjlist": nx.write_adjlist, ".edgelist": nx.write_edgelist}
    writers[ending](nx.Graph(graph.edges(data=True)) if ending == ".net" else graph, str(path))
    (path.parent / "README.md").write_text("Zachary's karate club")
    for place in (path, path.parent):
        lines = recognised(place, CLASSES).overrides
        assert lines[0] == "dataset=networkx"
        found = build(compose([*lines]).config["dataset"], Dataset).load()
        assert (found.num_nodes, found.num_edges) == (34, 156)
