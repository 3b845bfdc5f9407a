"""How the files of a table are read: the form of its texts, the function of DuckDB that reads them, and its columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np

from gnnexp.datasets.tables.file_bytes import comment_of, has_quotes
from gnnexp.datasets.tables.files import TableFiles

# Rows that types are found by: a few milliseconds. A row that does not fit its type later is an error with its line.
_SAMPLE_ROWS = 1 << 17
MOST_REJECTS = 1_000_000
FILE = "file of gnnexp"  # a column with the file of each row
WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
REAL = ("FLOAT", "DOUBLE")
LARGEST = float(np.finfo(np.float32).max)
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def quoted(name: str) -> str:
    """A column's name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def struct(types: Mapping[str, str]) -> str:
    """Names of columns with their types, in SQL."""
    return "{" + ", ".join(f"{literal(name)}: {literal(kind)}" for name, kind in types.items()) + "}"


def single(name: str) -> str:
    """A number as FLOAT, in SQL; infinite if it is too large for float32, where a plain cast would name no row."""
    wide = f"{name}::DOUBLE"
    return (
        f"(CASE WHEN abs({wide}) <= {LARGEST!r} THEN {name}::FLOAT WHEN isnan({wide}) THEN 'nan'::FLOAT "
        f"WHEN {name} IS NOT NULL THEN 'inf'::FLOAT END)"
    )


@dataclass(frozen=True)
class TextForm:
    """How text is read; None = found in the file.

    Attributes:
        delimiter: separator of columns.
        header: whether the first line has the names of the columns.
        encoding: `utf-8`, `utf-16` or `latin-1`.
        nulls: words that mean an empty cell.
        decimal: sign before fractions, `.` or `,`.
        path_columns: names of columns that are folders of each file, `month=3`; for tables of any format but Arrow.
    """

    delimiter: str | None = None
    header: bool | None = None
    encoding: str = "utf-8"
    nulls: Sequence[str] = ("",)
    decimal: str = "."
    path_columns: Sequence[str] = ()


@dataclass(frozen=True)
class Dialect:
    """How DuckDB reads a text.

    Attributes:
        delimiter: separator of columns.
        quote: sign around cells, or empty.
        comment: sign with which a comment begins, or empty.
        skipped: number of lines before the header or the first row.
        header: whether the first row has the names of the columns.
        encoding: encoding of the text.
    """

    delimiter: str
    quote: str
    comment: str
    skipped: int
    header: bool
    encoding: str


class Points(NamedTuple):
    """Integers that some files of a column write with a fraction of zero.

    Attributes:
        values: number of these integers.
        files: number of files that write all of theirs so.
    """

    values: int
    files: int


@dataclass(frozen=True)
class SqlTable:
    """A table that queries can name.

    Attributes:
        files: where it is read.
        name: its name in SQL, quoted.
        types: type of each column in DuckDB's words, by name, in the order of the file.
        looks: what columns look like that are read as the file writes them (`Engine.as_written`): the type that a
            sample of rows suggests. Their own type is text.
        of_paths: columns that are folders of the files (`TextForm.path_columns`).
        decimal: sign before fractions in a text.
        points: columns of which the values count as integers, and some files write them as `1.0` (`with_points`).
    """

    files: TableFiles
    name: str
    types: dict[str, str]
    looks: Mapping[str, str] = field(default_factory=dict)
    of_paths: Sequence[str] = ()
    decimal: str = "."
    points: Mapping[str, Points] = field(default_factory=dict)

    @property
    def own(self) -> list[str]:
        """The columns that the files have."""
        return [name for name in self.types if name not in self.of_paths]

    def kind(self, column: str) -> str:
        """What a column looks like, without parameters: `DECIMAL` for `DECIMAL(18,3)`."""
        return re.sub(r"\(.*\)$", "", self.look(column))

    def is_list(self, column: str) -> bool:
        """Whether a column has lists."""
        return self.types[column].endswith("]")

    def look(self, column: str) -> str:
        """The type of a column, or what it looks like."""
        return self.looks.get(column, self.types[column])


def parquet_file(path: Path) -> str:
    """What reads one Parquet file, in SQL."""
    return f"read_parquet({literal(_masked(str(path)))}, hive_partitioning=false)"


def scan_of(
    files: TableFiles, form: TextForm, types: Mapping[str, str], extra: str = "", *, sniff: bool = False
) -> str:
    """The table function that reads the files. DuckDB takes a path as a pattern, so special characters are masked.

    Args:
        files: the files.
        form: how text is read.
        types: types of some columns of a text.
        extra: a further option.
        sniff: whether the function tells how the text of one file is read.
    """
    # DuckDB's default makes columns of folders such as `label=9`, also of those above, in place of the file's own.
    more = f", hive_partitioning=false{f', {extra}' if extra else ''}"
    paths = "[" + ", ".join(literal(_masked(str(path))) for path in files.paths) + "]"
    if files.format == "parquet":
        return f"read_parquet({paths}, union_by_name=false{more})"
    if files.format == "json":
        # All rows of all files: a key that a sample lacks would be dropped, and whole numbers would round fractions.
        return f"read_json({paths}, sample_size=-1, maximum_sample_files={len(files.paths)}{more})"
    kept = "" if sniff else f"store_rejects=true, rejects_limit={MOST_REJECTS}, "
    options = [
        f"{kept}sample_size={_SAMPLE_ROWS}",
        f"encoding={literal(form.encoding)}",
        f"nullstr=[{', '.join(map(literal, form.nulls))}]",
    ]
    if form.decimal != ".":
        options.append(f"decimal_separator={literal(form.decimal)}")
    if sign := comment_of(files):
        options.append(f"comment={literal(sign)}")
    if not has_quotes(files):  # cells further below may have some, which a sample without them would keep
        options.append("quote='\"', escape='\"'")
    if form.delimiter is not None:
        options.append(f"delim={literal(form.delimiter)}")
    if form.header is not None:
        options.append(f"header={str(form.header).lower()}")
    if types:
        options.append(f"types={struct(types)}")
    if sniff:
        return f"sniff_csv({literal(_masked(str(files.paths[0])))}, {', '.join(options)}{more})"
    return f"read_csv({paths}, {', '.join(options)}{more})"


def query_of(
    files: TableFiles, form: TextForm, types: Mapping[str, str], extra: str = "", *, named: bool = False
) -> str:
    """The query of a table: what the files have, and the columns that are folders of each file.

    Values are integers if all of them are, else texts. A table of which no file is in such a folder lacks the column.

    Args:
        files: the files.
        form: how text is read.
        types: types of some columns of a text.
        extra: a further option of what reads the files.
        named: whether the column `FILE` has the path of each row's file.
    """
    values_of = {name: path_values(files, name) for name in form.path_columns}
    asked = []
    for name, values in values_of.items():
        if any(value is not None for value in values):
            of = ", ".join(
                f"{literal(str(path))}: {'NULL' if value is None else literal(value)}"
                for path, value in zip(files.paths, values, strict=True)
            )
            whole = all(value is None or (re.fullmatch("0|-?[1-9][0-9]{0,17}", value)) for value in values)
            asked.append(f"map {{{of}}}[{quoted(FILE)}]{'::BIGINT' if whole else ''} AS {quoted(name)}")
    if not asked and not named:
        return f"SELECT * FROM {scan_of(files, form, types, extra)}"
    scan = scan_of(files, form, types, f"{f'{extra}, ' if extra else ''}filename={literal(FILE)}")
    return f"SELECT {', '.join(['*' if named else f'* EXCLUDE ({quoted(FILE)})', *asked])} FROM {scan}"


def path_values(files: TableFiles, name: str) -> list[str | None]:
    """What the last folder `name=…` above each file says; None where there is none, or where it says so (Hive)."""
    found: list[str | None] = []
    for path in files.paths:
        parts = [one.partition("=")[2] for one in path.parts[:-1] if one.startswith(f"{name}=")]
        found.append(unquote(parts[-1]) if parts and parts[-1] != _HIVE_NULL else None)
    return found


def _masked(path: str) -> str:
    return "".join(f"[{one}]" if one in "*?[" else one for one in path)
