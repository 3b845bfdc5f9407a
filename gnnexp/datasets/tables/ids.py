"""Numbers the vertices of one type: ids of any integers or texts, with gaps, become 0..V-1.

With a table of vertices, the number is the row. Without one, vertices are those that edges name, in ascending order of
their ids. Integers are looked up in arrays, O(V). Texts are in a hash table. If they do not fit in memory or their type
has a table of vertices, DuckDB joins them, and may use the disk.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gnnexp.datasets.tables.engine import BATCH_ROWS, Engine
from gnnexp.datasets.tables.places import refuse_where
from gnnexp.datasets.tables.scan import SqlTable, quoted
from gnnexp.datasets.tables.written import NoIntegersError, bytes_of, first_other, id_of, integer_sql, text_sql
from gnnexp.kernels.tables.numbers import look_up
from gnnexp.kernels.tables.texts import Dictionary, ascending

if TYPE_CHECKING:
    import pyarrow as pa

# An array over all ids between the smallest and the largest is used if it has at most this many entries per vertex.
MOST_GAPS, _ALWAYS = 8, 1 << 20
_MOST_DIGITS = 19  # of a number in int64
# Integers `[n]`, or texts.
Batch: TypeAlias = "np.ndarray | Sequence[str] | pa.Array"


class Ids(ABC):
    """The ids of the vertices of one type."""

    @property
    @abstractmethod
    def count(self) -> int:
        """V."""

    @abstractmethod
    def numbers(self, batch: Batch) -> np.ndarray:
        """`[n]` number of the vertex that each integer or text names, -1 for unknown ones."""

    @abstractmethod
    def table(self, engine: Engine) -> str:
        """A table of the engine with each `id` and its `number`: its name in SQL."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write a Parquet file with the columns `id` and, in ascending order, `vertex`."""

    def finder(self) -> Callable[[np.ndarray], np.ndarray]:
        """As `numbers`, for many batches of integers."""
        return self.numbers

    def finder_in(self, texts: Dictionary) -> Callable[[np.ndarray], np.ndarray]:
        """What finds the numbers of many places in `texts`."""
        numbers = self.numbers_of(texts).astype(np.int32 if self.count < 2**31 else np.int64, copy=False)
        return partial(_in_table, 0, numbers)

    def numbers_of(self, texts: Dictionary) -> np.ndarray:
        """The numbers of all texts, -1 for unknown ones."""
        return self.numbers(texts_of(texts))

    def are_numbers(self, low: int, high: int) -> bool:
        """Whether all ids from `low` to `high` are the numbers of their vertices."""
        return False


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

    def numbers(self, batch: Batch) -> np.ndarray:
        """See `Ids.numbers`."""
        if isinstance(batch, np.ndarray):
            return self.finder()(batch)
        integers = [_integer(str(one)) for one in batch]
        known = np.array([one is not None for one in integers], np.bool_)
        return np.where(known, self.finder()(np.array([one or 0 for one in integers], np.int64)), -1)

    def table(self, engine: Engine) -> str:
        """See `Ids.table`."""
        return engine.texts(self.values)

    def finder(self) -> Callable[[np.ndarray], np.ndarray]:
        """See `Ids.finder`: an array from the smallest id to the largest, or bisection."""
        values = self.values
        low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
        dtype = np.int32 if values.size < 2**31 else np.int64
        if high - low + 1 <= MOST_GAPS * values.size + _ALWAYS:
            table = np.full(high - low + 1, -1, dtype)
            table[values - low] = np.arange(values.size, dtype=dtype)
            return partial(_in_table, low, table)
        order = np.argsort(values, kind="stable")
        return partial(_by_bisection, values[order], order.astype(dtype))

    def are_numbers(self, low: int, high: int) -> bool:
        """See `Ids.are_numbers`."""
        return low >= 0 and high < self.count and bool((self.values == np.arange(self.count)).all())

    def save(self, path: Path) -> None:
        """Write `id` int64 and `vertex` int64."""
        import pyarrow as pa
        from pyarrow import parquet

        table = pa.table({"id": self.values, "vertex": np.arange(self.count)})
        parquet.write_table(table, path, use_dictionary=False)  # all values are different


def _in_table(low: int, table: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """`[n]` numbers of `ids` `[n]` int32 or int64 in `table`, which begins with the number of the id `low`."""
    numbers = np.empty(ids.size, table.dtype)
    look_up(ids, low, table, numbers)
    return numbers


def _by_bisection(ordered: np.ndarray, order: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """`[n]` numbers of `ids`; `ordered`, `order`: `[V]` ids in ascending order, and their numbers."""
    places = np.searchsorted(ordered, ids)
    places[places == ordered.size] = 0
    return np.where(ordered[places] == ids, order[places], order.dtype.type(-1))


@dataclass(frozen=True, eq=False)
class TextIds(Ids):
    """Ids that are texts, in a table of DuckDB.

    Attributes:
        engine: what holds the table.
        name: name of the table in SQL, with the columns `id` and `number`.
        size: V.
    """

    engine: Engine
    name: str
    size: int

    @property
    def count(self) -> int:
        """V."""
        return self.size

    def numbers(self, batch: Batch) -> np.ndarray:
        """See `Ids.numbers`."""
        return self.engine.positions(batch, self.name)

    def table(self, engine: Engine) -> str:
        """See `Ids.table`."""
        return self.name

    def save(self, path: Path) -> None:
        """Write `id` text and `vertex` int64."""
        self.engine.copy(f"SELECT id, number AS vertex FROM {self.name} ORDER BY number", path)


@dataclass(frozen=True, eq=False)
class HeldTexts(Ids):
    """Ids that are texts, in memory.

    Attributes:
        known: the different texts.
        places: `[V]` int32 place of the text of each vertex in `known`.
        vertices: `[V]` int32 number of the vertex of each text in `known`.
    """

    known: Dictionary
    places: np.ndarray
    vertices: np.ndarray

    @staticmethod
    def of(dictionaries: Sequence[Dictionary]) -> HeldTexts:
        """The ids that edges name, ascending; `dictionaries`: different texts of edges, all of which are in memory."""
        known = dictionaries[0]
        if len(dictionaries) > 1:
            known = Dictionary()
            for dictionary in dictionaries:
                known.numbers(*dictionary.texts())
        places = ascending(*known.texts()).astype(np.int32)
        vertices = np.empty(places.size, np.int32)
        vertices[places] = np.arange(places.size, dtype=np.int32)
        return HeldTexts(known, places, vertices)

    @property
    def count(self) -> int:
        """V."""
        return int(self.places.size)

    def numbers(self, batch: Batch) -> np.ndarray:
        """See `Ids.numbers`."""
        import pyarrow as pa

        places = self.known.known(*bytes_of(pa.array(batch, pa.large_string())))
        numbers: np.ndarray = np.append(self.vertices, np.int32(-1))[places]  # place -1 is the last one
        return numbers

    def numbers_of(self, texts: Dictionary) -> np.ndarray:
        """See `Ids.numbers_of`. Texts of the only dictionary are not looked up again."""
        return self.vertices if texts is self.known else super().numbers_of(texts)

    def table(self, engine: Engine) -> str:
        """See `Ids.table`."""
        import pyarrow as pa

        return engine.texts(texts_of(self.known).take(pa.array(self.places)))

    def save(self, path: Path) -> None:
        """Write `id` text and `vertex` int64."""
        import pyarrow as pa
        from pyarrow import parquet

        texts, schema = texts_of(self.known), pa.schema([("id", pa.string()), ("vertex", pa.int64())])
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


def texts_of(known: Dictionary) -> pa.Array:
    """The different texts, in the order of their numbers."""
    import pyarrow as pa

    data, offsets = known.texts()
    return pa.LargeStringArray.from_buffers(offsets.size - 1, pa.py_buffer(offsets), pa.py_buffer(data))


def ids_of_rows(engine: Engine, table: SqlTable, column: str, kind: str, *, text: bool) -> Ids:
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
    identity = integer_sql(text_sql(table, column)) if written else id_of(table, column, text=text)
    lost = f"{quoted(column)} IS NULL" if written else "false"
    kept = engine.keep(
        f"SELECT {identity} AS id, row_number() OVER () - 1 AS number, {lost} AS missing FROM {table.name}", table
    )
    if written and engine.count(kept, "id IS NULL AND NOT missing"):
        raise NoIntegersError(kind, str(first_other(engine, table, column)))
    fix = "give each vertex one row with an id of its own"
    refuse_where(engine, table, column, kept, "id IS NULL", "is missing", fix, value="id")
    # A window over all ids would have to be in memory.
    several = engine.keep(f"SELECT id, min(number) AS first FROM {kept} GROUP BY id HAVING count(*) > 1", table)
    again = engine.keep(
        f"SELECT k.number, id FROM {kept} k JOIN {several} s USING (id) WHERE k.number > s.first", table
    )
    refuse_where(engine, table, column, again, "true", "is the id of an earlier row", fix, value="id")
    if text:
        return TextIds(engine, kept, engine.count(kept))
    return IntegerIds(engine.array(f"SELECT id FROM {kept} ORDER BY number", table))
