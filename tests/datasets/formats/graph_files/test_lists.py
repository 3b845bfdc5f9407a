"""Lists in which a space separates names: NetworkX writes names with spaces, and no reader can tell them apart."""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
import pytest

from gnnexp.datasets.formats.networkx_files import NetworkX, read_graph_file
from gnnexp.errors import DataError

SPACED = nx.DiGraph([((1, 2), (3, 4)), ((3, 4), (5.5, 6))]), nx.Graph([("new york", "boston"), ("boston", "paris")])


@pytest.mark.parametrize("graph", SPACED)
@pytest.mark.parametrize(("ending", "write"), [(".adjlist", nx.write_adjlist), (".edgelist", nx.write_edgelist)])
def test_names_with_spaces_are_refused(graph: nx.Graph, ending: str, write: object, tmp_path: Path) -> None:
    assert callable(write)
    write(graph, tmp_path / f"a{ending}")
    with pytest.raises(DataError, match=r"a space separates names\n.*write_graphml"):
        read_graph_file(tmp_path / f"a{ending}")


@pytest.mark.parametrize("text", ["(1, 2) (3, 4)\n", "[1, 2] x\n"])
def test_parts_of_tuples_are_refused_in_lists_of_others(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.adjlist").write_text(text)
    with pytest.raises(DataError, match="a part of a name"):
        read_graph_file(tmp_path / "a.adjlist")


@pytest.mark.parametrize(("ending", "write"), [(".adjlist", nx.write_adjlist), (".edgelist", nx.write_edgelist)])
@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph])
def test_names_without_spaces_are_read(kind: type[nx.Graph], ending: str, write: object, tmp_path: Path) -> None:
    assert callable(write)
    graph = kind([("(a,b)", "c,"), ("c,", "[x]"), ("http://x/owl#Use", "(a,b)")])
    graph.add_node("alone") if ending == ".adjlist" else None
    write(graph, tmp_path / f"a{ending}")
    found = read_graph_file(tmp_path / f"a{ending}", directed=graph.is_directed())
    assert (len(found.names), len(found.edges)) == (graph.number_of_nodes(), graph.number_of_edges())


@pytest.mark.parametrize("both", [([], [{"source": 1, "target": 2}]), ([{"source": 1, "target": 2}], [])])
def test_an_empty_second_list_of_edges_in_json_is_none(both: tuple[list[object], list[object]], tmp_path: Path) -> None:
    content = {"nodes": [{"id": 1}, {"id": 2}], "edges": both[0], "links": both[1]}
    (tmp_path / "a.json").write_text(json.dumps(content))
    assert NetworkX(path=str(tmp_path / "a.json")).generate(tmp_path / "made").num_edges == 2
    twice = {**content, "edges": [{"source": 2, "target": 1}], "links": both[0] or both[1]}
    (tmp_path / "a.json").write_text(json.dumps(twice))
    with pytest.raises(DataError, match="two lists of edges"):
        read_graph_file(tmp_path / "a.json")
