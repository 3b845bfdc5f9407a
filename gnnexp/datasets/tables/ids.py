"""Numbers the vertices of one type: ids of any integers or texts, with gaps, become 0..V-1.

With a table of vertices, the number is the row. Without one, vertices are those that edges name, in ascending order of
their ids. Integers are looked up in arrays, O(V). Texts are in a hash table. If they do not fit in memory or their type
has a table of vertices, DuckDB joins them, and may use the disk.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gnnexp.datasets.tables.engine import BATCH_ROWS, MOST_SHOWN, Engine, Table
from gnnexp.datasets.tables.rows.places import WrongRow, refuse_rows
from gnnexp.datasets.tables.sql import quoted
from gnnexp.datasets.tables.written import NoIntegersError, bytes_of, first_other, id_of, printed, text_of
from gnnexp.kernels.tables.numbers import look_up
from gnnexp.kernels.tables.texts import Dictionary, ascending

if TYPE_CHECKING:
    import pyarrow as pa

# An array over all ids between the smallest and the largest is used if it has at most this many entries per vertex.
MOST_GAPS, _ALWAYS = 8, 1 << 20
_MOST_DIGITS = 19  # of a number in int64


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
        if high - low + 1 <= MOST_GAPS * values.size + _ALWAYS:
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


def array_of(known: Dictionary) -> pa.Array:
    """The different texts, in the order of their numbers."""
    import pyarrow as pa

    data, offsets = known.texts()
    return pa.LargeStringArray.from_buffers(offsets.size - 1, pa.py_buffer(offsets), pa.py_buffer(data))


def ids_of_rows(engine: Engine, table: Table, column: str, kind: str, *, text: bool) -> Ids:
    """The ids of a table with a row for each vertex.

    Args:
        engine: what reads the table.
        table: the table.
        column: its column of ids.
        kind: the type of the vertices.
        text: whether ids are taken as texts.

    Raises:
        DataError: ids are missing or repeated. Names rows.
        NoIntegersError: ids are no integers, and not `text`.
    """
    written = not text and column in table.looks
    identity = printed(text_of(table, column)) if written else id_of(table, column, text=text)
    lost = f"{quoted(column)} IS NULL" if written else "false"
    kept = engine.keep(
        f"SELECT {identity} AS id, row_number() OVER () - 1 AS number, {lost} AS missing FROM {table.name}", table
    )
    if written and engine.count(kept, "id IS NULL AND NOT missing"):
        raise NoIntegersError(kind, first_other(engine, table, column))
    fix = "give each vertex one row with an id of its own"
    missing = engine.rows(f"SELECT number FROM {kept} WHERE id IS NULL ORDER BY number LIMIT {MOST_SHOWN}", table)
    refuse_rows(
        engine,
        table,
        [WrongRow(row, column, None, "is missing") for (row,) in missing],
        engine.count(kept, "id IS NULL"),
        fix,
    )
    # A window over all ids would have to be in memory.
    several = engine.keep(f"SELECT id, min(number) AS first FROM {kept} GROUP BY id HAVING count(*) > 1", table)
    again = engine.keep(
        f"SELECT k.number, id FROM {kept} k JOIN {several} s USING (id) WHERE k.number > s.first", table
    )
    repeated = engine.rows(f"SELECT number, id FROM {again} ORDER BY number LIMIT {MOST_SHOWN}", table)
    refuse_rows(
        engine,
        table,
        [WrongRow(row, column, value, "is the id of an earlier row") for row, value in repeated],
        engine.count(again),
        fix,
    )
    if text:
        return TextIds(engine, kept, engine.count(kept))
    batches = [batch.column(0).to_numpy() for batch in engine.batches(f"SELECT id FROM {kept} ORDER BY number", table)]
    return IntegerIds(np.concatenate(batches) if batches else np.empty(0, np.int64))
