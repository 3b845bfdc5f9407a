"""`split=time`: vertices by a column of their table, links by a column of theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from own_tables import load, text

from gnnexp.datasets.tables.dataset import Tables
from gnnexp.errors import ConfigError, DataError
from gnnexp.graph.graph import Graph
from gnnexp.kernels.tables.texts import Dictionary

COLUMNS = {
    "numbers": ["5", "1", "4", "2", "3", ""],
    "fractions": ["5.5", "1.25", "4", "2", "3", ""],
    "dates": ["2021-05-05", "2019-01-01", "2021-01-01", "2020-01-01", "2020-06-01", ""],
    "moments": [
        "2021-05-05T10:00:00",
        "2021-05-05T00:00:01",
        "2021-05-05 09:00:00",
        "2021-05-05T01:00:00",
        "2021-05-05T08:59:59.5",
        "",
    ],
    # In UTC: 12:00, 08:00, 11:00, 09:00, 10:00.
    "zones": [
        "2021-05-05T12:00:00Z",
        "2021-05-05T10:00:00+02:00",
        "2021-05-05T05:00:00-06:00",
        "2021-05-05T09:00:00Z",
        "2021-05-05T11:00:00+01:00",
        "",
    ],
}


def split_of(graph: Graph) -> list[list[int]]:
    return [part.tolist() for part in (graph.splits.train, graph.splits.val, graph.splits.test)]


@pytest.mark.parametrize("kind", COLUMNS)
def test_the_oldest_vertices_are_for_training(kind: str, tmp_path: Path) -> None:
    """The last vertex has no label, so it needs no time."""
    text(tmp_path / "edges.csv", "src,dst", "0,1")
    rows = zip(range(6), ["a", "b", "a", "b", "a", ""], COLUMNS[kind], strict=True)
    text(tmp_path / "n.csv", "id,label,f,when", *(f"{one},{label},1,{time}" for one, label, time in rows))
    graph = load(tmp_path, nodes="n.csv", split="time", time="when", train=0.6, val=0.2)
    assert split_of(graph) == [[1, 3, 4], [2], [0]]
    assert graph.num_features == 1, "a time is no feature"
    assert any(note.startswith("vertices split by when: val from ") for note in graph.notes)


@pytest.mark.parametrize("kind", ["dates", "moments", "zones"])
def test_texts_of_json_are_times(kind: str, tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", "0,1")
    rows = zip(range(5), ["a", "b", "a", "b", "a"], COLUMNS[kind], strict=False)
    text(tmp_path / "n.jsonl", *(json.dumps({"id": one, "label": label, "when": time}) for one, label, time in rows))
    graph = load(tmp_path, nodes="n.jsonl", split="time", time="when", train=0.6, val=0.2)
    assert split_of(graph) == [[1, 3, 4], [2], [0]]


@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("ns"),
        pa.timestamp("us", tz="Europe/Berlin"),
        pa.timestamp("s"),
        pa.date32(),
        pa.int64(),
        pa.float64(),
        pa.decimal128(20, 3),
    ],
)
def test_columns_of_parquet(kind: pa.DataType, tmp_path: Path) -> None:
    days = pa.array([20_000, 10_000, 15_000, 12_000, None], pa.int32())
    times = (
        days.cast(kind)
        if not pa.types.is_timestamp(kind)
        else days.cast(pa.date32()).cast(pa.timestamp(kind.unit)).cast(kind)
    )
    pq.write_table(pa.table({"src": [0], "dst": [1]}), tmp_path / "e.parquet")
    labels = pa.array([0, 1, 1, 0, None], pa.int64())
    pq.write_table(pa.table({"id": range(5), "label": labels, "date": times}), tmp_path / "n.parquet")
    graph = load(tmp_path, edges="e.parquet", nodes="n.parquet", split="time", train=0.5, val=0.25)
    assert split_of(graph) == [[1, 3], [2], [0]]


@pytest.mark.parametrize(
    ("time", "said"),
    [("", "n.csv, line 3, column when"), ("NaN", "n.csv, line 3, column when"), ("inf", "n.csv, line 3, column when")],
)
def test_labelled_vertices_need_a_time(time: str, said: str, tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", "0,1")
    text(tmp_path / "n.csv", "id,label,when", "0,a,1.5", f"1,b,{time}", "2,a,3")
    with pytest.raises(DataError, match=said):
        load(tmp_path, nodes="n.csv", split="time", time="when")


def test_a_text_that_is_no_date_is_named(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", "0,1")
    text(tmp_path / "n.csv", "id,label,when", "0,a,2020-01-01", "1,b,soon", "2,a,2020-01-02")
    with pytest.raises(DataError, match=r"n.csv, line 3, column when=.*no date"):
        load(tmp_path, nodes="n.csv", split="time", time="when")


def test_what_a_split_by_time_needs(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", "0,1")
    text(tmp_path / "n.csv", "id,label,when", "0,a,1", "1,b,1", "2,a,1")
    with pytest.raises(DataError, match="no column has a usual name of the time"):
        load(tmp_path, nodes="n.csv", split="time")
    with pytest.raises(DataError, match="have 1 different times, and 2 parts need one each"):
        load(tmp_path, nodes="n.csv", split="time", time="when")
    with pytest.raises(ConfigError, match="needs a table of vertices"):
        Tables(split="time")
    with pytest.raises(DataError, match=r"has no such column.*dataset\.label=null|dataset\.time"):
        load(tmp_path, nodes="n.csv", split="time", time="year", link_split={"val": 0.2, "test": 0.2})


@pytest.mark.parametrize("ids", [range(8), "abcdefgh"])
@pytest.mark.parametrize("duplicates", ["merge", "keep"])
def test_the_newest_links_are_held_out(ids: Any, duplicates: Any, tmp_path: Path) -> None:
    """A link is as old as its oldest row, in either direction. Rows of 2021 name links of 2010 and 2012 again."""
    edges = [
        (0, 1, 2010),
        (1, 2, 2011),
        (3, 2, 2012),
        (3, 4, 2013),
        (4, 5, 2014),
        (5, 6, 2018),
        (6, 7, 2020),
        (1, 0, 2021),
        (2, 3, 2021),
        (2, 2, 2022),
    ]
    text(tmp_path / "edges.csv", "src,dst,year", *(f"{ids[u]},{ids[v]},{year}" for u, v, year in edges))
    graph = load(tmp_path, split="time", link_split={"val": 0.15, "test": 0.15}, duplicates=duplicates)
    found = {name: {frozenset(pair) for pair in links.tolist()} for name, links in graph.links.items()}
    assert found["valid"] == {frozenset((5, 6))} and found["test"] == {frozenset((6, 7))}
    assert len(found["train"]) == 5
    kept = {frozenset(pair) for pair in zip(graph.indices.tolist(), graph.destinations().tolist(), strict=True)}
    assert kept == found["train"]
    assert any("links split by year: val from 2018 on; test from 2020 on" in note for note in graph.notes)


@pytest.mark.parametrize("inverse", [True, False])
def test_links_of_relations_are_held_out_by_time(inverse: bool, tmp_path: Path) -> None:
    rows = [
        ("a", "likes", "b", "2020-01-01"),
        ("b", "likes", "a", "2020-01-02"),
        ("a", "knows", "b", "2020-01-03"),
        ("c", "knows", "a", "2020-01-04"),
        ("b", "likes", "c", "2020-01-05"),
        ("c", "likes", "b", "2020-01-06"),
    ]
    text(tmp_path / "edges.csv", "head,relation,tail,date", *(",".join(row) for row in rows))
    graph = load(tmp_path, split="time", link_split={"val": 0.2, "test": 0.2}, inverse_relations=inverse)
    if inverse:  # knows is 0, and each row is a link; likes is 1, and has both directions, which are one link
        assert graph.links["test"].tolist() == [[2, 1, 1], [1, 1, 2]] and graph.links["valid"].tolist() == [[2, 0, 0]]
        assert graph.num_relations == 4
    else:  # (a, b) and (b, a) are one link, and so are (b, c) and (c, b)
        assert graph.links["test"].tolist() == [[1, 1, 2]] and graph.links["valid"].tolist() == [[0, 0, 2]]


def test_tables_of_edges_need_times_of_one_kind(tmp_path: Path) -> None:
    text(tmp_path / "a.csv", "src,dst,time", "0,1,5", "1,2,6")
    text(tmp_path / "b.csv", "src,dst,time", "0,1,2020-01-01", "1,2,2020-01-02")
    options: dict[str, Any] = {"split": "time", "link_split": {"val": 0.3, "test": 0.3}}
    with pytest.raises(DataError, match="times of different kinds"):
        load(tmp_path, edges={"a": {"table": "a.csv"}, "b": {"table": "b.csv"}}, **options)
    with pytest.raises(DataError, match=r"edges\.csv, line 3, column time"):
        text(tmp_path / "edges.csv", "src,dst,time", "0,1,5", "1,2,")
        load(tmp_path, **options)


def test_a_link_is_as_old_as_its_oldest_row_also_if_texts_do_not_fit_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(0)
    once = draw.integers(0, 10**6, (2, 100_000))  # more vertices than edges: then DuckDB joins in another order
    ends = np.concatenate([once, once[:, draw.permutation(100_000)]], axis=1)
    pq.write_table(
        pa.table(
            {
                "src": [f"u{one}" for one in ends[0]],
                "dst": [f"u{one}" for one in ends[1]],
                "time": draw.permutation(200_000),
            }
        ),
        tmp_path / "edges.parquet",
    )
    options: dict[str, Any] = {"edges": "edges.parquet", "split": "time", "link_split": {"val": 0.1, "test": 0.1}}
    first = load(tmp_path, **options)
    monkeypatch.setattr(Dictionary, "num_bytes", 2**60)
    again = load(tmp_path, **options)
    assert first.links is not None and again.links is not None and set(first.links) == set(again.links)
    assert all(first.links[name].equal(again.links[name]) for name in first.links)


ROWS_IN_TIME = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from([0.5, 1.0, 3.0]), st.integers(0, 9)),
    min_size=6,
    max_size=30,
)


@given(rows=ROWS_IN_TIME, again=st.randoms(use_true_random=False), merge=st.booleans())
@settings(max_examples=8)
def test_only_rows_of_the_training_period_count(rows: Any, again: Any, merge: bool, tmp_path_factory: Any) -> None:
    """A later row of a link gives training neither its weight nor one more edge, and no order of rows matters."""
    rows = [row for row in rows if row[0] != row[1]]
    oldest: dict[frozenset[int], int] = {}
    for u, v, _, time in rows:
        oldest[frozenset((u, v))] = min(time, oldest.get(frozenset((u, v)), 99))
    assume(len(set(oldest.values())) >= 3 and len(oldest) >= 5)
    options = {
        "split": "time",
        "link_split": {"val": 0.2, "test": 0.2},
        "merge_weights": "sum",
        "duplicates": "merge" if merge else "keep",
    }
    graphs = []
    for _ in range(2):
        folder = tmp_path_factory.mktemp("rows")
        text(folder / "nodes.csv", "id", *map(str, range(6)))
        text(folder / "edges.csv", "src,dst,weight,time", *(",".join(map(str, row)) for row in rows))
        graphs.append(load(folder, nodes="nodes.csv", **options))
        again.shuffle(rows)
    graph, other = graphs
    assert graph.indices.equal(other.indices) and graph.edge_weights.equal(other.edge_weights)
    held = {frozenset(pair) for name in ("valid", "test") for pair in graph.links[name].tolist()}
    begins = min(oldest[pair] for pair in held)
    assert held == {pair for pair, time in oldest.items() if time >= begins}
    right: dict[tuple[int, int], list[float]] = {}
    for u, v, weight, time in rows:
        if time < begins:
            right.setdefault((u, v), []).append(weight)
    backward = {(v, u): weights for (u, v), weights in right.items() if not merge or (v, u) not in right}
    whole = {pair: right.get(pair, []) + backward.get(pair, []) for pair in right | backward}
    whole = {pair: [sum(weights)] if merge else sorted(weights) for pair, weights in whole.items()}
    found: dict[tuple[int, int], list[float]] = {}
    for u, v, weight in zip(
        graph.indices.tolist(), graph.destinations().tolist(), graph.edge_weights.tolist(), strict=True
    ):
        found.setdefault((u, v), []).append(weight)
    assert found == whole


def test_weights_that_differ_after_the_training_period_are_no_error(tmp_path: Path) -> None:
    """As in the review: the newest row had the weight 100, and its link is of training."""
    rows = ["0,1,1,1", "1,2,1,2", "2,3,1,3", "3,4,1,4", "4,5,1,9", "5,6,1,10", "0,1,100,11"]
    for lines in (rows, rows[::-1]):
        text(tmp_path / "edges.csv", "src,dst,weight,time", *lines)
        graph = load(tmp_path, split="time", link_split={"val": 0.2, "test": 0.2})
        assert graph.edge_weights is not None and set(graph.edge_weights.tolist()) == {1.0}
    text(tmp_path / "edges.csv", "src,dst,weight,time", *rows, "0,1,2,2")
    with pytest.raises(DataError, match=r"1 edge is there more than once with different weights \(0 -> 1: 1 to 2\)"):
        load(tmp_path, split="time", link_split={"val": 0.2, "test": 0.2})


def test_a_later_reverse_in_another_relation_is_left_out(tmp_path: Path) -> None:
    """`rev` has the reverses of `buys`. A link is as old as its oldest row; the other one would tell of the future."""
    pairs = [(f"u{one}", f"i{one}") for one in range(10)]
    rows = [f"{u},buys,{i},{time}" for time, (u, i) in enumerate(pairs)]
    rows += [f"{i},rev,{u},{50 if time == 3 else time}" for time, (u, i) in enumerate(pairs)]
    text(tmp_path / "edges.csv", "head,relation,tail,time", *rows)
    graph = load(tmp_path, split="time", link_split={"val": 0.2, "test": 0.2}, symmetrize=False)
    assert graph.num_edges == 11 and len(graph.links["train"]) == 11  # of six links, one lacks its reverse
    assert any("1 edges of training links are left out" in note for note in graph.notes)
