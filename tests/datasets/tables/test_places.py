"""The named line of a row is the line of the file, whatever is before it, and as DuckDB counts rows."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnexp.datasets.tables.engine import Engine, engine
from gnnexp.datasets.tables.files import TableFiles
from gnnexp.datasets.tables.places import places_of, record_lines
from gnnexp.datasets.tables.scan import Dialect, TextForm


def places(reader: Engine, *paths: Path, form: TextForm | None = None) -> tuple[list[str], list[tuple[object, ...]]]:
    """The place of each row of a text, without its folder; and the rows."""
    table = reader.table(TableFiles("key", paths, "text"), form)
    rows = reader.rows(f"SELECT * FROM {table.name}", table)
    found = places_of(reader, table, list(range(len(rows))))
    return [found[row].rpartition("/")[2] for row in range(len(rows))], rows


CELLS = st.sampled_from(["a", "b c", '"x, y"', '"two\nlines"', '"""q"""', "1", "ü"])
LINES = st.lists(st.one_of(st.tuples(CELLS, CELLS), st.sampled_from(["# note, 1", ""])), min_size=1, max_size=12)


TEXTS = given(lines=LINES, end=st.sampled_from(["\n", "\r\n"]), packed=st.booleans(), last=st.booleans())


@settings(max_examples=30)
@TEXTS
def test_lines_are_those_of_the_file(
    lines: list[tuple[str, str] | str], end: str, packed: bool, last: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lines_are_those_of_the_file(lines, end, packed, last, tmp_path_factory.mktemp("place"))


@pytest.mark.slow
@TEXTS
def test_lines_of_more_files(
    lines: list[tuple[str, str] | str], end: str, packed: bool, last: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lines_are_those_of_the_file(lines, end, packed, last, tmp_path_factory.mktemp("place"))


def lines_are_those_of_the_file(
    lines: list[tuple[str, str] | str], end: str, packed: bool, last: bool, folder: Path
) -> None:
    content, expected, number = "# first" + end + "name,kind" + end, [], 3
    for line in [*lines, ("z", "z")]:
        if isinstance(line, tuple):
            cells = (cell[1:-1].replace('""', '"') if cell[0] == '"' else cell for cell in line)
            expected.append((number, tuple(cells)))
        written = line if isinstance(line, str) else ",".join(line)
        content += written + end
        number += 1 + written.count("\n")
    content = content if last else content.removesuffix(end)
    path = folder / ("t.csv.gz" if packed else "t.csv")
    path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    with engine(folder, 1 << 28, 1) as reader:
        found, rows = places(reader, path, form=TextForm(delimiter=",", header=True))
    assert [tuple(map(str, row)) for row in rows] == [row for _, row in expected]
    assert found == [f"{path.name}, line {number}" for number, _ in expected]


def test_shards_have_lines_of_their_own(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.csv", "b.csv", "c.csv")]
    for path, content in zip(paths, ("x,y\n1,2\n", "x,y\n", "x,y\n\n3,4\n5,6\n"), strict=True):
        path.write_text(content)
    with engine(tmp_path, 1 << 28, 2) as reader:
        assert places(reader, *paths)[0] == ["a.csv, line 2", "c.csv, line 3", "c.csv, line 4"]


def test_lines_before_the_header_are_counted() -> None:
    lines = iter(["about\n", "x;y\n", "'a;\n", "b';2\n", "\n", "3;4\n"])
    assert list(record_lines(lines, Dialect(";", "'", "", 1, True, "utf-8"))) == [3, 6]
