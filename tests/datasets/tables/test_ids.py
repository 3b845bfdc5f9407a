"""Ids of vertices: any integers or texts, with gaps."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from own_tables import ids_of, load, made, named_edges, text

from gnnexp.errors import DataError

_IDS = {
    "numbers of vertices": st.integers(0, 3), "integers with gaps": st.integers(-40, 1000),
    "around 2^31": st.integers(2**31 - 3, 2**31 + 3), "large integers": st.integers(-(2**63), 2**63 - 1),
    "texts": st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=4).map("x{}".format),
}


@pytest.mark.parametrize("kind", _IDS)
@given(data=st.data())
def test_edges_lead_between_the_named_vertices(kind: str, data: st.DataObject, tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("own")
    rows = data.draw(st.lists(st.tuples(_IDS[kind], _IDS[kind], st.integers(1, 9)), min_size=1, max_size=30))
    source, destination, weight = (list(column) for column in zip(*rows, strict=True))
    kinds = pa.string() if kind == "texts" else pa.int64()
    pq.write_table(pa.table({"head": pa.array(source, kinds), "tail": pa.array(destination, kinds), "w": weight}),
                   folder / "edges.parquet")
    weighted = data.draw(st.booleans())
    graph, place = made(folder, edges="edges.parquet", symmetrize=False, self_loops="keep",
                        weight="w" if weighted else None)
    ids = ids_of(place)
    assert ids == sorted({*source, *destination}, key=lambda one: one if isinstance(one, int) else one.encode())
    first = {}
    for *pair, one in rows:
        first.setdefault(tuple(pair), one)
    ends = list(zip(graph.indices.tolist(), graph.destinations().tolist(), strict=True))
    assert len(ends) == len(first) and {(ids[u], ids[v]) for u, v in ends} == set(first)
    if weighted:
        assert graph.edge_weights is not None
        assert graph.edge_weights.tolist() == [first[ids[u], ids[v]] for u, v in ends]


@pytest.mark.parametrize("held", [4, 2**40])
def test_a_late_large_id_widens_earlier_ids(held: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnexp.datasets.tables.engine.BATCH_ROWS", 2048)
    monkeypatch.setattr("gnnexp.datasets.tables.write._HELD", held)  # all pieces in memory, or none
    source, destination = [*range(6000), 2**40, 5], [*range(1, 6001), -7, 2**40]
    pq.write_table(pa.table({"src": source, "dst": destination}), tmp_path / "edges.parquet")
    graph, place = made(tmp_path, edges="edges.parquet", symmetrize=False)
    assert named_edges(graph, ids_of(place)) == set(zip(source, destination, strict=True))


@pytest.mark.parametrize("nodes", [None, "people.csv"])
def test_ids_that_are_the_numbers_of_their_vertices(nodes: str | None, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    source, destination = draw.integers(0, 50, (2, 4000)).tolist()
    pq.write_table(pa.table({"src": source, "dst": destination}), tmp_path / "edges.parquet")
    text(tmp_path / "people.csv", "id", *map(str, range(50)))
    graph, place = made(tmp_path, edges="edges.parquet", nodes=nodes, symmetrize=False, self_loops="keep")
    assert ids_of(place) == list(range(50)) and named_edges(graph, range(50)) == set(
        zip(source, destination, strict=True))
    text(tmp_path / "people.csv", "id", *map(str, range(49)))
    if nodes is not None:
        with pytest.raises(DataError, match="=49: is no vertex"):
            load(tmp_path, edges="edges.parquet", nodes=nodes)
