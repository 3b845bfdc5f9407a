"""What a file's path says is not in the data: folders named `column=value`, as Hydra and Hive name them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from gnnexp.datasets.tables.dataset import Tables
from gnnexp.errors import DataError

NODES = {
    "id": [10, 20, 30, 40],
    "f": [0.5, 0.2, 0.1, 0.3],
    "label": ["u", "v", "u", "v"],
    "part": ["train", "val", "test", "train"],
}
EDGES = {"source": [10, 20, 30], "destination": [20, 30, 40]}
FOLDERS = [
    "f=100",
    "label=9",
    "weight=2",
    "seed=3",
    "part=test",
    "source=1",
    "relation=5",
    "id=100",
    "month=1",
    "seed=3/label=9/tables",
    "label=__HIVE_DEFAULT_PARTITION__",
]


def write(folder: Path, kind: str) -> None:
    folder.mkdir(parents=True)
    for name, columns in (("nodes", NODES), ("edges", EDGES)):
        table, file = pa.table(columns), folder / f"{name}.{kind}"
        if kind == "csv":
            rows = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
            file.write_text("\n".join(rows) + "\n")
        elif kind == "jsonl":
            file.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))
        elif kind == "parquet":
            parquet.write_table(table, file)
        else:
            feather.write_feather(table, file, compression="uncompressed")


def load(folder: Path, kind: str) -> Tables:
    return Tables(path=str(folder), nodes=f"nodes.{kind}", edges=f"edges.{kind}", split="column", split_column="part")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "arrow"])
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_is_no_column(tmp_path: Path, kind: str, name: str) -> None:
    write(tmp_path / name, kind)
    graph = load(tmp_path / name, kind).load()
    assert graph.features is not None and graph.labels is not None
    assert np.array_equal(np.asarray(graph.features), np.float32([[0.5], [0.2], [0.1], [0.3]]))
    assert graph.labels.tolist() == [0, 1, 0, 1] and graph.num_classes == 2
    assert graph.edge_weights is None and graph.edge_types is None
    assert [part.tolist() for part in (graph.splits.train, graph.splits.val, graph.splits.test)] == [[0, 3], [1], [2]]


def in_months(folder: Path, kind: str, months: tuple[str, ...] = ("1", "2")) -> Tables:
    """Edges of two months, and vertices without one."""
    columns = {"source": [0, 1], "destination": [1, 2]}
    for month in months:
        place = folder / f"month={month}"
        place.mkdir(parents=True)
        if kind == "csv":
            (place / "edges.csv").write_text("source,destination\n0,1\n1,2\n")
        else:
            parquet.write_table(pa.table(columns), place / f"edges.{kind}")
    return Tables(
        path=str(folder), edges=f"month=*/edges.{kind}", relation="month", path_columns=["month"], symmetrize=False
    )


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_folder_that_is_asked_for_is_a_column_and_a_part_of_the_key(tmp_path: Path, kind: str) -> None:
    tables = in_months(tmp_path / "a", kind)
    graph = tables.load()
    assert graph.edge_types is not None and graph.edge_types.tolist() == [0, 1, 0, 1] and graph.num_edges == 4
    other = in_months(tmp_path / "b", kind, ("1", "3"))
    same = in_months(tmp_path / "c" / "month=7", kind)  # the last folder of this name counts
    assert tables.key() == same.key() != other.key()
    assert other.load().edge_types is not None
    texts = in_months(tmp_path / "d", kind, ("may 1", "__HIVE_DEFAULT_PARTITION__"))
    with pytest.raises(DataError, match="column month=None: is missing"):
        texts.load()


@pytest.mark.parametrize("sign", [",", " "])
@pytest.mark.parametrize("header", [True, False, None])
def test_a_path_column_is_no_end_and_no_sign_of_a_header(tmp_path: Path, sign: str, header: bool | None) -> None:
    for month, rows in ((3, ["1,2", "2,3"]), (4, ["3,4", "4,5"])):
        lines = [*(["source,target"] if header is not False else []), *rows]
        place = tmp_path / f"m={month}"
        place.mkdir(parents=True)
        (place / "a.txt").write_text("\n".join(lines).replace(",", sign) + "\n")
    tables = Tables(
        path=str(tmp_path),
        edges="m=*/*.txt",
        path_columns=["m"],
        relation="m",
        header=header,
        symmetrize=False,
        nodes=None,
    )
    graph = tables.load()
    assert graph.num_nodes == 5 and graph.edge_types is not None and graph.edge_types.tolist() == [0, 0, 1, 1]
    assert "source=column0" in graph.notes[0] if header is False else "source=source" in graph.notes[0]


def test_rows_with_a_path_column_are_named(tmp_path: Path) -> None:
    tables = in_months(tmp_path, "csv")
    (tmp_path / "nodes.csv").write_text("id\n0\n1\n")
    with pytest.raises(DataError, match=r"edges\.csv, line 3, column destination=2: is no vertex"):
        replace(tables, nodes="nodes.csv").load()


def test_a_path_column_that_no_file_has_is_refused(tmp_path: Path) -> None:
    tables = in_months(tmp_path, "csv")
    with pytest.raises(DataError, match=r"path_columns='day': no file is in a folder day="):
        replace(tables, path_columns=["month", "day"]).load()
    (tmp_path / "month=1" / "edges.csv").write_text("source,destination,month\n0,1,5\n1,2,5\n")
    (tmp_path / "month=2" / "edges.csv").write_text("source,destination,month\n0,1,5\n1,2,5\n")
    with pytest.raises(DataError, match="month: the files have this column"):
        tables.load()
