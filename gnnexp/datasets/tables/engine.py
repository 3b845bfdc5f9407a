"""Reads tables with DuckDB, within a limit of memory: text, JSON, Parquet and Arrow, typed by a sample of rows.

DuckDB finds all rows of a text that do not fit the types of their columns, with their line numbers, in one pass. It
sorts and joins tables that do not fit in memory. pyarrow stops at the first wrong row, and has no such join. DuckDB
loads no extension here, so it reads no address of the network.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np

from gnnexp.datasets.tables.file_bytes import comment_of, ends_of_lines, has_quotes, refuse_empty
from gnnexp.datasets.tables.files import TableFiles
from gnnexp.errors import DataError, Problem

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

MOST_SHOWN = 20
BATCH_ROWS = 1 << 20
# Rows that types are found by: a few milliseconds. A row that does not fit its type later is an error with its line.
_SAMPLE_ROWS = 1 << 17
_MOST_REJECTS = 1_000_000
_MOST_TEXT = 60
LARGEST = float(np.finfo(np.float32).max)
_FILE = "file of gnnexp"  # a column with the file of each row
_FIXES = {"CAST": "correct the value, or read this column as text: dataset.as_text=[COLUMN]",
          "INVALID ENCODING": "set dataset.encoding=latin-1 or utf-16, or write the file in UTF-8"}
_FIX = "correct the row: all rows need the same number of columns, and a cell with a delimiter needs quotes"
_OPTIONS = {"autoload_known_extensions": "false", "autoinstall_known_extensions": "false"}
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_AS_CSV = re.compile("sniffing file|invalid state|mix of newline|new line", re.IGNORECASE)
WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
_REAL = ("FLOAT", "DOUBLE")
_READ_AHEAD = "16MiB"  # of a result, while a batch is used


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


@dataclass(frozen=True)
class Table:
    """A table that queries can name.

    Attributes:
        files: where it is read.
        name: its name in SQL, quoted.
        types: type of each column in DuckDB's words, by name, in the order of the file.
        looks: what columns look like that are read as the file writes them (`Engine.as_written`): the type that a
            sample of rows suggests. Their own type is text.
        of_paths: columns that are folders of the files (`TextForm.path_columns`).
    """

    files: TableFiles
    name: str
    types: dict[str, str]
    looks: Mapping[str, str] = field(default_factory=dict)
    of_paths: Sequence[str] = ()

    @property
    def own(self) -> list[str]:
        """The columns that the files have."""
        return [name for name in self.types if name not in self.of_paths]

    def look(self, column: str) -> str:
        """The type of a column, or what it looks like."""
        return self.looks.get(column, self.types[column])


class Engine:
    """Tables of one data set. `engine` makes it.

    Args:
        connection: DuckDB, in memory.
    """

    def __init__(self, connection: DuckDBPyConnection) -> None:
        self._connection, self._tables = connection, 0
        self._forms: dict[str, tuple[TextForm, Mapping[str, str]]] = {}  # of each view, with types that were given

    def close(self) -> None:
        """Free the memory of all tables, which are gone then."""
        self._connection.close()

    def table(self, files: TableFiles, form: TextForm | None = None, *, as_text: Sequence[str] = ()) -> Table:
        """The table in `files`.

        Args:
            files: at least one file.
            form: how text is read.
            as_text: columns that are read as text, whatever the sample says.

        Raises:
            DataError: the files are damaged, empty, or have different columns.
        """
        form, texts = form or TextForm(), dict.fromkeys(as_text, "VARCHAR")
        refuse_empty(files)
        types = self._view(files, form, texts)
        of_paths = [name for name in form.path_columns if name in types[1]]
        if files.format == "text" and form.delimiter is None and len(types[1]) == 1 + len(of_paths) and \
                (" " in next(iter(types[1])) or form.header is False):
            spaced = self._view(files, replace(form, delimiter=" "), texts)  # not among the signs that DuckDB tries
            types = max(types, spaced, key=lambda one: len(one[1]))
        if files.format == "json" and as_text:
            types = self._view(files, form, texts, {**types[1], **texts})
        table = Table(files, *types, of_paths=of_paths)
        self._refuse_twice(table)
        return table

    def as_written(self, table: Table, names: Iterable[str]) -> Table:
        """The same table, in which a text's columns `names` are texts, byte by byte as the file writes them.

        Otherwise `1.10` would be 1.1, and `1E5` 100000. Tables with types of their own (Parquet, Arrow) stay.

        Raises:
            DataError: a column of a JSON has texts and other values.
        """
        if table.name not in self._forms or table.files.format not in ("text", "json"):
            return table
        names = list(names)
        DataError.raise_all([Problem(
            f"{table.files.shown}, column {name}", "JSON", "has texts next to numbers or to other values",
            f"write texts only, or set dataset.as_text=[{name}]") for name in names if table.types[name] == "JSON"])
        form, given = self._forms[table.name]
        kept = ("VARCHAR", *(_REAL if table.files.format == "json" else ()))  # JSON's numbers have a type
        looks = {name: table.types[name] for name in names
                 if name not in table.of_paths and table.types[name] not in kept}
        if not looks:
            return table
        types = {**table.types, **dict.fromkeys(looks, "VARCHAR")} if table.files.format == "json" else None
        if types is None and form.header is None:  # texts only: no header would be found
            named = not all(re.fullmatch(r"column\d+", name) for name in table.own)
            form = replace(form, header=named or self.dialect(table).header)
        view = self._view(table.files, form, {**given, **dict.fromkeys(looks, "VARCHAR")}, types)
        return Table(table.files, *view, looks, table.of_paths)

    def as_numbers(self, table: Table, names: Iterable[str]) -> Table:
        """The same table, in which columns `names` of whole numbers of a text are real numbers.

        A sample of rows found their types. Fractions in later rows would be rounded: DuckDB reads `2.75` as the
        integer 3 without an error.
        """
        if table.files.format != "text":
            return table
        form, given = self._forms[table.name]
        wider = {name: "DOUBLE" for name in names if name not in table.of_paths and table.types[name] in WHOLE}
        if not wider:
            return table
        return Table(table.files, *self._view(table.files, form, {**given, **wider}), table.looks, table.of_paths)

    def has_fractions(self, table: Table, name: str) -> bool:
        """Whether a column of a text whose sample has whole numbers has others further below."""
        if table.files.format != "text" or table.types[name] not in WHOLE or name in table.of_paths:
            return False
        written = self.as_written(table, [name])
        asked = f"SELECT 1 FROM {written.name} WHERE regexp_matches({quoted(name)}, '[.eE]') LIMIT 1"
        return bool(self.rows(asked, written))

    def _refuse_twice(self, table: Table) -> None:
        """Raise if a file has two columns of one name. DuckDB renames the second one, `label_1`.

        Raises:
            DataError: there are such columns.
        """
        lower = {name.lower() for name in table.types}
        if table.files.format in ("json", "arrow") or not any(  # DuckDB and pyarrow refuse two equal names there
                (found := re.fullmatch(r"(.+)_[0-9]+", name)) and found[1].lower() in lower for name in table.own):
            return
        names = self._names_of_file(table)
        twice = [name for name in dict.fromkeys(names) if name and names.count(name) > 1]
        DataError.raise_all([Problem(f"{table.files.shown}, column {name}", f"{names.count(name)} columns",
                                     "columns have different names", "rename or remove one of them")
                             for name in twice])

    def _names_of_file(self, table: Table) -> list[str]:
        """The names of columns as the first file has them."""
        path = table.files.paths[0]
        if table.files.format == "parquet":
            from pyarrow import parquet

            return list(parquet.read_schema(path).names)
        if not self.dialect(table).header:
            return []
        form, _ = self._forms[table.name]
        first = replace(table.files, paths=(path,))
        scan = _scan(first, replace(form, header=False), {}, extra="all_varchar=true")
        return [name or "" for name in self.rows(f"SELECT * FROM {scan} LIMIT 1", table)[0]]

    def _view(self, files: TableFiles, form: TextForm, given: Mapping[str, str], types: Mapping[str, str] | None = None
              ) -> tuple[str, dict[str, str]]:
        """A view of the files: its name in SQL, and the type of each column.

        Args:
            files: the files.
            form: how text is read.
            given: types of some columns of a text.
            types: types of all columns of a JSON.
        """
        name, self._tables = f"table_{self._tables}", self._tables + 1
        try:
            if files.format == "arrow":
                import pyarrow.dataset as arrow

                self._connection.register(name, arrow.dataset([str(one) for one in files.paths], format="feather"))
            else:
                known = {key: kind for key, kind in (types or {}).items() if key not in form.path_columns}
                scan = _scan(files, form, given, f"columns={_struct(known)}" if known else "")
                self._forms[name] = form, given
                self._connection.execute(f"CREATE VIEW {name} AS {_with_path_columns(files, form, scan)}")
            columns = self._connection.execute(f"DESCRIBE {name}").fetchall()
        except _errors() as error:
            raise DataError(_unreadable(files, error)) from None
        names = [column[0] for column in columns]
        twice = [one for one in form.path_columns if f"{one}_1" in names and one in names]
        DataError.raise_all([Problem(f"{files.shown}, column {one}", one, f"{one}: the files have this column",
                                     "take it out of dataset.path_columns") for one in twice])
        return name, {column[0]: column[1] for column in columns}

    def rows(self, sql: str, table: Table) -> list[tuple[Any, ...]]:
        """All rows of a small result.

        Raises:
            DataError: the files of the table are damaged, or have wrong rows.
        """
        try:
            found: list[tuple[Any, ...]] = self._connection.execute(sql).fetchall()
        except _errors() as error:
            raise DataError(_unreadable(table.files, error)) from None
        self._refuse_rejects(table.files)
        return found

    def batches(self, sql: str, table: Table) -> Generator[pa.RecordBatch, None, None]:
        """A result of any size in record batches, in the order of the files.

        Raises:
            DataError: as `rows`; wrong rows at the end, all together.
        """
        try:
            yield from self._connection.sql(sql).to_arrow_reader(BATCH_ROWS)
        except _errors() as error:
            raise DataError(_unreadable(table.files, error)) from None
        self._refuse_rejects(table.files)

    def keep(self, sql: str, table: Table) -> str:
        """The result of a query as a table of its own, in memory or in the engine's folder: its name in SQL.

        Raises:
            DataError: as `rows`.
        """
        name, self._tables = f"table_{self._tables}", self._tables + 1
        self.rows(f"CREATE TEMP TABLE {name} AS {sql}", table)
        return name

    def enum(self, texts: Sequence[str]) -> str:
        """A type that numbers `texts` from 0 on: its name in SQL."""
        name, self._tables = f"type_{self._tables}", self._tables + 1
        self._connection.execute(f"CREATE TYPE {name} AS ENUM ({', '.join(map(literal, texts))})")
        return name

    def rows_by_file(self, table: Table) -> list[tuple[Path, int]]:
        """The files of a table in the order of its rows, with their numbers of rows. One pass if there are several."""
        paths = table.files.paths
        if table.files.format == "arrow":
            import pyarrow.dataset as arrow

            return [(path, arrow.dataset(str(path), format="feather").count_rows()) for path in paths]
        if len(paths) == 1:
            return [(paths[0], self.rows(f"SELECT count(*) FROM {table.name}", table)[0][0])]
        scan = _scan(table.files, *self._forms[table.name], extra=f"filename={literal(_FILE)}")
        counts = dict(self.rows(f"SELECT {quoted(_FILE)}, count(*) FROM {scan} GROUP BY ALL", table))
        return [(path, counts.get(str(path), 0)) for path in paths]

    def dialect(self, table: Table) -> Dialect:
        """How a text is read."""
        form, given = self._forms[table.name]
        first = replace(table.files, paths=table.files.paths[:1])
        found = self.rows(f"SELECT Delimiter, Quote, Comment, SkipRows, HasHeader FROM "
                          f"{_scan(first, form, given, sniff=True)}", table)[0]
        delimiter, quote, comment = ("" if sign in (None, "(empty)") else sign for sign in found[:3])
        return Dialect(delimiter or ",", quote, comment, found[3], found[4], form.encoding)

    def texts(self, values: Sequence[str] | pa.Array) -> str:
        """A table with the texts as `id`, and their places as `place`: its name in SQL."""
        import pyarrow as pa

        name, self._tables = f"table_{self._tables}", self._tables + 1
        self._connection.register(name, pa.table({"id": values, "place": np.arange(len(values))}))
        return name

    def positions(self, names: Sequence[str] | pa.Array, table: str) -> np.ndarray:
        """`[n]` int64 `number` in `table` of each `id`, -1 for unknown ids."""
        asked = self.texts(names)
        found = self._connection.sql(f"SELECT coalesce(t.number, -1) FROM {asked} a LEFT JOIN {table} t USING (id) "
                                     "ORDER BY a.place").to_arrow_table()
        self._connection.unregister(asked)
        return np.asarray(found.column(0).to_numpy(), np.int64)

    def numbered(self, values: Sequence[str]) -> str:
        """A table with the columns `value` and, from 0 on, `code`: its name in SQL."""
        import pyarrow as pa

        name, self._tables = f"table_{self._tables}", self._tables + 1
        given = pa.table({"value": pa.array(values, pa.string()), "code": np.arange(len(values))})
        self._connection.register("given", given)
        self._connection.execute(f"CREATE TEMP TABLE {name} AS SELECT value, code FROM given")
        self._connection.unregister("given")
        return name

    def copy(self, sql: str, path: Path) -> None:
        """Write a result to a Parquet file."""
        self._connection.execute(f"COPY ({sql}) TO {literal(str(path))} (FORMAT parquet)")

    def count(self, name: str, where: str = "true") -> int:
        """Number of rows of a table that `keep` made, for which `where` holds."""
        return int(self._connection.execute(f"SELECT count(*) FROM {name} WHERE {where}").fetchall()[0][0])

    def _refuse_rejects(self, files: TableFiles) -> None:
        """Raise the wrong rows that the last queries found.

        Raises:
            DataError: there are some. Names at most `MOST_SHOWN` of them, and counts the others.
        """
        if files.format != "text":
            return
        names = self._connection.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'reject_errors'").fetchall()
        if not names:
            return
        rejects = "FROM reject_errors e JOIN reject_scans s USING (scan_id, file_id)"
        found = self._connection.execute(
            "SELECT DISTINCT s.file_path, e.line, e.column_name, e.error_type, e.csv_line, e.error_message, "
            f"e.column_idx {rejects} ORDER BY s.file_path, e.line, e.column_idx LIMIT {MOST_SHOWN}").fetchall()
        if not found:
            return
        count = self._connection.execute(f"SELECT count(DISTINCT (s.file_path, e.line)) {rejects}").fetchall()[0][0]
        problems = [_rejected(*row[:6]) for row in found]
        if count > MOST_SHOWN:
            least = "at least " if count >= _MOST_REJECTS else ""
            problems.append(Problem(files.shown, f"{least}{count} wrong rows", f"{MOST_SHOWN} of them are shown",
                                    "correct the file, or what wrote it"))
        raise DataError(problems)


@contextmanager
def engine(folder: Path, memory_bytes: int, threads: int) -> Iterator[Engine]:
    """DuckDB with bounded memory.

    Args:
        folder: where DuckDB writes what does not fit in memory.
        memory_bytes: most bytes of its buffers.
        threads: number of its threads.
    """
    import duckdb

    with duckdb.connect(config={**_OPTIONS, "threads": threads, "temp_directory": str(folder),
                                "memory_limit": f"{max(1, memory_bytes >> 20)}MiB"}) as connection:
        connection.execute(f"SET streaming_buffer_size = {literal(_READ_AHEAD)}")
        yield Engine(connection)


def quoted(name: str) -> str:
    """A column's name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def single(name: str) -> str:
    """A number as FLOAT, in SQL; infinite if it is too large for float32, where a plain cast would name no row."""
    wide = f"{name}::DOUBLE"
    return (f"(CASE WHEN abs({wide}) <= {LARGEST!r} THEN {name}::FLOAT WHEN isnan({wide}) THEN 'nan'::FLOAT "
            f"WHEN {name} IS NOT NULL THEN 'inf'::FLOAT END)")


def literal(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def parquet_file(path: Path) -> str:
    """What reads one Parquet file, in SQL."""
    return f"read_parquet({literal(_masked(str(path)))}, hive_partitioning=false)"


def _scan(files: TableFiles, form: TextForm, given: Mapping[str, str], extra: str = "", *, sniff: bool = False) -> str:
    """The table function that reads the files. DuckDB takes a path as a pattern, so special characters are masked.

    Args:
        files: the files.
        form: how text is read.
        given: types of some columns of a text.
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
    kept = "" if sniff else f"store_rejects=true, rejects_limit={_MOST_REJECTS}, "
    options = [f"{kept}sample_size={_SAMPLE_ROWS}",
               f"encoding={literal(form.encoding)}", f"nullstr=[{', '.join(map(literal, form.nulls))}]"]
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
    if given:
        options.append(f"types={_struct(given)}")
    if sniff:
        return f"sniff_csv({literal(_masked(str(files.paths[0])))}, {', '.join(options)}{more})"
    return f"read_csv({paths}, {', '.join(options)}{more})"


def _with_path_columns(files: TableFiles, form: TextForm, scan: str) -> str:
    """The query of a table: what the files have, and the columns that are folders of each file.

    Values are integers if all of them are, else texts. A table of which no file is in such a folder lacks the column.
    """
    found = {name: path_values(files, name) for name in form.path_columns}
    asked = []
    for name, values in found.items():
        if any(one is not None for one in values):
            of = ", ".join(f"{literal(str(path))}: {'NULL' if one is None else literal(one)}"
                           for path, one in zip(files.paths, values, strict=True))
            whole = all(one is None or (re.fullmatch("0|-?[1-9][0-9]{0,17}", one)) for one in values)
            asked.append(f"map {{{of}}}[{quoted(_FILE)}]{'::BIGINT' if whole else ''} AS {quoted(name)}")
    if not asked:
        return f"SELECT * FROM {scan}"
    whole_scan = scan[:-1] + f", filename={literal(_FILE)})"
    return f"SELECT * EXCLUDE ({quoted(_FILE)}), {', '.join(asked)} FROM {whole_scan}"


def path_values(files: TableFiles, name: str) -> list[str | None]:
    """What the last folder `name=…` above each file says; None where there is none, or where it says so (Hive)."""
    found: list[str | None] = []
    for path in files.paths:
        parts = [one.partition("=")[2] for one in path.parts[:-1] if one.startswith(f"{name}=")]
        found.append(unquote(parts[-1]) if parts and parts[-1] != _HIVE_NULL else None)
    return found


def _struct(types: Mapping[str, str]) -> str:
    """Names of columns with their types, in SQL."""
    return "{" + ", ".join(f"{literal(name)}: {literal(kind)}" for name, kind in types.items()) + "}"


def _masked(path: str) -> str:
    return "".join(f"[{one}]" if one in "*?[" else one for one in path)


def _errors() -> tuple[type[Exception], ...]:
    import duckdb
    import pyarrow as pa

    return duckdb.Error, pa.ArrowException, OSError


def _unreadable(files: TableFiles, error: Exception) -> Problem:
    said, ends = " ".join(str(error).split()), list[str]()
    if _AS_CSV.search(said):
        with suppress(*_errors()):
            ends = ends_of_lines(files)
    if len(ends) > 1:
        return Problem(files.shown, f"lines end with {' and with '.join(ends)}", "all lines of a text have one end",
                       "write it again with one of them, for example by dos2unix")
    return Problem(files.shown, said[:300], "this table cannot be read", "correct the file, or write it again")


def _rejected(path: str, line: int, column: str | None, kind: str, text: str | None, message: str) -> Problem:
    """One wrong row of a text."""
    where = f"{path}, line {line}" + (f", column {column}" if column and kind != "TOO MANY COLUMNS" else "")
    return Problem(where, (text or "")[:_MOST_TEXT], message.split(". ", maxsplit=1)[0][:160], _FIXES.get(kind, _FIX))
