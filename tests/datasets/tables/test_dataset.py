import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse
import torch
from own_tables import ids_of, load, made, named_edges, text

from gnnexp.datasets.tables.dataset import Tables
from gnnexp.errors import ConfigError, DataError
from gnnexp.graph.sparse import SparseRows
from gnnexp.kernels.tables.texts import Dictionary

EDGES = {"src": [70, 7, -5, 7], "dst": [7, -5, 70, 70]}


@pytest.mark.parametrize("file", ["e.csv", "e.tsv", "e.jsonl", "e.parquet", "e.feather", "e.csv.gz"])
def test_every_format_is_the_same_graph(file: str, tmp_path: Path) -> None:
    path, table = tmp_path / file, pa.table(EDGES)
    if file.endswith("parquet"):
        pq.write_table(table, path)
    elif file.endswith("feather"):
        pyarrow.feather.write_feather(table, str(path))
    elif file.endswith("jsonl"):
        text(path, *(json.dumps(row) for row in table.to_pylist()))
    else:
        table.to_pandas().to_csv(path, index=False, sep="\t" if ".tsv" in file else ",")
    graph, folder = made(tmp_path, edges=file, symmetrize=False)
    assert ids_of(folder) == [-5, 7, 70]
    assert graph.destinations().tolist() == [0, 1, 2, 2] and graph.indices.tolist() == [1, 2, 0, 1]


@pytest.mark.parametrize("pattern", ["shards", "shards/*.csv", "shards/part[0-9].csv"])
def test_shards_are_one_table_in_the_order_of_their_names(pattern: str, tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    text(tmp_path / "shards" / "part1.csv", "src,dst", "2,3")
    text(tmp_path / "shards" / "part0.csv", "src,dst", "1,2")
    graph, folder = made(tmp_path, edges=pattern)
    assert named_edges(graph, ids_of(folder)) == {(1, 2), (2, 1), (2, 3), (3, 2)}


def test_a_file_may_have_the_signs_of_a_pattern_in_its_name(tmp_path: Path) -> None:
    text(tmp_path / "a[1]*.csv", "src,dst", "1,2")
    text(tmp_path / "a1.csv", "src,dst", "8,9")
    assert load(tmp_path, edges="a[1]*.csv").num_nodes == 2


def people(folder: Path) -> None:
    text(folder / "edges.csv", "from,to", "ann,bob", "bob,zoë")
    text(
        folder / "people.csv",
        "name,age,income,class,group,town",
        "zoë,30,1.5,good,train,x",
        "ann,20,2.5,bad,dev,y",
        "bob,50,3.5,good,test,x",
        '"c, d",1,0,,,z',
    )


def test_a_table_of_vertices_has_features_labels_and_splits(tmp_path: Path) -> None:
    people(tmp_path)
    graph, folder = made(tmp_path, nodes="people.csv", split="column", split_column="group", train=0.0)
    assert ids_of(folder) == ["zoë", "ann", "bob", "c, d"]
    assert isinstance(graph.features, torch.Tensor) and graph.labels is not None
    assert graph.features.tolist() == [[30, 1.5], [20, 2.5], [50, 3.5], [1, 0]]
    assert graph.labels.tolist() == [1, 0, 1, -1] and graph.num_classes == 2
    assert [part.tolist() for part in (graph.splits.train, graph.splits.val, graph.splits.test)] == [[0], [1], [2]]
    names = json.loads((folder / "names.json").read_text())
    assert names["classes"] == ["bad", "good"] and names["types"] == ["vertex"]
    assert graph.notes == (
        "people.csv: id=name; label=class; split=group; features=age, income; not used: town",
        "edges.csv: source=from; destination=to",
        "1 of 4 vertices have no label",
    )


def test_categories_are_one_hot_and_numbers_can_be_standardized(tmp_path: Path) -> None:
    people(tmp_path)
    graph = load(tmp_path, nodes="people.csv", features=["age"], categories=["town"], standardize=True)
    assert isinstance(graph.features, torch.Tensor)
    ages = np.array([30, 20, 50, 1.0])
    assert np.allclose(graph.features[:, 0], (ages - ages.mean()) / ages.std())
    assert graph.features[:, 1:].tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize(("empty", "value"), [("mean", 3.0), ("zero", 0.0)])
def test_empty_cells_can_be_filled(empty: Any, value: float, tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", "1,2")
    text(tmp_path / "nodes.csv", "id,f", "1,2", "2,", "3,4")
    graph = load(tmp_path, nodes="nodes.csv", empty=empty)
    assert isinstance(graph.features, torch.Tensor) and graph.features[:, 0].tolist() == [2, value, 4]
    with pytest.raises(DataError, match="line 3, column f=None"):
        load(tmp_path, nodes="nodes.csv")


def test_lists_are_columns(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", "1,2")
    text(tmp_path / "n.jsonl", '{"id": 1, "f": [1, 2.5]}', '{"id": 2, "f": [3, 4]}')
    graph = load(tmp_path, nodes="n.jsonl")
    assert isinstance(graph.features, torch.Tensor) and graph.features.tolist() == [[1, 2.5], [3, 4]]
    text(tmp_path / "n.jsonl", '{"id": 1, "f": [1, 2.5]}', '{"id": 2, "f": [3]}')
    with pytest.raises(DataError, match="lengths 1 to 2"):
        load(tmp_path, nodes="n.jsonl")


@pytest.mark.parametrize("ids", [[3, 1, 2], ["c", "a", "b"]])
def test_a_file_of_words_belongs_to_ids(ids: list[Any], tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "id_1,id_2", f"{ids[0]},{ids[1]}")
    text(tmp_path / "target.csv", "id,page_type", *(f"{one},{kind}" for one, kind in zip(ids, "xyx", strict=True)))
    (tmp_path / "words.json").write_text(json.dumps({str(ids[2]): [4, 0, 4], str(ids[0]): [2]}))
    graph = load(tmp_path, nodes="target.csv", features="words.json", label="page_type")
    rows = graph.features.to_dense() if isinstance(graph.features, SparseRows) else graph.features
    assert rows is not None and rows.tolist() == [[0, 0, 1, 0, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 1]]
    (tmp_path / "words.json").write_text(json.dumps({"77": [1], "zz": [1]}))
    with pytest.raises(DataError, match="2 ids are no vertices"):
        load(tmp_path, nodes="target.csv", features="words.json", label="page_type")


@pytest.mark.parametrize("form", ["npy", "npz", "sparse"])
def test_a_matrix_has_a_row_for_each_vertex(form: str, tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", "0,3")
    rows = np.arange(10, dtype=np.float64).reshape(5, 2)
    file = "f.npy" if form == "npy" else "f.npz"
    if form == "sparse":
        scipy.sparse.save_npz(tmp_path / file, scipy.sparse.csr_array(rows))
    else:
        np.save(tmp_path / file, rows) if form == "npy" else np.savez(tmp_path / file, x=rows)
    graph = load(tmp_path, features=file)  # without a table of vertices, ids are the numbers of the rows
    found = graph.features.to_dense() if isinstance(graph.features, SparseRows) else graph.features
    assert graph.num_nodes == 5 and found is not None and found.tolist() == rows.tolist()
    text(tmp_path / "nodes.csv", "id,label", *(f"{one},a" for one in range(4)))
    with pytest.raises(DataError, match="5 rows"):
        load(tmp_path, features=file, nodes="nodes.csv")


def test_types_of_vertices_and_edges(tmp_path: Path) -> None:
    text(tmp_path / "authors.jsonl", '{"id": "a1", "h": 3}', '{"id": "a2", "h": 4}')
    text(tmp_path / "papers.tsv", "paper_id\tyear\tvenue", "p1\t2000\tkdd", "p2\t2001\t", "p3\t2002\ticml")
    text(tmp_path / "writes.csv", "paper,author", "p1,a2", "p3,a1")
    text(tmp_path / "cites.csv", "citing,cited", "p1,p2")
    graph, folder = made(
        tmp_path,
        nodes={"author": "authors.jsonl", "paper": "papers.tsv"},
        label="venue",
        sparse=False,
        edges={
            "writes": {"table": "writes.csv", "from": "author", "to": "paper"},
            "cites": {"table": "cites.csv", "from": "paper", "to": "paper"},
        },
    )
    assert graph.node_types is not None and graph.edge_types is not None and graph.labels is not None
    assert graph.node_types.tolist() == [0, 0, 1, 1, 1] and graph.labels.tolist() == [-1, -1, 1, -1, 0]
    ids = [*ids_of(folder, "author"), *ids_of(folder, "paper")]
    ends = zip(graph.indices.tolist(), graph.destinations().tolist(), graph.edge_types.tolist(), strict=True)
    assert {(ids[u], ids[v], kind) for u, v, kind in ends} == {
        ("a2", "p1", 0),
        ("a1", "p3", 0),
        ("p1", "p2", 1),
        ("p1", "a2", 2),
        ("p3", "a1", 2),
        ("p2", "p1", 3),
    }
    assert isinstance(graph.features, torch.Tensor)
    assert graph.features.tolist() == [[1, 0, 3, 0], [1, 0, 4, 0], [0, 1, 0, 2000], [0, 1, 0, 2001], [0, 1, 0, 2002]]
    split = np.concatenate([graph.splits.train, graph.splits.val, graph.splits.test])
    assert sorted(split.tolist()) == [2, 4]


@pytest.mark.parametrize(
    ("column", "labels", "classes"),
    [
        (["b", "a", "b"], [1, 0, 1], ["a", "b"]),
        (["0", "2", "1"], [0, 2, 1], ["0", "1", "2"]),
        (["7", "", "3"], [1, -1, 0], ["3", "7"]),
        (["1.0", "", "3.0"], [0, -1, 1], ["1", "3"]),
        (["true", "false", "true"], [1, 0, 1], ["false", "true"]),
        (["yes", "no", "true"], [2, 0, 1], ["no", "true", "yes"]),
        (["1.0", "2", "1.0"], [0, 1, 0], ["1.0", "2"]),
        (["01", "1", "10"], [0, 1, 2], ["01", "1", "10"]),
        (["9", "10", str(2**64)], [0, 1, 2], ["9", "10", str(2**64)]),
        (["nan", "1.0", "2.0"], [-1, 0, 1], ["1", "2"]),
        ([str(2**53), str(2**53 + 1), "5"], [1, 2, 0], ["5", str(2**53), str(2**53 + 1)]),
    ],
)
def test_classes_are_names_or_whole_numbers(
    column: list[str], labels: list[int], classes: list[str], tmp_path: Path
) -> None:
    text(tmp_path / "edges.csv", "src,dst", "1,2")
    text(tmp_path / "nodes.csv", "id,y", *(f"{one},{name}" for one, name in zip((3, 1, 2), column, strict=True)))
    graph, folder = made(tmp_path, nodes="nodes.csv")
    assert graph.labels is not None and graph.labels.tolist() == labels
    assert json.loads((folder / "names.json").read_text())["classes"] == classes


def test_edges_to_unknown_vertices_are_named_or_dropped(tmp_path: Path) -> None:
    for ids in (["1", "2"], ["x", "y"]):
        text(tmp_path / "edges.csv", "src,dst", f"{ids[0]},{ids[1]}", f"99,{ids[0]}", f"{ids[1]},98", "97,96")
        text(tmp_path / "nodes.csv", "id,label", f"{ids[0]},a", f"{ids[1]},b")
        with pytest.raises(DataError) as caught:
            load(tmp_path, nodes="nodes.csv")
        said = str(caught.value)
        assert [
            said.count(f"line {line}, column {end}") for line, end in ((3, "src"), (4, "dst"), (5, "src"), (5, "dst"))
        ] == [1, 1, 1, 1] and "line 2," not in said
        graph = load(tmp_path, nodes="nodes.csv", on_unknown="drop")
        assert graph.num_edges == 2 and graph.notes[-2] == "dropped 3 edges of 'edges' with an unknown end"


_BAD = {
    "nothing": ((), ("id,label", "1,a"), "dataset.edges='edges.csv'"),
    "only names": (("src,dst",), ("id,label", "1,a"), "there are no edges"),
    "short row": (("src,dst", "1,2", "3"), ("id,label", "1,a"), "edges.csv, line 3"),
    "missing end": (("src,dst", "1,2", "3,"), ("id,label", "1,a", "2,a", "3,a"), "edges.csv, line 3, column dst=None"),
    "repeated id": (("src,dst", "1,2"), ("id,label", "1,a", "2,a", "1,b"), "column id=1: is the id of an earlier"),
    "missing id": (("src,dst", "1,2"), ("id,label", "1,a", ",b"), "nodes.csv, line 3, column id=None: is missing"),
    "two labels": (("src,dst", "1,2"), ("id,label,class", "1,a,b", "2,a,b"), "2 columns may be the label"),
    "no id": (("src,dst", "1,2"), ("number,class", "1,a", "2,a"), "no column has a usual name of the id"),
    "unclear ends": (("a,b,c", "1,2,3"), ("id,label", "1,a"), "no two columns have usual names of ends"),
    "two pairs": (("src,dst,u,v", "1,2,3,4"), ("id,label", "1,a"), "2 pairs of columns may be the ends"),
    "infinite feature": (("src,dst", "1,2"), ("id,f", "1,3", "2,inf"), "column f=inf: is no finite number"),
    "feature beyond float32": (
        ("src,dst", "1,2"),
        ("id,f", "1,3", "2,-1e300"),
        "column f=-1e+300: is no finite number of float32",
    ),
}


@pytest.mark.parametrize("name", _BAD)
def test_bad_tables_are_refused_with_their_place(name: str, tmp_path: Path) -> None:
    edges, nodes, said = _BAD[name]
    if edges:
        text(tmp_path / "edges.csv", *edges)
    text(tmp_path / "nodes.csv", *nodes)
    with pytest.raises(DataError) as caught:
        dataset = Tables(path=str(tmp_path), nodes="nodes.csv")
        dataset.key()
        dataset.load()
    assert said in str(caught.value)
    assert not [one for one in tmp_path.iterdir() if one.suffix != ".csv"]


def test_all_problems_of_columns_come_at_once(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "a,b,c", "1,2,3")
    text(tmp_path / "nodes.csv", "number,x", "1,2")
    with pytest.raises(DataError) as caught:
        load(tmp_path, nodes="nodes.csv", label="venue", features=["f1", "x"], categories=["town"])
    assert [problem.key for problem in caught.value.problems][:3] == [
        "dataset.label",
        "dataset.features",
        "dataset.categories",
    ] and len(caught.value.problems) == 5


def test_at_most_twenty_wrong_rows_are_shown(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", *("1," for _ in range(50)), *("1,2,3" for _ in range(30)))
    with pytest.raises(DataError) as caught:
        load(tmp_path)
    assert len(caught.value.problems) == 21 and "30 wrong rows" in str(caught.value.problems[-1])


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        ("src,dst\r\nä,b\r\n".encode(), "utf-8"),
        ("\ufeffsrc,dst\nä,b\n".encode(), "utf-8"),
        ("src,dst\nä,b\n".encode("latin-1"), "latin-1"),
        ('src;dst\n"ä";b\n'.encode("utf-16"), "utf-16"),
    ],
)
def test_text_of_other_systems(content: bytes, encoding: Any, tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_bytes(content)
    _, folder = made(tmp_path, encoding=encoding)
    assert ids_of(folder) == ["b", "ä"]


def test_a_wrong_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_bytes("src,dst\nä,b\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"set dataset\.encoding=latin-1"):
        load(tmp_path)


def test_a_first_line_of_data_is_never_taken_as_names(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "ann,bob", "bob,zoë")
    with pytest.raises(DataError, match="not clear whether the first line has the names"):
        load(tmp_path)
    assert load(tmp_path, header=False).num_edges == 4 and load(tmp_path, header=True).num_edges == 2
    text(tmp_path / "edges.csv", "5,6", "6,7")
    assert load(tmp_path).num_edges == 4


@pytest.mark.parametrize(
    "lines", [("# Nodes: 3", "# from to", "1\t2", "2\t3"), ("1 2", "2 3"), ("% asym", "1 2", "2 3")]
)
def test_lists_with_spaces_and_comments(lines: tuple[str, ...], tmp_path: Path) -> None:
    text(tmp_path / "edges.txt", *lines)
    _, folder = made(tmp_path, edges="edges.txt")
    assert ids_of(folder) == [1, 2, 3]


def test_leading_zeros_and_large_numbers_are_kept_as_text(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", "007,7", f"{2**64},7")
    _, folder = made(tmp_path)
    assert ids_of(folder) == ["007", str(2**64), "7"]
    text(tmp_path / "edges.csv", "src,dst", "1,2")
    _, folder = made(tmp_path, as_text=["src"])
    assert ids_of(folder) == ["1", "2"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"features": "f.csv"}, "dataset.features"),
        ({"split": "column"}, "needs a table of vertices"),
        ({"edges": {}}, "one table or more"),
        ({"edges": {"a": {"from": "x"}}}, "needs the key table"),
        ({"edges": {"a": {"table": "x.csv", "form": "x"}}}, "dataset.edges.a.form"),
        ({"train": 0.9, "val": 0.3}, "add up"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Tables(**options)


@pytest.mark.parametrize("ids", ["1,2", "a,b"])
@pytest.mark.parametrize("weight", ["", "inf", "nan"])
def test_weights_that_are_no_finite_numbers_are_refused(ids: str, weight: str, tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst,w", f"{ids},0.5", f"{ids},{weight}")
    with pytest.raises(DataError, match=r"edges\.csv, line 3, column w=.*is no finite number"):
        load(tmp_path)
    assert load(tmp_path, weight=None).edge_weights is None


def test_words_can_mean_an_empty_cell(tmp_path: Path) -> None:
    people(tmp_path)
    text(tmp_path / "people.csv", "name,age,class", "zoë,NA,good", "ann,20,NA", "bob,40,bad")
    with pytest.raises(DataError, match=r"column age=.*is no column of numbers"):
        load(tmp_path, nodes="people.csv", features=["age"])
    graph = load(tmp_path, nodes="people.csv", nulls=["", "NA"], empty="mean")
    assert isinstance(graph.features, torch.Tensor) and graph.labels is not None
    assert graph.features[:, 0].tolist() == [30, 20, 40] and graph.labels.tolist() == [1, -1, 0]


def test_a_table_on_the_network_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no table is there"):
        load(tmp_path, edges="http://127.0.0.1:1/edges.csv")


def test_the_key_follows_the_bytes_of_all_tables(tmp_path: Path) -> None:
    people(tmp_path)
    first = Tables(path=str(tmp_path), nodes="people.csv").key()
    with (tmp_path / "people.csv").open("a") as file:
        file.write("eve,1,2,good,,z\n")
    assert Tables(path=str(tmp_path), nodes="people.csv").key() != first


def test_names_of_shards_are_a_split(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", "a,b")
    (tmp_path / "nodes").mkdir()
    for name, rows in (("train-0", ["a,x", "b,y"]), ("validation-0", ["c,x"]), ("test-0", ["d,y", "e,"])):
        text(tmp_path / "nodes" / f"{name}.csv", "id,label", *rows)
    graph = load(tmp_path, nodes="nodes", split="files")
    parts = [part.tolist() for part in (graph.splits.train, graph.splits.val, graph.splits.test)]
    assert parts == [[2, 3], [4], [0, 1]]
    text(tmp_path / "nodes" / "part-0.csv", "id,label", "f,x")
    with pytest.raises(DataError, match=r"part-0\.csv='part'.*must begin with a word of a split"):
        load(tmp_path, nodes="nodes", split="files")


@pytest.mark.parametrize("nodes", [None, "people.csv"])
@pytest.mark.parametrize("weighted", [False, True])
def test_texts_that_do_not_fit_in_memory_give_the_same_graph(
    nodes: str | None, weighted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    people(tmp_path)
    text(tmp_path / "edges.csv", "from,to,w", "ann,bob,1", "bob,zoë,2", "zoë,bob,3", "bob,zoë,4", '"c, d",ann,5')
    options: dict[str, Any] = {"nodes": nodes, "weight": "w" if weighted else None, "merge_weights": "mean"}
    graph, folder = made(tmp_path, **options)
    monkeypatch.setattr(Dictionary, "num_bytes", 2**60)
    again, other = made(tmp_path, **options, name="other")
    assert ids_of(folder) == ids_of(other) and graph.indices.equal(again.indices) and graph.indptr.equal(again.indptr)
    assert weighted == (graph.edge_weights is not None)
    if graph.edge_weights is not None and again.edge_weights is not None:
        assert graph.edge_weights.equal(again.edge_weights)
