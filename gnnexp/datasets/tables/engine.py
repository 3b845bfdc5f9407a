"""Reads tables with DuckDB, within a limit of memory: text, JSON, Parquet and Arrow, typed by a sample of rows.

DuckDB finds all rows of a text that do not fit the types of their columns, with their line numbers, in one pass. It
sorts and joins tables that do not fit in memory. pyarrow stops at the first wrong row, and has no such join. DuckDB
loads no extension here, so it reads no address of the network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gnnexp.datasets.tables.file_bytes import ends_of_lines, refuse_broken, refuse_empty, refuse_endless
from gnnexp.datasets.tables.files import TableFiles
from gnnexp.datasets.tables.scan import (
    FILE,
    MOST_REJECTS,
    REAL,
    WHOLE,
    Dialect,
    SqlTable,
    TextForm,
    literal,
    query_of,
    quoted,
    scan_of,
    struct,
)
from gnnexp.errors import DataError, Problem

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection
    from numpy.typing import DTypeLike

MOST_SHOWN = 20
BATCH_ROWS = 1 << 20
_MOST_TEXT = 60
_FIXES = {
    "CAST": "correct the value, or read this column as text: dataset.as_text=[COLUMN]",
    "INVALID ENCODING": "set dataset.encoding=latin-1 or utf-16, or write the file in UTF-8",
}
_FIX = "correct the row: all rows need the same number of columns, and a cell with a delimiter needs quotes"
_OPTIONS = {"autoload_known_extensions": "false", "autoinstall_known_extensions": "false"}
_AS_CSV = re.compile("sniffing file|invalid state|mix of newline|new line", re.IGNORECASE)
_READ_AHEAD = "16MiB"  # of a result, while a batch is used
_SMALL_GROUP = 1 << 12  # rows of a group in a Parquet file, if larger ones do not fit in memory
T = TypeVar("T")


class Engine:
    """Tables of one data set. `engine` makes it.

    Args:
        connection: DuckDB, in memory.
    """

    def __init__(self, connection: DuckDBPyConnection) -> None:
        self._connection, self._tables = connection, 0
        self._scans: dict[str, tuple[TextForm, Mapping[str, str], str]] = {}  # of each view: how it is read

    def close(self) -> None:
        """Free the memory of all tables, which are gone then."""
        self._connection.close()

    def table(self, files: TableFiles, form: TextForm | None = None, *, as_text: Sequence[str] = ()) -> SqlTable:
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
        refuse_endless(files)
        types = self._view(files, form, texts)
        of_paths = [name for name in form.path_columns if name in types[1]]
        if (
            files.format == "text"
            and form.delimiter is None
            and len(types[1]) == 1 + len(of_paths)
            and (" " in next(iter(types[1])) or form.header is False)
        ):
            spaced = self._view(files, replace(form, delimiter=" "), texts)  # not among the signs that DuckDB tries
            types = max(types, spaced, key=lambda view: len(view[1]))
        if files.format == "json" and as_text:
            types = self._view(files, form, texts, {**types[1], **texts})
        table = SqlTable(files, *types, of_paths=of_paths, decimal=form.decimal if files.format == "text" else ".")
        self._refuse_twice(table)
        return table

    def as_written(self, table: SqlTable, names: Iterable[str]) -> SqlTable:
        """The same table, in which a text's columns `names` are texts, byte by byte as the file writes them.

        Otherwise `1.10` would be 1.1, and `1E5` 100000. Tables with types of their own (Parquet, Arrow) stay.

        Raises:
            DataError: a column of a JSON has texts and other values.
        """
        if table.name not in self._scans or table.files.format not in ("text", "json"):
            return table
        names = list(names)
        DataError.raise_all(
            [
                Problem(
                    f"{table.files.shown}, column {name}",
                    "JSON",
                    "has texts next to numbers or to other values",
                    f"write texts only, or set dataset.as_text=[{name}]",
                )
                for name in names
                if table.types[name] == "JSON"
            ]
        )
        form, forced, _ = self._scans[table.name]
        kept = ("VARCHAR", *(REAL if table.files.format == "json" else ()))  # JSON's numbers have a type
        looks = {
            name: table.types[name] for name in names if name not in table.of_paths and table.types[name] not in kept
        }
        if not looks:
            return table
        types = {**table.types, **dict.fromkeys(looks, "VARCHAR")} if table.files.format == "json" else None
        if types is None and form.header is None:  # texts only: no header would be found
            named = not all(re.fullmatch(r"column\d+", name) for name in table.own)
            form = replace(form, header=named or self.dialect(table).header)
        name, types_of_view = self._view(table.files, form, {**forced, **dict.fromkeys(looks, "VARCHAR")}, types)
        return replace(table, name=name, types=types_of_view, looks=looks)

    def as_numbers(self, table: SqlTable, names: Iterable[str]) -> SqlTable:
        """The same table, in which columns `names` of whole numbers of a text are real numbers.

        A sample of rows found their types. Fractions in later rows would be rounded: DuckDB reads `2.75` as the
        integer 3 without an error.
        """
        if table.files.format != "text":
            return table
        form, forced, _ = self._scans[table.name]
        wider = {name: "DOUBLE" for name in names if name not in table.of_paths and table.types[name] in WHOLE}
        if not wider:
            return table
        name, types = self._view(table.files, form, {**forced, **wider})
        return replace(table, name=name, types=types)

    def has_fractions(self, table: SqlTable, name: str) -> bool:
        """Whether a column of a text whose sample has whole numbers has others further below."""
        if table.files.format != "text" or table.types[name] not in WHOLE or name in table.of_paths:
            return False
        written = self.as_written(table, [name])
        asked = f"SELECT 1 FROM {written.name} WHERE regexp_matches({quoted(name)}, '[.eE]') LIMIT 1"
        return bool(self.rows(asked, written))

    def _refuse_twice(self, table: SqlTable) -> None:
        """Raise if a file has two columns of one name. DuckDB renames the second one, `label_1`.

        Raises:
            DataError: there are such columns.
        """
        lower = {name.lower() for name in table.types}
        if table.files.format in ("json", "arrow") or not any(  # DuckDB and pyarrow refuse two equal names there
            (match := re.fullmatch(r"(.+)_[0-9]+", name)) and match[1].lower() in lower for name in table.own
        ):
            return
        names = self._names_of_file(table)
        twice = [name for name in dict.fromkeys(names) if name and names.count(name) > 1]
        DataError.raise_all(
            [
                Problem(
                    f"{table.files.shown}, column {name}",
                    f"{names.count(name)} columns",
                    "columns have different names",
                    "rename or remove one of them",
                )
                for name in twice
            ]
        )

    def _names_of_file(self, table: SqlTable) -> list[str]:
        """The names of columns as the first file has them."""
        path = table.files.paths[0]
        if table.files.format == "parquet":
            from pyarrow import parquet

            return list(parquet.read_schema(path).names)
        if not self.dialect(table).header:
            return []
        form, *_ = self._scans[table.name]
        first = replace(table.files, paths=(path,))
        scan = scan_of(first, replace(form, header=False), {}, extra="all_varchar=true")
        return [name or "" for name in self.rows(f"SELECT * FROM {scan} LIMIT 1", table)[0]]

    def _view(
        self, files: TableFiles, form: TextForm, forced: Mapping[str, str], types: Mapping[str, str] | None = None
    ) -> tuple[str, dict[str, str]]:
        """A view of the files: its name in SQL, and the type of each column.

        Args:
            files: the files.
            form: how text is read.
            forced: types of some columns of a text.
            types: types of all columns of a JSON.
        """
        name, self._tables = f"table_{self._tables}", self._tables + 1
        try:
            if files.format == "arrow":
                import pyarrow.dataset as arrow

                refuse_broken(files)
                self._connection.register(name, arrow.dataset([str(path) for path in files.paths], format="feather"))
            else:
                known = {key: kind for key, kind in (types or {}).items() if key not in form.path_columns}
                self._scans[name] = form, forced, f"columns={struct(known)}" if known else ""
                self._connection.execute(f"CREATE VIEW {name} AS {query_of(files, *self._scans[name])}")
            columns = self._connection.execute(f"DESCRIBE {name}").fetchall()
        except _errors() as error:
            raise DataError(_unreadable(files.shown, error, files)) from None
        names = [column[0] for column in columns]
        twice = [
            path_column for path_column in form.path_columns if f"{path_column}_1" in names and path_column in names
        ]
        DataError.raise_all(
            [
                Problem(
                    f"{files.shown}, column {path_column}",
                    path_column,
                    f"{path_column}: the files have this column",
                    "take it out of dataset.path_columns",
                )
                for path_column in twice
            ]
        )
        return name, {column[0]: column[1] for column in columns}

    def rows(self, sql: str, table: SqlTable) -> list[tuple[Any, ...]]:
        """All rows of a small result.

        Raises:
            DataError: the files of the table are damaged, or have wrong rows.
        """
        try:
            rows = self._within_memory(lambda: self._connection.execute(sql).fetchall())
        except _errors() as error:
            raise DataError(_unreadable(table.files.shown, error, table.files)) from None
        self._refuse_rejects(table.files)
        return rows

    def batches(self, sql: str, table: SqlTable) -> Generator[pa.RecordBatch, None, None]:
        """A result of any size in record batches, in the order of the files.

        Raises:
            DataError: as `rows`; wrong rows at the end, all together.
        """
        try:
            yield from self._within_memory(lambda: _begun(self._connection.sql(sql).to_arrow_reader(BATCH_ROWS)))
        except _errors() as error:
            raise DataError(_unreadable(table.files.shown, error, table.files)) from None
        self._refuse_rejects(table.files)

    def array(self, sql: str, table: SqlTable, dtype: DTypeLike = np.int64) -> np.ndarray:
        """`[rows]` the only column of a result, in its order; a missing value is NaN.

        Raises:
            DataError: as `batches`.
        """
        batches = (batch.column(0).to_numpy(zero_copy_only=False) for batch in self.batches(sql, table))
        return np.concatenate([np.empty(0, dtype), *batches])

    def _within_memory(self, step: Callable[[], T]) -> T:
        """What `step` returns; from now on with one thread if several need more memory than there is."""
        try:
            return step()
        except _errors() as error:
            if not _lacks_memory(error):
                raise
        self._connection.execute("SET threads = 1")
        return step()

    def keep(self, sql: str, table: SqlTable) -> str:
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

    def rows_by_file(self, table: SqlTable) -> list[tuple[Path, int]]:
        """The files of a table in the order of its rows, with their numbers of rows. One pass if there are several."""
        paths = table.files.paths
        if table.files.format == "arrow":
            import pyarrow.dataset as arrow

            return [(path, arrow.dataset(str(path), format="feather").count_rows()) for path in paths]
        if len(paths) == 1:
            return [(paths[0], self.rows(f"SELECT count(*) FROM {table.name}", table)[0][0])]
        counts = dict(self.by_file(table, "count(*)"))
        return [(path, counts.get(str(path), 0)) for path in paths]

    def by_file(self, table: SqlTable, asked: str) -> list[tuple[Any, ...]]:
        """For each file with rows its path, and what is asked: aggregates in SQL. Not for Arrow files."""
        rows = query_of(table.files, *self._scans[table.name], named=True)
        return self.rows(f"SELECT {quoted(FILE)}, {asked} FROM ({rows}) GROUP BY {quoted(FILE)}", table)

    def dialect(self, table: SqlTable) -> Dialect:
        """How a text is read."""
        form, given, _ = self._scans[table.name]
        first = replace(table.files, paths=table.files.paths[:1])
        found = self.rows(
            f"SELECT Delimiter, Quote, Comment, SkipRows, HasHeader FROM {scan_of(first, form, given, sniff=True)}",
            table,
        )[0]
        delimiter, quote, comment = ("" if sign in (None, "(empty)") else sign for sign in found[:3])
        return Dialect(delimiter or ",", quote, comment, found[3], found[4], form.encoding)

    def texts(self, values: Sequence[str] | pa.Array | np.ndarray) -> str:
        """A table with the values as `id`, and their places as `number`: its name in SQL."""
        import pyarrow as pa

        name, self._tables = f"table_{self._tables}", self._tables + 1
        self._connection.register(name, pa.table({"id": values, "number": np.arange(len(values))}))
        return name

    def positions(self, names: Sequence[str] | pa.Array | np.ndarray, table: str) -> np.ndarray:
        """`[n]` int64 `number` in `table` of each `id`, -1 for unknown ids."""
        asked = self.texts(names)
        found = self._connection.sql(
            f"SELECT coalesce(t.number, -1) FROM {asked} a LEFT JOIN {table} t USING (id) ORDER BY a.number"
        ).to_arrow_table()
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

    def codes(self, kept: str, known: str, table: SqlTable) -> np.ndarray:
        """`[n]` int64 `code` in `known` (`numbered`) of each `value` of a table that `keep` made, -1 for none.

        Args:
            kept: the table, with the columns `value` and `number`, in the order of which codes are.
            known: the values with codes.
            table: the table that both are of, for messages.
        """
        codes = f"SELECT coalesce(r.code, -1)::BIGINT FROM {kept} k LEFT JOIN {known} r USING (value)"
        return self.array(f"{codes} ORDER BY k.number", table)

    def copy(self, sql: str, path: Path) -> None:
        """Write a result to a Parquet file.

        Raises:
            DataError: the memory or the disk is too small.
        """
        written = f"COPY ({sql}) TO {literal(str(path))} (FORMAT parquet{{}})"
        small = written.format(f", ROW_GROUP_SIZE {_SMALL_GROUP}")
        try:
            try:
                self._connection.execute(written.format(""))
            except _errors() as error:
                if not _lacks_memory(error):
                    raise
                self._within_memory(lambda: self._connection.execute(small))  # a group of rows is in memory
        except _errors() as error:
            raise DataError(_unreadable(str(path), error)) from None

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
        if not self._has_rejects():
            return
        rejects = "FROM reject_errors e JOIN reject_scans s USING (scan_id, file_id)"
        rejected = self._connection.execute(
            "SELECT DISTINCT s.file_path, e.line, e.column_name, e.error_type, e.csv_line, e.error_message, "
            f"e.column_idx {rejects} ORDER BY s.file_path, e.line, e.column_idx LIMIT {MOST_SHOWN}"
        ).fetchall()
        count = self._connection.execute(f"SELECT count(DISTINCT (s.file_path, e.line)) {rejects}").fetchall()[0][0]
        problems = [_rejected(*row[:6]) for row in rejected]
        if count > MOST_SHOWN:
            least = "at least " if count >= MOST_REJECTS else ""
            problems.append(
                Problem(
                    files.shown,
                    f"{least}{count} wrong rows",
                    f"{MOST_SHOWN} of them are shown",
                    "correct the file, or what wrote it",
                )
            )
        raise DataError(problems)

    def _has_rejects(self) -> bool:
        """Whether there is a wrong row. DuckDB makes this table at the first scan; to ask for its name costs more."""
        import duckdb

        try:
            return bool(self._connection.execute("SELECT 1 FROM reject_errors LIMIT 1").fetchall())
        except duckdb.CatalogException:
            return False


@contextmanager
def engine(folder: Path, memory_bytes: int, threads: int) -> Iterator[Engine]:
    """DuckDB with bounded memory.

    Args:
        folder: where DuckDB writes what does not fit in memory.
        memory_bytes: most bytes of its buffers.
        threads: number of its threads.
    """
    import duckdb

    with duckdb.connect(
        config={
            **_OPTIONS,
            "threads": threads,
            "temp_directory": str(folder),
            "memory_limit": f"{max(1, memory_bytes >> 20)}MiB",
        }
    ) as connection:
        connection.execute(f"SET streaming_buffer_size = {literal(_READ_AHEAD)}")
        yield Engine(connection)


def _errors() -> tuple[type[Exception], ...]:
    import duckdb
    import pyarrow as pa

    return duckdb.Error, pa.ArrowException, OSError


def _begun(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The batches of a reader. The first one is read at once: most of the work is before it."""
    return chain([*islice(reader, 1)], reader)


def _lacks_memory(error: Exception) -> bool:
    """Whether DuckDB has too little memory. What its result reader raises has Arrow's type, so the words decide."""
    return "Out of Memory Error" in str(error)


def _unreadable(shown: str, error: Exception, files: TableFiles | None = None) -> Problem:
    said, ends = " ".join(str(error).split()), list[str]()
    if _lacks_memory(error):
        return Problem(
            shown,
            said[:100],
            "its rows need more memory than dataset.buffer_bytes",
            "set a larger dataset.buffer_bytes, or give fewer rows at a time",
        )
    if files is not None and _AS_CSV.search(said):
        with suppress(*_errors()):
            ends = ends_of_lines(files)
    if len(ends) > 1:
        return Problem(
            shown,
            f"lines end with {' and with '.join(ends)}",
            "all lines of a text have one end",
            "write it again with one of them, for example by dos2unix",
        )
    return Problem(shown, said[:300], "this table cannot be read", "correct the file, or write it again")


def _rejected(path: str, line: int, column: str | None, kind: str, text: str | None, message: str) -> Problem:
    """One wrong row of a text."""
    where = f"{path}, line {line}" + (f", column {column}" if column and kind != "TOO MANY COLUMNS" else "")
    return Problem(where, (text or "")[:_MOST_TEXT], message.split(". ", maxsplit=1)[0][:160], _FIXES.get(kind, _FIX))
