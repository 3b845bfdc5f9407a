"""Texts that DuckDB does not read are refused with their cause: kinds of ends of lines, and no bytes."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest
from own_tables import ids_of, load, made, text
from pyarrow import feather

from gnnexp.datasets.tables.file_bytes import ends_of_lines, has_quotes, refuse_broken, refuse_endless
from gnnexp.datasets.tables.files import TableFiles
from gnnexp.errors import DataError


@pytest.mark.parametrize("rows", [b"1,2\r\n2,3\n3,1\n", b"1,2\n2,3\r\n", b"1,2\n" * 200_000 + b"2,3\r\n"])
@pytest.mark.parametrize("packed", [False, True])
def test_two_kinds_of_ends_of_lines_are_named(rows: bytes, packed: bool, tmp_path: Path) -> None:
    name, content = f"edges.csv{'.gz' * packed}", b"src,dst\n" + rows
    (tmp_path / name).write_bytes(gzip.compress(content, 1) if packed else content)
    with pytest.raises(DataError, match="lines end with LF and with CR LF"):
        load(tmp_path, edges=name)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_one_kind_of_ends_is_read(end: str, tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text(end.join(("src,dst", "a,b", "b,c", "")), newline="")
    graph, folder = made(tmp_path)
    assert (graph.num_edges, ids_of(folder)) == (4, ["a", "b", "c"])


def test_ends_are_counted_over_pieces(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    for cut in range((1 << 20) - 3, (1 << 20) + 3):  # the pair is cut by a piece
        file.write_bytes(b"x" * cut + b"\r\nabc\r\n")
        assert ends_of_lines(TableFiles("", (file,), "text")) == ["CR LF"]


@pytest.mark.parametrize("name", ["edges.csv", "edges.jsonl", "edges.csv.gz"])
@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_empty_files_are_named(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    with pytest.raises(DataError, match=r"no bytes.*is empty"):
        load(tmp_path, edges=name)


def test_several_packed_members_are_one_file(tmp_path: Path) -> None:
    parts = (b"src,dst\na,b\n", b"b,c\n", b"c,a\n")
    (tmp_path / "edges.csv.gz").write_bytes(b"".join(map(gzip.compress, parts)))
    graph, folder = made(tmp_path, edges="edges.csv.gz")
    assert (graph.num_edges, ids_of(folder)) == (6, ["a", "b", "c"])


def test_quotes_and_line_ends_in_cells_are_data(tmp_path: Path) -> None:
    text(tmp_path / "edges.csv", "src,dst", '"a\nx","q""z"', '"q""z",b')
    _, folder = made(tmp_path)
    assert ids_of(folder) == ["a\nx", "b", 'q"z']


@pytest.mark.parametrize("compression", ["uncompressed", "zstd"])
def test_values_of_arrow_are_checked_before_they_are_used(compression: str, tmp_path: Path) -> None:
    """Damage that does no harm: bytes that are no text. Offsets and codes outside of their buffers are found alike."""
    path = tmp_path / "edges.feather"
    ends = pa.array(["a", "b", "c"])
    feather.write_feather(pa.table({"src": ends, "dst": ends}), str(path), compression=compression)
    refuse_broken(TableFiles("dataset.edges", (path,), "arrow"))
    wrong = pa.StringArray.from_buffers(3, ends.buffers()[1], pa.py_buffer(b"ab\xff"))
    feather.write_feather(pa.table({"src": ends, "dst": wrong}), str(path), compression=compression)
    with pytest.raises(pa.ArrowInvalid, match="UTF8"):
        refuse_broken(TableFiles("dataset.edges", (path,), "arrow"))
    with pytest.raises(DataError, match=r"edges\.feather.*UTF8.*this table cannot be read"):
        load(tmp_path, edges="edges.feather")


def test_long_lists_in_quoted_cells_are_cells(tmp_path: Path) -> None:
    rows = "".join(f'{number},{number % 2},"{"1," * (number * 60)}1"\n' for number in range(20))
    (tmp_path / "nodes.csv").write_text(f"id,label,list\n{rows}")
    files = TableFiles("dataset.nodes", (tmp_path / "nodes.csv",), "text")
    assert not has_quotes(files)
    (tmp_path / "nodes.csv").write_text('id,name\n1,"a"\n')
    assert has_quotes(files)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('a,b\n1,"x' + "y\n" * 60, 2),
        ('"' + "y" * 120, 1),
        ('\ufeff"a"\n1;"' + "y" * 120, 2),
        ('a\tb\n\n1\t"y' + "," * 120, 3),
        ("a,b\n" + "1,2\n" * 100 + '1,"x' + "y\n" * 60 + 'z"\n', 102),
        ('"a",b\n' + "1,2\n" * 100 + '1,"x' + "y\n" * 60 + '"1,2"\n' * 100, 102),
    ],
)
def test_a_quote_that_does_not_end_is_refused(
    content: str, line: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnnexp.datasets.tables.file_bytes._LONGEST_CELL", 100)
    (tmp_path / "nodes.csv").write_text(content)
    with pytest.raises(DataError, match=f"line {line}=.*a quoted cell has at most"):
        refuse_endless(TableFiles("dataset.nodes", (tmp_path / "nodes.csv",), "text"))


@pytest.mark.parametrize(
    "content",
    [
        'a,b\n1,"' + "y\n" * 40 + '"\n',
        "a,b\n" + '1,"x"\n' * 50,
        "a,b\n" + '1,"""x"" ""y"""\n' * 50,
        'a,b\n1,5" disk\n' * 20,
        'a,b\n1,"x\n',
        'a,b\n1,"x"\n' + "1,2\n" * 100,
        '"a,"\n' + "1\n" * 200,
        'a,b\n1,"' + "y\n" * 20 + '"\n' + "1,2\n" * 200 + '1,"x"\n',
    ],
)
def test_quotes_that_end_are_usual(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a sign within a cell, and a damaged file that is short: the engine names that."""
    monkeypatch.setattr("gnnexp.datasets.tables.file_bytes._LONGEST_CELL", 100)
    (tmp_path / "nodes.csv").write_text(content)
    refuse_endless(TableFiles("dataset.nodes", (tmp_path / "nodes.csv",), "text"))
