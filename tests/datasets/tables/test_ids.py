"""Ids of vertices: any integers or texts, with gaps."""

from pathlib import Path
from typing import Any
from weakref import WeakSet

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from own_tables import ids_of, load, made, named_edges, text

from gnnexp.datasets.reading.names import ids_file
from gnnexp.datasets.tables import dataset
from gnnexp.datasets.tables.engine import Engine, engine
from gnnexp.datasets.tables.files import find_files
from gnnexp.datasets.tables.ids import HeldTexts, IntegerIds, TextIds
from gnnexp.datasets.tables.written import bytes_of
from gnnexp.errors import DataError
from gnnexp.kernels.tables.texts import Dictionary

_IDS = {
    "numbers of vertices": st.integers(0, 3),
    "integers with gaps": st.integers(-40, 1000),
    "around 2^31": st.integers(2**31 - 3, 2**31 + 3),
    "large integers": st.integers(-(2**63), 2**63 - 1),
    "texts": st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=4).map("x{}".format),
}


@pytest.mark.parametrize("kind", _IDS)
@settings(max_examples=30)
@given(data=st.data())
def test_edges_lead_between_the_named_vertices(kind: str, data: st.DataObject, tmp_path_factory: Any) -> None:
    edges_lead_between_the_named_vertices(kind, data, tmp_path_factory.mktemp("own"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", _IDS)
@given(data=st.data())
def test_edges_of_more_tables(kind: str, data: st.DataObject, tmp_path_factory: Any) -> None:
    edges_lead_between_the_named_vertices(kind, data, tmp_path_factory.mktemp("own"))


def edges_lead_between_the_named_vertices(kind: str, data: st.DataObject, folder: Path) -> None:
    rows = data.draw(st.lists(st.tuples(_IDS[kind], _IDS[kind], st.integers(1, 9)), min_size=1, max_size=30))
    source, destination, weight = (list(column) for column in zip(*rows, strict=True))
    kinds = pa.string() if kind == "texts" else pa.int64()
    pq.write_table(
        pa.table({"head": pa.array(source, kinds), "tail": pa.array(destination, kinds), "w": weight}),
        folder / "edges.parquet",
    )
    weighted = data.draw(st.booleans())
    graph, place = made(
        folder,
        edges="edges.parquet",
        symmetrize=False,
        self_loops="keep",
        weight="w" if weighted else None,
        merge_weights="sum",
    )
    ids = ids_of(place)
    assert ids == sorted({*source, *destination}, key=lambda one: one if isinstance(one, int) else one.encode())
    total: dict[tuple[Any, ...], int] = {}
    for *pair, one in rows:
        total[tuple(pair)] = total.get(tuple(pair), 0) + one
    ends = list(zip(graph.indices.tolist(), graph.destinations().tolist(), strict=True))
    assert len(ends) == len(total) and {(ids[u], ids[v]) for u, v in ends} == set(total)
    if weighted:
        assert graph.edge_weights is not None
        assert graph.edge_weights.tolist() == [total[ids[u], ids[v]] for u, v in ends]


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
        zip(source, destination, strict=True)
    )
    text(tmp_path / "people.csv", "id", *map(str, range(49)))
    if nodes is not None:
        with pytest.raises(DataError, match="=49: is no vertex"):
            load(tmp_path, edges="edges.parquet", nodes=nodes)


_NAMES = ["zoë", "ann", "bob", "", "ann\0", "a" * 20, "a" * 19, "x, y", "10", "9"]


def _held(*batches: list[str]) -> Dictionary:
    made = Dictionary()
    for names in batches:
        made.numbers(*bytes_of(pa.array(names, pa.string())))
    return made


@pytest.mark.parametrize("parts", [1, 3])
def test_texts_in_memory_are_numbered_in_ascending_order(
    parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnnexp.datasets.tables.ids.BATCH_ROWS", 4)  # so that several groups of rows are written
    ids = HeldTexts.of([_held(_NAMES[part:], _NAMES[:part]) for part in range(parts)])
    ascending = sorted(_NAMES, key=str.encode)
    assert ids.count == len(_NAMES) and ids.numbers([*ascending, "unknown"]).tolist() == [*range(len(_NAMES)), -1]
    ids.save(tmp_path / "ids.parquet")
    saved = pq.read_table(tmp_path / "ids.parquet")
    assert saved.schema == pa.schema([("id", pa.string()), ("vertex", pa.int64())])
    assert saved.to_pydict() == {"id": ascending, "vertex": list(range(len(_NAMES)))}


def test_all_kinds_of_ids_find_the_same_numbers(tmp_path: Path) -> None:
    names, asked = ["10", "2", "33"], ["33", "10", "4", "2"]
    text(tmp_path / "edges.csv", "src,dst", "a,b")
    with engine(tmp_path, 1 << 28, 1) as reader:
        table = reader.table(find_files("dataset.edges", tmp_path, "edges.csv"))
        held = HeldTexts.of([_held(["33", "2"], ["10"])])
        kinds = [IntegerIds(np.array([10, 2, 33])), TextIds(reader, reader.texts(names), 3), held]
        for ids in kinds:
            rows = reader.rows(f"SELECT id::VARCHAR, number FROM {ids.table(reader)} ORDER BY number", table)
            assert rows == [("10", 0), ("2", 1), ("33", 2)]
        texts = _held(asked)
        for ids in kinds:
            assert ids.numbers(asked).tolist() == [2, 0, -1, 1]
            assert ids.finder_in(texts)(np.array([1, 0, 2, 3, 0])).tolist() == [0, 2, -1, 1, 2]


@given(names=st.lists(st.text("0123456789-x", max_size=21), min_size=1, max_size=9))
def test_texts_name_integers(names: list[str]) -> None:
    values = np.array([-5, 0, 12, 2**63 - 1, -(2**63)], np.int64)
    texts = ["-5", "12", str(2**63 - 1), str(-(2**63)), "x", "", "-", "9" * 30, str(2**63), str(-(2**63) - 1)]
    assert IntegerIds(values).numbers(texts).tolist() == [0, 2, 3, 4, *[-1] * 6]
    expected = [
        values.tolist().index(int(one)) if one.removeprefix("-").isdecimal() and int(one) in values else -1
        for one in names
    ]
    assert IntegerIds(values).numbers(names).tolist() == expected


# Bytes of a dictionary: all fit in memory; those of one table fit, but not those of all tables of people; none fits.
@pytest.mark.parametrize("num_bytes", [1, 2**28, 2**60])
def test_types_named_by_several_tables_share_their_texts(
    num_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text(tmp_path / "wrote.csv", "src,dst", "zoë,p2", "ann,p1", "zoë,p1")
    text(tmp_path / "cites.csv", "src,dst", "p3,p1", "p1,p0")
    text(tmp_path / "knows.csv", "src,dst", "bob,ann", "ann,cid")
    text(tmp_path / "likes.csv", "src,dst", "cid,dan")
    tables = {
        "wrote": ("person", "paper"),
        "cites": ("paper", "paper"),
        "knows": ("person", "person"),
        "likes": ("person", "person"),
    }
    edges = {name: {"table": f"{name}.csv", "from": ends[0], "to": ends[1]} for name, ends in tables.items()}
    monkeypatch.setattr(Dictionary, "num_bytes", num_bytes)
    made_in_memory = []
    of = HeldTexts.of
    monkeypatch.setattr(HeldTexts, "of", staticmethod(lambda given: made_in_memory.append(len(given)) or of(given)))
    graph, place = made(tmp_path, edges=edges, symmetrize=False)
    assert made_in_memory == {1: [3, 2], 2**28: [2], 2**60: []}[num_bytes]
    people, papers = ["ann", "bob", "cid", "dan", "zoë"], ["p0", "p1", "p2", "p3"]
    ids = {kind: pq.read_table(place / ids_file(kind))["id"].to_pylist() for kind in ("person", "paper")}
    assert ids == {"person": people, "paper": papers}
    assert named_edges(graph, [*people, *papers]) == {
        ("zoë", "p2"),
        ("ann", "p1"),
        ("zoë", "p1"),
        ("p3", "p1"),
        ("p1", "p0"),
        ("bob", "ann"),
        ("ann", "cid"),
        ("cid", "dan"),
    }


def test_texts_and_the_engine_are_freed_before_edges_are_sorted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text(tmp_path / "edges.csv", "src,dst", "b,a", "c,b")
    dictionaries, engines, alive = WeakSet[Dictionary](), list[Engine](), list[int]()
    first, opened, write = Dictionary.__init__, Engine.__init__, dataset.write_edges

    def counted(self: Dictionary) -> None:
        first(self)
        dictionaries.add(self)

    def kept(self: Engine, connection: Any) -> None:
        opened(self, connection)
        engines.append(self)

    def written(*given: Any) -> Any:
        alive.append(len(dictionaries))
        with pytest.raises(duckdb.ConnectionException):
            engines[0].count("any table")
        return write(*given)

    monkeypatch.setattr(Dictionary, "__init__", counted)
    monkeypatch.setattr(Engine, "__init__", kept)
    monkeypatch.setattr(dataset, "write_edges", written)
    graph, place = made(tmp_path, symmetrize=False)
    assert alive == [0] and named_edges(graph, ids_of(place)) == {("b", "a"), ("c", "b")}


LONG = [f"{number:08d}{'x' * 197}" for number in range(400_000)]


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [None, "nodes.csv"])
def test_long_texts_in_little_memory(nodes: str | None, tmp_path: Path) -> None:
    """205 bytes for each id, and four times the buffer for all of them."""
    ends = np.random.default_rng(0).integers(0, len(LONG), (800_000, 2))
    with (tmp_path / "edges.csv").open("w") as file:
        file.writelines(["src,dst\n", *(f"{LONG[u]},{LONG[v]}\n" for u, v in ends.tolist())])
    (tmp_path / "nodes.csv").write_text("".join(["id\n", *(f"{one}\n" for one in LONG)]))
    graph, place = made(tmp_path, nodes=nodes, symmetrize=False, self_loops="keep", buffer_bytes=1 << 26)
    ids = ids_of(place)
    assert ids == (LONG if nodes else [LONG[one] for one in np.unique(ends).tolist()])
    numbers = np.array([int(one[:8]) for one in ids])
    found = np.stack([numbers[graph.indices.numpy()], numbers[graph.destinations().numpy()]], 1)
    np.testing.assert_array_equal(np.unique(found, axis=0), np.unique(ends, axis=0))


def test_too_little_memory_names_the_key(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", "a,b")
    with engine(tmp_path, 1 << 23, 2) as reader:
        table = reader.table(find_files("dataset.edges", tmp_path, "edges.csv"))
        large = "SELECT list(range::VARCHAR) AS id FROM range(3_000_000)"
        for ask in (
            lambda: reader.rows(large, table),
            lambda: list(reader.batches(large, table)),
            lambda: reader.keep(large, table),
            lambda: reader.copy(large, tmp_path / "ids.parquet"),
        ):
            with pytest.raises(DataError, match=r"set a larger dataset\.buffer_bytes"):
                ask()
        assert reader.rows(f"SELECT src FROM {table.name}", table) == [("a",)]
