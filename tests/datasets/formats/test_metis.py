"""Files are written after section 4.1.1 of METIS's manual: its own example, with every combination of weights."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnexp.config.compose import compose
from gnnexp.config.folders import own_folders
from gnnexp.config.hints import classes_of
from gnnexp.datasets.base import Dataset
from gnnexp.datasets.formats.metis import Metis
from gnnexp.datasets.looking.guess import recognised
from gnnexp.errors import DataError
from gnnexp.experiment.build import build
from gnnexp.graph.graph import Graph

CLASSES = classes_of("dataset", own_folders())
# The graph of the manual's figure 2: 7 vertices, 11 edges with weights.
EDGES = {
    (1, 5): 1,
    (1, 3): 2,
    (1, 2): 1,
    (2, 3): 2,
    (2, 4): 1,
    (3, 5): 3,
    (3, 4): 2,
    (4, 6): 2,
    (4, 7): 5,
    (5, 6): 2,
    (6, 7): 6,
}


def text(form: str = "", ncon: int = 0) -> str:
    digits = (form or "0").zfill(3)
    lines = ["% a comment", " ".join(["7", "11", form, str(ncon or "")]).strip()]
    for vertex in range(1, 8):
        numbers = [9] * (digits[0] == "1") + [8] * ((ncon or 1) * (digits[1] == "1"))
        for (u, v), weight in EDGES.items():
            if vertex in (u, v):
                numbers += [v if vertex == u else u, *([weight] if digits[2] == "1" else [])]
        lines += [" ".join(map(str, numbers)), "%"]
    return "\n".join(lines) + "\n"


def load(path: Path, **options: Any) -> Graph:
    return Metis(path=str(path), **options).load()


def edges_of(graph: Graph) -> dict[tuple[int, int], float]:
    weights = np.ones(graph.num_edges) if graph.edge_weights is None else graph.edge_weights.numpy()
    ends = zip(graph.indices.tolist(), graph.destinations().tolist(), weights.tolist(), strict=True)
    return {(u + 1, v + 1): weight for u, v, weight in ends}


@pytest.mark.parametrize(
    ("form", "ncon"),
    [("", 0), ("1", 0), ("001", 0), ("10", 0), ("010", 1), ("011", 3), ("100", 0), ("110", 2), ("111", 2)],
)
@pytest.mark.parametrize("symmetrize", [True, False])
def test_every_form_is_the_same_graph(form: str, ncon: int, symmetrize: bool, tmp_path: Path) -> None:
    (tmp_path / "x.graph").write_text(text(form, ncon))
    graph = load(tmp_path / "x.graph", symmetrize=symmetrize)
    weighted = form.endswith("1")
    both = {(u, v): float(weight) if weighted else 1.0 for (a, b), weight in EDGES.items() for u, v in ((a, b), (b, a))}
    assert edges_of(graph) == both and (graph.edge_weights is not None) == weighted
    left = [*["sizes"] * (form.zfill(3)[0] == "1"), *["weights"] * (form.zfill(3)[1] == "1")]
    assert any("left out" in note for note in graph.notes) == bool(left)


def test_the_graph_is_the_one_that_metis_partitions(tmp_path: Path) -> None:
    pymetis = pytest.importorskip("pymetis")
    (tmp_path / "x.graph").write_text(text())
    graph = load(tmp_path / "x.graph")
    lists = [graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist() for v in range(7)]
    expected = [sorted({v if u == vertex else u for u, v in EDGES if vertex in (u, v)}) for vertex in range(1, 8)]
    assert [[one + 1 for one in row] for row in lists] == expected
    cut, parts = pymetis.part_graph(2, adjacency=lists)
    assert cut == sum(parts[u - 1] != parts[v - 1] for u, v in EDGES)


def test_vertices_without_edges_have_empty_lines(tmp_path: Path) -> None:
    (tmp_path / "x.graph.gz").write_bytes(gzip.compress(b"4 1\n\n3\n2\n\n\n"))
    graph = load(tmp_path / "x.graph.gz")
    assert graph.num_nodes == 4 and edges_of(graph) == {(2, 3): 1, (3, 2): 1}


def test_data_prints_overrides_that_load_it(tmp_path: Path) -> None:
    (tmp_path / "x.graph").write_text(text("11"))
    (tmp_path / "labels.txt").write_text("a\nb\na\nb\na\nb\na\n")
    np.save(tmp_path / "features.npy", np.ones((7, 2)))
    for place in (tmp_path / "x.graph", tmp_path):
        lines = recognised(place, CLASSES).overrides
        assert lines[0] == "dataset=metis"
        graph = build(compose([*lines]).config["dataset"], Dataset).load()
        assert graph.num_edges == 22
    assert graph.num_classes == 2 and graph.num_features == 2


def test_a_graph_of_webgraph_is_refused_with_the_command(tmp_path: Path) -> None:
    (tmp_path / "cnr-2000.graph").write_bytes(b"\x12\x80")
    (tmp_path / "cnr-2000.properties").write_text("#BVGraph properties\nnodes=3\n")
    for place in (tmp_path / "cnr-2000.graph", tmp_path):
        with pytest.raises(DataError, match=r"ArcListASCIIGraph -g BVGraph \S+cnr-2000 \S+cnr-2000\.arcs"):
            recognised(place, CLASSES)
        with pytest.raises(DataError, match="WebGraph"):
            load(place)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "first line needs"),
        ("x y\n", "first line needs"),
        ("2 1 1111\n2\n1\n", "first line needs"),
        ("2 1 2\n2\n1\n", "first line needs"),
        ("3 1\n2\n1\n", "2 lines.*says 3 vertices"),
        ("2 1\n2\n1\n1\n", "3 lines.*says 2 vertices"),
        ("2 2\n2\n1\n", "2 neighbours.*says 2 edges"),
        ("2 1\n2\nx\n", "line 3"),
        ("2 1\n2\n1.5\n", "line 3"),
        ("2 1\n2\n99999999999999999999\n", "line 3"),
        ("2 1\n2\n3\n", "vertex 2.*from 1 to 2"),
        ("2 1\n2\n0\n", "vertex 2.*from 1 to 2"),
        ("3 1\n2\n3\n\n", "vertices 1, 2.*one line only"),
        ("2 1 1\n2 5\n1 6\n", "vertices 1, 2.*weights in both lines differ"),
        ("2 1 1\n2\n1\n", "vertex 1.*each neighbour"),
        ("2 1 10 3\n1 2\n1 1\n", "vertex 1.*there must be 3"),
        ("999999999999999999 1\n1\n", "says 999999999999999999 vertices"),
    ],
)
def test_damaged_files_are_named(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "x.graph").write_text(content)
    with pytest.raises(DataError, match=f"(?s){said}"):
        load(tmp_path / "x.graph")


def test_memory_for_lines_is_asked_for_before_they_are_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.graph").write_text("2 1\n2\n1\n")
    assert load(tmp_path / "x.graph").num_nodes == 2
    monkeypatch.setattr("gnnexp.datasets.formats.metis._LINE", 1 << 60)
    with pytest.raises(DataError, match=r"x\.graph: its lines.*GiB"):
        load(tmp_path / "x.graph")
