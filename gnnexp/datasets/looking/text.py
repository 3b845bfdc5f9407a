"""How text tables are written, where DuckDB cannot find that out: encoding, names, empty cells, decimal commas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gnnexp.datasets.looking.places import UTF_16, TableSource
from gnnexp.datasets.tables.engine import Engine
from gnnexp.datasets.tables.roles import has_usual_names
from gnnexp.datasets.tables.scan import SqlTable, TextForm, literal, quoted
from gnnexp.errors import DataError, Problem

# Words that people write into empty cells of numbers.
NULLS = ("NA", "N/A", "n/a", "#N/A", "NULL", "null", "None", "none", "-", "?", ".", "missing")
FIRST = 100_000
_START = 1 << 20
_FEW = 8  # columns of which the words of the first line are looked for in all columns


def read_tables(reader: Engine, places: Sequence[TableSource]) -> tuple[dict[str, SqlTable], list[str]]:
    """The tables by the name of their place, and the overrides that read them so.

    Raises:
        DataError: a table cannot be read, or the texts differ in encoding or in having names.
    """
    form = TextForm(
        encoding=_encoding([path for source in places if source.files.format == "text" for path in source.files.paths])
    )

    def read() -> dict[str, SqlTable]:
        return {source.name: reader.table(source.files, form) for source in places}

    tables = read()
    headers = {
        name: header for name, source in tables.items() if (header := _header(reader, source, list(tables))) is not None
    }
    if headers:
        form = replace(form, header=_one_header(tables, headers))
        tables = read()
    nulls = _nulls(reader, tables)
    decimal = any(_has_decimal_commas(reader, source) for source in tables.values())
    if nulls or decimal:
        form = replace(form, nulls=["", *nulls], decimal="," if decimal else ".")
        tables = read()
    lines = [f"dataset.encoding={form.encoding}"] if form.encoding != "utf-8" else []
    lines += [f"dataset.header={str(form.header).lower()}"] if form.header is not None else []
    lines += [f"dataset.nulls=['',{','.join(map(_override, nulls))}]"] if nulls else []
    lines += ["dataset.decimal=','"] if decimal else []
    return tables, lines


def is_unnamed(table: SqlTable) -> bool:
    """Whether the table has no line of names, so that DuckDB numbers its columns."""
    return list(table.types) == [
        f"column{number:0{len(str(len(table.types) - 1))}d}" for number in range(len(table.types))
    ]


def _override(text: str) -> str:
    return "'" + text + "'"


def _encoding(paths: Sequence[Path]) -> str:
    """The encoding of all texts, by their first bytes.

    Raises:
        DataError: the texts have different encodings.
    """
    encodings = {path: encoding for path in paths if (encoding := _encoding_of(path)) is not None}
    if len(set(encodings.values())) > 1:
        raise DataError(
            Problem(
                "PATH",
                {path.name: encoding for path, encoding in encodings.items()},
                "the texts have different encodings",
                "write all of them in UTF-8",
            )
        )
    return next(iter(encodings.values()), "utf-8")


def _encoding_of(path: Path) -> str | None:
    """The encoding of a text, or None for ASCII and packed texts."""
    if path.suffix.lower() in (".gz", ".zst"):
        return None
    with path.open("rb") as file:
        start = file.read(_START)
    if start.startswith(UTF_16):
        return "utf-16"
    if start.isascii():
        return None
    try:
        # The last sign may be cut.
        start[: len(start) if len(start) < _START else start.rfind(b"\n") + 1].decode("utf-8")
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def _header(reader: Engine, table: SqlTable, kinds: Sequence[str]) -> bool | None:
    """Whether the first line has names, where that is not clear: not if a word of it is a value of a column.

    In a list of edges, the first destination may be a source further below, and no destination.
    """
    if table.files.format != "text" or has_usual_names(table, kinds) or is_unnamed(table):
        return None
    few = [*table.types] if len(table.types) <= _FEW else []
    known = [f"count(*) FILTER ({quoted(name)} IN ({', '.join(map(literal, few or [name]))}))" for name in table.types]
    first = f"(SELECT * FROM {table.name} LIMIT {FIRST})"
    return not any(reader.rows(f"SELECT {', '.join(known)} FROM {first}", table)[0])


def _one_header(tables: dict[str, SqlTable], headers: dict[str, bool]) -> bool:
    for name, table in tables.items():
        if table.files.format == "text":
            headers.setdefault(name, not is_unnamed(table))
    if len(set(headers.values())) > 1:
        without = [tables[name].files.paths[0].name for name, header in headers.items() if not header]
        raise DataError(
            Problem(
                "PATH",
                without,
                "these texts have no line of names, and others have one",
                "write the names of their columns into their first line",
            )
        )
    return next(iter(headers.values()))


def _texts(table: SqlTable) -> list[str]:
    return [name for name, kind in table.types.items() if kind == "VARCHAR"] if table.files.format == "text" else []


def _nulls(reader: Engine, tables: dict[str, SqlTable]) -> list[str]:
    """Words for empty cells in columns that are otherwise numbers."""
    nulls: dict[str, None] = {}
    for table in tables.values():
        for name in _texts(table):
            first = f"(SELECT {quoted(name)} AS value FROM {table.name} LIMIT {FIRST})"
            numbers = "try_cast(replace(value, ',', '.') AS DOUBLE)"
            words = [
                row[0]
                for row in reader.rows(
                    f"SELECT DISTINCT value FROM {first} WHERE value IS NOT NULL AND {numbers} IS NULL LIMIT 5", table
                )
            ]
            some = reader.rows(f"SELECT count({numbers}) FROM {first}", table)[0][0]
            if words and some and {*words} <= {*NULLS}:
                nulls |= dict.fromkeys(sorted(words))
    return list(nulls)


def _has_decimal_commas(reader: Engine, table: SqlTable) -> bool:
    """Whether a column has numbers such as 1,5 and nothing else."""
    for name in _texts(table):
        value = quoted(name)
        empty = ", ".join(map(literal, NULLS))
        first = f"(SELECT {value} FROM {table.name} WHERE {value} NOT IN ({empty}) LIMIT {FIRST})"
        shape = f"regexp_full_match({value}, '-?[0-9]+(,[0-9]+)?')"
        rows, fit, commas = reader.rows(
            f"SELECT count({value}), count(*) FILTER ({shape}), count(*) FILTER (contains({value}, ',')) FROM {first}",
            table,
        )[0]
        if rows and fit == rows and commas:
            return True
    return False
