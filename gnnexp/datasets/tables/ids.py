"""Numbers the vertices of one type: ids of any integers or texts, with gaps, become 0..V-1.

With a table of vertices, the number is the row. Without one, vertices are those that edges name, in ascending order of
their ids. Integers are looked up in arrays, O(V). Texts are in a hash table. If they do not fit in memory or their type
has a table of vertices, DuckDB joins them, and may use the disk.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gnnexp.datasets.tables.engine import BATCH_ROWS, MOST_SHOWN, Engine, Table, quoted
from gnnexp.datasets.tables.rows.places import WrongRow, refuse_rows
from gnnexp.errors import DataError, Problem
from gnnexp.kernels.tables.integers import FRACTION, integers_of
from gnnexp.kernels.tables.numbers import look_up, mark
from gnnexp.kernels.tables.texts import Dictionary, ascending

if TYPE_CHECKING:
    import pyarrow as pa

_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
_WIDE = ("HUGEINT", "UHUGEINT", "UBIGINT")
_REAL = ("FLOAT", "DOUBLE")
_EXACT = 2**53  # larger whole numbers may be inexact as real numbers.
# An array over all ids between the smallest and the largest is used if it has at most this many entries per vertex.
_MOST_GAPS, _ALWAYS = 8, 1 << 20
_MOST_DIGITS = 19  # of a number in int64
POINT = r"(0|-?[1-9][0-9]*)\.0"


class NoIntegersError(Exception):
    """Ids look like integers in a sample of rows, and are none."""


def are_integers(engine: Engine, table: Table, column: str) -> bool:
    """Whether the ids of a column are integers that fit in int64, as far as this is known without reading all rows.

    Real numbers are integers if they have no fractions. A column of a text looks like integers, also if all of its
    values end with `.0`, as pandas writes integers with an empty cell between them. To read it shows whether it is.

    Raises:
        DataError: the column has values that are no ids.
    """
    if column in table.looks:
        look = table.looks[column]
        return look in (*_INTEGERS, *_WIDE) or has_points(engine, table, column)
    kind, name = table.types[column], quoted(column)
    if kind in _WIDE:
        # JSON's integers are read so if some are negative
        least, most = engine.rows(f"SELECT min({name}), max({name}) FROM {table.name}", table)[0]
        return least is None or -(2**63) <= least <= most < 2**63
    if kind in _INTEGERS or kind == "VARCHAR" or kind.startswith("ENUM"):
        return kind in _INTEGERS
    fix = "write the ids as integers or texts"
    if kind not in _REAL:
        raise DataError(Problem(f"{table.files.shown}, column {column}", kind, "ids are integers or texts", fix))
    real = f"real numbers must be whole, and at most {_EXACT} (2^53)"
    broken = engine.rows(f"SELECT {name} FROM {table.name} WHERE NOT isnan({name}) AND "
                         f"({name} <> floor({name}) OR abs({name}) > {_EXACT}) LIMIT 1", table)
    if broken:
        raise DataError(Problem(f"{table.files.shown}, column {column}", broken[0][0],
                                f"ids are integers or texts: {real}", fix))
    return True


def has_points(engine: Engine, table: Table, column: str) -> bool:
    """Whether each value of a column of a text is an integer followed by `.0`."""
    if table.looks.get(column) not in _REAL:
        return False
    name = quoted(column)
    return not engine.rows(f"SELECT 1 FROM {table.name} WHERE NOT regexp_full_match({name}, '{POINT}') LIMIT 1", table)


def of_points(count: int, what: str, column: str) -> str:
    """The note of integers that a file writes with a fraction of zero."""
    return f"{count:,} {what} of the column {column} count as integers: the file writes all of them with .0"


def integers_in(texts: Sequence[str]) -> list[int] | None:
    """The integers that texts are, as they are printed, or all of them with `.0` behind; None if one is none."""
    cut = [one.removesuffix(".0") for one in texts]
    if cut != list(texts) and any(one == text for one, text in zip(cut, texts, strict=True)):
        return None
    found = [int(one) if re.fullmatch(r"0|-?[1-9][0-9]{0,999}", one) else None for one in cut]
    return [one for one in found if one is not None] if None not in found else None


def id_of(table: Table, column: str, *, text: bool) -> str:
    """The id in a column, in SQL: a text, or BIGINT if the column has a type. What a file has as a text stays one."""
    name = quoted(column)
    if table.types[column] not in _REAL:
        return name if column in table.looks else f"{name}::{'VARCHAR' if text else 'BIGINT'}"
    whole = f"TRY_CAST({name} AS BIGINT)"  # NULL for NaN
    return f"{whole}::VARCHAR" if text else whole


class Ids(ABC):
    """The ids of the vertices of one type."""

    @property
    @abstractmethod
    def count(self) -> int:
        """V."""

    @abstractmethod
    def named(self, names: Sequence[str] | pa.Array) -> np.ndarray:
        """`[n]` number of the vertex that each text names, -1 for unknown ones."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write a Parquet file with the columns `id` and, in ascending order, `vertex`."""


@dataclass(frozen=True, eq=False)
class IntegerIds(Ids):
    """Ids that are integers.

    Attributes:
        values: `[V]` int64 id of each vertex; all ids are different.
    """

    values: np.ndarray

    @property
    def count(self) -> int:
        """V."""
        return int(self.values.size)

    @property
    def are_numbers(self) -> bool:
        """Whether each id is the number of its vertex."""
        return bool((self.values == np.arange(self.count)).all())

    def lookup(self) -> Lookup:
        """What finds the numbers of many ids."""
        return Lookup.of(self.values)

    def named(self, names: Sequence[str] | pa.Array) -> np.ndarray:
        """See `Ids.named`."""
        found = [_integer(str(one)) for one in names]
        known = np.array([one is not None for one in found], np.bool_)
        return np.where(known, self.lookup().numbers(np.array([one or 0 for one in found], np.int64)), -1)

    def save(self, path: Path) -> None:
        """Write `id` int64 and `vertex` int64."""
        import pyarrow as pa
        from pyarrow import parquet

        table = pa.table({"id": self.values, "vertex": np.arange(self.count)})
        parquet.write_table(table, path, use_dictionary=False)  # all values are different


@dataclass(frozen=True, eq=False)
class Lookup:
    """Finds the number of each id, in an array from the smallest id to the largest, or by bisection.

    Attributes:
        low: smallest id.
        table: `[largest - low + 1]` number of each id, -1 for ids without a vertex; or None.
        ordered, order: `[V]` ids in ascending order, and their numbers; or None.
    """

    low: int
    table: np.ndarray | None
    ordered: np.ndarray | None
    order: np.ndarray | None

    @staticmethod
    def of(values: np.ndarray) -> Lookup:
        """The lookup of different ids `[V]` int64."""
        low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
        dtype = np.int32 if values.size < 2**31 else np.int64
        if high - low + 1 <= _MOST_GAPS * values.size + _ALWAYS:
            table = np.full(high - low + 1, -1, dtype)
            table[values - low] = np.arange(values.size, dtype=dtype)
            return Lookup(low, table, None, None)
        order = np.argsort(values, kind="stable")
        return Lookup(low, None, values[order], order.astype(dtype))

    def numbers(self, ids: np.ndarray) -> np.ndarray:
        """`[n]` numbers of `ids` `[n]` int32 or int64, -1 for unknown ids."""
        if self.table is not None:
            found = np.empty(ids.size, self.table.dtype)
            look_up(ids, self.low, self.table, found)
            return found
        assert self.ordered is not None and self.order is not None
        places = np.searchsorted(self.ordered, ids)
        places[places == self.ordered.size] = 0
        return np.where(self.ordered[places] == ids, self.order[places], self.order.dtype.type(-1))


@dataclass(frozen=True, eq=False)
class TextIds(Ids):
    """Ids that are texts, in a table of DuckDB.

    Attributes:
        engine: what holds the table.
        table: name of the table in SQL, with the columns `id` and `number`.
        size: V.
    """

    engine: Engine
    table: str
    size: int

    @property
    def count(self) -> int:
        """V."""
        return self.size

    def named(self, names: Sequence[str] | pa.Array) -> np.ndarray:
        """See `Ids.named`."""
        return self.engine.positions(names, self.table)

    def save(self, path: Path) -> None:
        """Write `id` text and `vertex` int64."""
        self.engine.copy(f"SELECT id, number AS vertex FROM {self.table} ORDER BY number", path)


@dataclass(frozen=True, eq=False)
class HeldTexts(Ids):
    """Ids that are texts, in memory.

    Attributes:
        known: the different texts.
        places: `[V]` int32 place of the text of each vertex in `known`.
        numbers: `[V]` int32 number of the vertex of each text in `known`.
    """

    known: Dictionary
    places: np.ndarray
    numbers: np.ndarray

    @staticmethod
    def of(given: Sequence[Dictionary]) -> HeldTexts:
        """The ids that edges name, ascending; `given`: different texts of edges, all of which are in memory."""
        known = given[0]
        if len(given) > 1:
            known = Dictionary()
            for one in given:
                known.numbers(*one.texts())
        places = ascending(*known.texts()).astype(np.int32)
        numbers = np.empty(places.size, np.int32)
        numbers[places] = np.arange(places.size, dtype=np.int32)
        return HeldTexts(known, places, numbers)

    @property
    def count(self) -> int:
        """V."""
        return int(self.places.size)

    def named(self, names: Sequence[str] | pa.Array) -> np.ndarray:
        """See `Ids.named`."""
        import pyarrow as pa

        places = self.known.known(*bytes_of(pa.array(names, pa.large_string())))
        found: np.ndarray = np.append(self.numbers, np.int32(-1))[places]  # place -1 is the last one
        return found

    def save(self, path: Path) -> None:
        """Write `id` text and `vertex` int64."""
        import pyarrow as pa
        from pyarrow import parquet

        texts, schema = array_of(self.known), pa.schema([("id", pa.string()), ("vertex", pa.int64())])
        with parquet.ParquetWriter(path, schema, use_dictionary=False) as writer:
            for start in range(0, self.count, BATCH_ROWS):
                ids = texts.take(pa.array(self.places[start : start + BATCH_ROWS])).cast(pa.string())
                vertices = np.arange(start, start + len(ids))
                writer.write_table(pa.table({"id": ids, "vertex": vertices}, schema=schema))


def _integer(text: str) -> int | None:
    """The number that a text is, if it fits in int64."""
    digits = text.removeprefix("-")
    if not digits.isdecimal() or len(digits.lstrip("0")) > _MOST_DIGITS:
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None


def bytes_of(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of texts, and their bounds `[n + 1]` int64; a missing text counts as an empty one."""
    import pyarrow as pa

    texts = column.cast(pa.large_string())
    _, bounds, content = texts.buffers()
    offsets = np.frombuffer(bounds, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(content if content is not None and content.size else b"\0", np.uint8), offsets


def array_of(known: Dictionary) -> pa.Array:
    """The different texts, in the order of their numbers."""
    import pyarrow as pa

    data, offsets = known.texts()
    return pa.LargeStringArray.from_buffers(offsets.size - 1, pa.py_buffer(offsets), pa.py_buffer(data))


def ids_of_rows(engine: Engine, table: Table, column: str, *, text: bool) -> Ids:
    """The ids of a table with a row for each vertex.

    Args:
        engine: what reads the table.
        table: the table.
        column: its column of ids.
        text: whether ids are taken as texts.

    Raises:
        DataError: ids are missing or repeated. Names rows.
        NoIntegersError: ids are no integers, and not `text`. Names the first one.
    """
    name = quoted(column)
    written = not text and column in table.looks
    identity = _printed(engine, table, column) if written else id_of(table, column, text=text)
    lost = f"{name} IS NULL" if written else "false"
    kept = engine.keep(f"SELECT {identity} AS id, row_number() OVER () - 1 AS number, {lost} AS missing "
                       f"FROM {table.name}", table)
    if written and engine.count(kept, "id IS NULL AND NOT missing"):
        raise NoIntegersError
    fix = "give each vertex one row with an id of its own"
    missing = engine.rows(f"SELECT number FROM {kept} WHERE id IS NULL ORDER BY number LIMIT {MOST_SHOWN}", table)
    refuse_rows(engine, table, [WrongRow(row, column, None, "is missing") for row, in missing],
                engine.count(kept, "id IS NULL"), fix)
    earlier = "row_number() OVER (PARTITION BY id ORDER BY number) > 1"
    again = engine.keep(f"SELECT number, id FROM {kept} QUALIFY {earlier}", table)
    repeated = engine.rows(f"SELECT number, id FROM {again} ORDER BY number LIMIT {MOST_SHOWN}", table)
    refuse_rows(engine, table, [WrongRow(row, column, value, "is the id of an earlier row") for row, value in repeated],
                engine.count(again), fix)
    if text:
        return TextIds(engine, kept, engine.count(kept))
    batches = [batch.column(0).to_numpy() for batch in engine.batches(f"SELECT id FROM {kept} ORDER BY number", table)]
    return IntegerIds(np.concatenate(batches) if batches else np.empty(0, np.int64))


def _printed(engine: Engine, table: Table, column: str) -> str:
    """The integer that a text is, in SQL; NULL if the integer is printed in another way."""
    name = quoted(column)
    if has_points(engine, table, column):
        name = f"left({name}, length({name}) - 2)"
    return f"(CASE WHEN TRY_CAST({name} AS BIGINT)::VARCHAR = {name} THEN TRY_CAST({name} AS BIGINT) END)"


def integer_or_text(engine: Engine, table: Table, column: str, *, points: bool) -> str:
    """An id or a class in SQL, which `as_written` made a text: an integer if all values of the column are some.

    A typed column stays as it is, but for whole real numbers. With `points`, integers may end with `.0`.
    """
    if table.types[column] in _REAL:
        return f"(CASE WHEN {quoted(column)} = floor({quoted(column)}) THEN TRY_CAST({quoted(column)} AS BIGINT) END)"
    if column not in table.looks or (not points and table.looks[column] in _REAL):
        return quoted(column)
    printed = _printed(engine, table, column)
    wrong = f"SELECT 1 FROM {table.name} WHERE {quoted(column)} IS NOT NULL AND {printed} IS NULL LIMIT 1"
    return quoted(column) if engine.rows(wrong, table) else printed


def parsed(values: pa.Array, *, points: bool) -> np.ndarray:
    """`[n]` int64 integers of a batch of texts, 0 for a missing one; `points`: they end with `.0`.

    Raises:
        NoIntegersError: a text is none. Names the first one.
    """
    texts = values.fill_null("0.0" if points else "0") if values.null_count else values
    found, wrong = integers_of(*bytes_of(texts), FRACTION if points else 0)
    if wrong >= 0:
        raise NoIntegersError(texts[wrong].as_py())
    return found


def named_integers(chunks: Iterable[tuple[np.ndarray, ...]], low: int, high: int, most: int) -> IntegerIds:
    """The ids that edges name, ascending.

    Args:
        chunks: arrays of ids.
        low: smallest id.
        high: largest id.
        most: upper bound for the number of different ids.
    """
    if high - low + 1 <= _MOST_GAPS * most + _ALWAYS:
        present = np.zeros(high - low + 1, np.bool_)
        for chunk in chunks:
            for ids in chunk:
                mark(ids, low, present)
        return IntegerIds(np.flatnonzero(present) + low)
    found = np.empty(0, np.int64)
    for chunk in chunks:
        found = np.union1d(found, np.concatenate(chunk))
    return IntegerIds(found)


def named_texts(engine: Engine, columns: Iterable[tuple[Table, str, str]]) -> TextIds:
    """The ids that edges name, ascending.

    Args:
        engine: what reads the tables.
        columns: for each column of ids the table of edges, the name in SQL of its rows, and the column.
    """
    columns = list(columns)
    every = " UNION ALL ".join(f"SELECT {quoted(column)} AS id FROM {rows}" for _, rows, column in columns)
    kept = engine.keep("SELECT id, row_number() OVER (ORDER BY id) - 1 AS number "
                       f"FROM (SELECT id FROM ({every}) GROUP BY id)", columns[0][0])
    return TextIds(engine, kept, engine.count(kept))
