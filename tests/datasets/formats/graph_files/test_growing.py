"""Memory is asked for while rows of graph files come, whatever their format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import networkx as nx
import pytest

from gnnexp.datasets.formats.graph_files import growing
from gnnexp.datasets.formats.networkx_files import read_graph_file
from gnnexp.errors import DataError

WRITERS: dict[str, Callable[[nx.Graph, str], None]] = {
    "edgelist": nx.write_edgelist,
    "adjlist": nx.write_adjlist,
    "net": nx.write_pajek,
    "gml": nx.write_gml,
    "graphml": nx.write_graphml,
    "gexf": nx.write_gexf,
}


def written(kind: str, folder: Path) -> Path:
    """A circle of nine vertices in a file."""
    graph, path = nx.relabel_nodes(nx.cycle_graph(9), str), folder / f"g.{kind}"
    WRITERS[kind](graph, str(path))
    return path


@pytest.mark.parametrize("kind", WRITERS)
def test_rows_that_do_not_fit_in_memory_are_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(kind, tmp_path)
    monkeypatch.setattr(growing, "_STEP", 4)
    assert len(read_graph_file(path).names) == 9
    monkeypatch.setattr(growing, "_NEXT", 1 << 60)
    with pytest.raises(DataError, match=rf"g\.{kind}.*more than 4 rows.*GiB"):
        read_graph_file(path)


def test_vertices_that_are_only_declared_are_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "g.net").write_text("*Vertices 2000000000\n*Edges\n1 2\n")
    monkeypatch.setattr(growing, "_STEP", 4)
    monkeypatch.setattr(growing, "_NEXT", 1 << 60)
    with pytest.raises(DataError, match=r"g\.net, nodes: more than 4 rows"):
        read_graph_file(tmp_path / "g.net")


def test_words_of_one_line_are_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "g.net").write_text('*Vertices 2\n1 "a" 0 0 0 b1 1 b2 2 b3 3\n2 "b"\n*Edges\n1 2\n')
    assert len(read_graph_file(tmp_path / "g.net").names) == 2
    monkeypatch.setattr(growing, "_STEP", 6)
    monkeypatch.setattr(growing, "_NEXT", 1 << 60)
    with pytest.raises(DataError, match=r"g\.net, line 2: more than 6 rows"):
        read_graph_file(tmp_path / "g.net")
