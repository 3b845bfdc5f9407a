"""A column of edges may have their types."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from own_tables import load, text
from pyarrow import parquet

from gnnexp.datasets.tables.dataset import Tables
from gnnexp.errors import DataError


def test_relations_are_types_of_edges(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,rel,dst,w", "0,b,1,0.5", "0,a,1,2", "1,b,2,3", "0,b,1,9")
    text(tmp_path / "more.csv", "src,dst", "2,0")
    dataset = Tables(
        path=str(tmp_path),
        edges={"e": {"table": "edges.csv"}, "m": {"table": "more.csv"}},
        symmetrize=False,
        merge_weights="min",
    )
    graph = dataset.generate(tmp_path / "graph")
    assert graph.edge_types is not None and graph.edge_weights is not None
    rows = zip(
        graph.indices.tolist(),
        graph.destinations().tolist(),
        graph.edge_types.tolist(),
        graph.edge_weights.tolist(),
        strict=True,
    )
    assert sorted(rows) == [(0, 1, 0, 2.0), (0, 1, 1, 0.5), (1, 2, 1, 3.0), (2, 0, 2, 1.0)]
    assert '"e/a"' in (tmp_path / "graph" / "names.json").read_text()
    (tmp_path / "more.csv").unlink()
    graph = load(tmp_path, merge_weights="min")
    assert graph.num_relations == 4, "reverses have relations of their own"
    assert load(tmp_path, relation=None, weight=None).edge_types is None
    assert any("relation=rel" in note for note in graph.notes)


def test_relations_that_are_numbers_are_in_their_order(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,kind,dst", "0,10,1", "0,9,1", "1,2,2")
    dataset = Tables(path=str(tmp_path), relation="kind", symmetrize=False)
    graph = dataset.generate(tmp_path / "graph")
    assert graph.edge_types is not None and graph.edge_types.tolist() == [1, 2, 0]
    assert '"2"' in (tmp_path / "graph" / "names.json").read_text()
    assert load(tmp_path).edge_types is None, "kind is no usual name"


def test_wrong_relations(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,relation,dst", "0,a,1", "0,,1")
    with pytest.raises(DataError, match=r"edges\.csv, line 3, column relation=None: is missing"):
        load(tmp_path)
    text(tmp_path / "edges.csv", "src,relation,dst", "0,1.5,1", "0,2.5,1")
    assert load(tmp_path).edge_types is None, "fractions are guessed to be no relations"
    assert load(tmp_path, relation="relation", symmetrize=False).edge_types is not None
    parquet.write_table(pa.table({"src": [0, 0], "relation": [1.5, 2.5], "dst": [1, 1]}), tmp_path / "edges.parquet")
    with pytest.raises(DataError, match="relations are texts or whole numbers"):
        load(tmp_path, edges="edges.parquet", relation="relation")


def test_reverses_have_no_type_of_their_own_where_edges_have_one_type(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,rel,dst", "0,a,1", "1,a,2")
    assert load(tmp_path).edge_types is None
    with pytest.raises(DataError, match="the edges of this graph have one type"):
        load(tmp_path, inverse_relations=True)
