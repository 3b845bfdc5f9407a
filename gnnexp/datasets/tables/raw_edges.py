"""Edges of a table as it has them: one pass reads the ids of both ends, and what edges have besides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gnnexp.datasets.tables.edges import ENDS, EdgeColumns
from gnnexp.datasets.tables.engine import MOST_SHOWN, Engine
from gnnexp.datasets.tables.ids import Ids, texts_of
from gnnexp.datasets.tables.places import WrongRow, refuse_rows, refuse_where
from gnnexp.datasets.tables.scan import SqlTable
from gnnexp.datasets.tables.spool import Spool
from gnnexp.datasets.tables.written import bytes_of, id_of, integer_of, parsed
from gnnexp.errors import Findings
from gnnexp.kernels.tables.texts import Dictionary

if TYPE_CHECKING:
    import pyarrow as pa

_NO_SPAN = (0, -1)
_SMALL = np.dtype(np.int32)  # of ids, until one does not fit
_TWO_ENDS = "give each edge two ends"


@dataclass(frozen=True, eq=False)
class RawEdges(ABC):
    """Edges as the table has them, read once.

    Attributes:
        columns: the table.
        span: smallest and largest id of each end, if its ids are integers.
        dictionaries: the different ids by type of vertices, where they are texts that fit in memory.
    """

    columns: EdgeColumns
    span: tuple[tuple[int, int], tuple[int, int]]
    dictionaries: Mapping[str, Dictionary]

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """Number of edges."""

    @abstractmethod
    def integers(self, end: int) -> Iterator[np.ndarray]:
        """Chunks of the ids of an end, if they are integers."""

    @abstractmethod
    def texts(self, engine: Engine, kind: str) -> str:
        """The ids of a type of vertices, if they are texts: a query in SQL with the column `id`."""

    @abstractmethod
    def numbers(self, ids: Mapping[str, Ids]) -> Iterator[list[np.ndarray]]:
        """Chunks: numbers of the vertices at both ends (-1 for unknown ids), and what edges have besides."""

    @abstractmethod
    def unknown(self, ids: Mapping[str, Ids]) -> list[tuple[int, int, object]]:
        """The first rows with an unknown id: row, end and id. A row may be there twice."""

    def numbered(self, ids: Mapping[str, Ids], width: np.dtype) -> Spool | None:
        """The spool of these edges, if it has numbers of vertices already."""
        return None

    @abstractmethod
    def remove(self) -> None:
        """Remove the files of these edges, which are no longer needed."""


@dataclass(frozen=True, eq=False)
class SpooledEdges(RawEdges):
    """Edges in a spool.

    Attributes:
        spool: columns `source` and `destination`: ids (int32 if all of them fit, else int64), or places of ids in the
            dictionary of their type; and what edges have besides.
    """

    spool: Spool

    @property
    def num_rows(self) -> int:
        """See `RawEdges.num_rows`."""
        return self.spool.num_rows

    def integers(self, end: int) -> Iterator[np.ndarray]:
        """See `RawEdges.integers`."""
        return (ids for (ids,) in self.spool.chunks((ENDS[end],)))

    def texts(self, engine: Engine, kind: str) -> str:
        """See `RawEdges.texts`."""
        return f"SELECT id FROM {engine.texts(texts_of(self.dictionaries[kind]))}"

    def numbers(self, ids: Mapping[str, Ids]) -> Iterator[list[np.ndarray]]:
        """See `RawEdges.numbers`."""
        finders = self._finders(ids)
        for chunk in self.spool.chunks():
            yield [*(find(values) for find, values in zip(finders, chunk, strict=False)), *chunk[2:]]

    def unknown(self, ids: Mapping[str, Ids]) -> list[tuple[int, int, object]]:
        """See `RawEdges.unknown`."""
        finders, row, unknown = self._finders(ids), 0, list[tuple[int, int, object]]()
        for chunk in self.spool.chunks(ENDS):
            for end, (find, values) in enumerate(zip(finders, chunk, strict=True)):
                places = np.flatnonzero(find(values) < 0)[:MOST_SHOWN]
                unknown += [(row + int(place), end, self._id(end, int(values[place]))) for place in places]
            row += chunk[0].size
            if len(unknown) >= MOST_SHOWN:
                break
        return unknown

    def numbered(self, ids: Mapping[str, Ids], width: np.dtype) -> Spool | None:
        """See `RawEdges.numbered`."""
        ends = zip(self.columns.types, self.span, strict=True)
        fits = self.spool.dtypes["source"] == width and all(ids[kind].are_numbers(*span) for kind, span in ends)
        return self.spool if fits else None

    def remove(self) -> None:
        """See `RawEdges.remove`."""
        self.spool.remove()

    def _finders(self, ids: Mapping[str, Ids]) -> list[Callable[[np.ndarray], np.ndarray]]:
        """For each end, what turns values of the spool into numbers of vertices, -1 for unknown ids."""
        finders = {
            kind: ids[kind].finder_in(self.dictionaries[kind]) if kind in self.dictionaries else ids[kind].finder()
            for kind in {*self.columns.types}
        }
        return [finders[kind] for kind in self.columns.types]

    def _id(self, end: int, value: int) -> object:
        """The id that a value of the spool stands for."""
        kind = self.columns.types[end]
        return texts_of(self.dictionaries[kind])[value].as_py() if kind in self.dictionaries else value


@dataclass(frozen=True, eq=False)
class KeptEdges(RawEdges):
    """Edges in a table of the engine, which may use the disk.

    Attributes:
        engine: the engine.
        rows: name in SQL of the table: `source`, `destination`, `number`, and what edges have besides.
    """

    engine: Engine
    rows: str

    @property
    def num_rows(self) -> int:
        """See `RawEdges.num_rows`."""
        return self.engine.count(self.rows)

    def integers(self, end: int) -> Iterator[np.ndarray]:
        """See `RawEdges.integers`."""
        batches = self.engine.batches(f"SELECT {ENDS[end]} FROM {self.rows}", self.columns.table)
        return (batch.column(0).to_numpy() for batch in batches)

    def texts(self, engine: Engine, kind: str) -> str:
        """See `RawEdges.texts`."""
        ends = [end for end, one in zip(ENDS, self.columns.types, strict=True) if one == kind]
        return " UNION ALL ".join(f"SELECT {end} AS id FROM {self.rows}" for end in ends)

    def numbers(self, ids: Mapping[str, Ids]) -> Iterator[list[np.ndarray]]:
        """See `RawEdges.numbers`."""
        # Without weights, the order of edges does not matter, and is not kept: a sort would take most of the time.
        data = "".join(f", e.{name}" for name in self.columns.data)
        order = "" if self.columns.weight is None else " ORDER BY e.number"
        joined = f"SELECT coalesce(a.number, -1), coalesce(b.number, -1){data} FROM {self._joined(ids)}{order}"
        for batch in self.engine.batches(joined, self.columns.table):
            yield [values.to_numpy(zero_copy_only=False) for values in batch.columns]

    def unknown(self, ids: Mapping[str, Ids]) -> list[tuple[int, int, object]]:
        """See `RawEdges.unknown`."""
        rows = self.engine.rows(
            "SELECT e.number, a.number IS NULL, e.source, b.number IS NULL, e.destination FROM "
            f"{self._joined(ids)} WHERE a.number IS NULL OR b.number IS NULL ORDER BY e.number LIMIT {MOST_SHOWN}",
            self.columns.table,
        )
        return [(row[0], end, row[2 + 2 * end]) for row in rows for end in (0, 1) if row[1 + 2 * end]]

    def _joined(self, ids: Mapping[str, Ids]) -> str:
        """The rows `e` with the numbers `a` of their sources and `b` of their destinations, in SQL."""
        source, destination = (ids[kind].table(self.engine) for kind in self.columns.types)
        sources = f"{self.rows} e LEFT JOIN {source} a ON e.source = a.id"
        return f"{sources} LEFT JOIN {destination} b ON e.destination = b.id"

    def remove(self) -> None:
        """See `RawEdges.remove`. The engine removes its tables when it is closed."""


@dataclass(frozen=True, eq=False)
class _End:
    """One end of all edges.

    Attributes:
        table: the table.
        column: its column of ids.
        kind: the type of its vertices.
        texts: the different texts, if ids are texts.
    """

    table: SqlTable
    column: str
    kind: str
    texts: Dictionary | None

    def numbers(self, values: pa.Array) -> np.ndarray:
        """The ids of a batch, or their places in `texts`.

        Raises:
            NoIntegersError: an id is no integer, and there are no `texts`.
        """
        if self.texts is not None:
            return self.texts.numbers(*bytes_of(values))
        if self.column in self.table.looks:
            return parsed(self.table, self.column, self.kind, values)
        return _numbers(values)

    def span(self, ids: np.ndarray) -> tuple[int, int]:
        """The smallest and the largest integer."""
        return (int(ids.min()), int(ids.max())) if self.texts is None else _NO_SPAN


def read_edges(
    engine: Engine, columns: EdgeColumns, texts: Collection[str], folder: Path, most_bytes: int, held_bytes: int
) -> RawEdges:
    """The edges of a table: in one pass, or kept by the engine if there are too many different texts.

    Args:
        engine: what reads the table.
        columns: the table.
        texts: types of vertices of which ids are texts; all others have integers.
        folder: folder of the spool.
        most_bytes: most bytes of different texts in memory.
        held_bytes: most bytes of edges in memory.

    Raises:
        DataError: the table is damaged, or a value is missing or not finite. Names rows.
        NoIntegersError: an id is no integer. Names its type.
    """
    return _in_memory(engine, columns, texts, folder, most_bytes, held_bytes) or _kept(engine, columns, texts)


def _in_memory(
    engine: Engine, columns: EdgeColumns, texts: Collection[str], folder: Path, most_bytes: int, held_bytes: int
) -> RawEdges | None:
    """The edges in one pass over the table; None if the different texts are too many."""
    known = {kind: Dictionary() for kind in columns.types if kind in texts}
    ends = [_End(columns.table, name, kind, known.get(kind)) for name, kind in columns.ends]
    asked = [id_of(columns.table, end.column, text=end.kind in texts) for end in ends]
    wrong, spans = _Wrong(engine, columns), [[_NO_SPAN], [_NO_SPAN]]
    with (
        Spool(folder, columns.name, columns.dtypes(_SMALL), held_bytes) as spool,
        closing(_batches(engine, columns, asked)) as batches,
    ):
        for batch in filter(len, batches):
            wrong.look(batch, spool.num_rows)
            arrays = [end.numbers(values) for end, values in zip(ends, batch.columns, strict=False)]
            for end, ids, spans_of_end in zip(ends, arrays, spans, strict=True):
                spans_of_end.append(end.span(ids))
            if spool.dtypes["source"] == _SMALL and not all(_fits(spans_of_end[-1]) for spans_of_end in spans):
                spool.widen(ENDS, np.dtype(np.int64))
            spool.append(*arrays, *map(_numbers, batch.columns[2:]))
            if sum(end.num_bytes for end in known.values()) > most_bytes:
                break
        else:
            wrong.refuse()
            return SpooledEdges(columns, (_whole(spans[0]), _whole(spans[1])), known, spool)
    spool.remove()
    return None


def _whole(spans: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The span of several ones; without ids `_NO_SPAN`."""
    found = [one for one in spans if one[0] <= one[1]]
    return (min(one[0] for one in found), max(one[1] for one in found)) if found else _NO_SPAN


def _numbers(values: pa.Array) -> np.ndarray:
    """The numbers of a column, 0 for a missing one."""
    found: np.ndarray = values.fill_null(0).to_numpy(zero_copy_only=False)
    return found


def _fits(span: tuple[int, int]) -> bool:
    return np.iinfo(_SMALL).min <= span[0] and span[1] <= np.iinfo(_SMALL).max


def _batches(engine: Engine, columns: EdgeColumns, ends: Sequence[str]) -> Generator[pa.RecordBatch, None, None]:
    """Both ends, and what edges have besides."""
    asked = [*ends, *(one.value for one in columns.data.values())]
    return engine.batches(f"SELECT {', '.join(asked)} FROM {columns.table.name}", columns.table)


class _Wrong:
    """Collects rows without an id, or with a value that is missing or not finite."""

    def __init__(self, engine: Engine, columns: EdgeColumns) -> None:
        self._engine, self._columns = engine, columns
        self._first: dict[str, list[WrongRow]] = {}
        self._counts: dict[str, int] = {}

    def look(self, batch: pa.RecordBatch, row: int) -> None:
        """Look at a batch whose first row is `row`."""
        columns = self._columns
        for name, values in zip((columns.source, columns.destination), batch.columns, strict=False):
            self._add(values, values.is_null() if values.null_count else None, row, name, "is missing", _TWO_ENDS)
        for data, values in zip(columns.data.values(), batch.columns[2:], strict=True):
            wrong = values.is_null() if values.null_count else None
            if data.dtype.kind == "f":
                import pyarrow.compute as pc

                wrong = pc.invert(pc.is_finite(values).fill_null(False))
            self._add(values, wrong, row, data.column, data.wrong, data.fix)

    def _add(self, values: pa.Array, wrong: pa.Array | None, row: int, column: str, said: str, fix: str) -> None:
        if wrong is None or not wrong.true_count:
            return
        places = np.flatnonzero(wrong.to_numpy(zero_copy_only=False))
        self._counts[fix] = self._counts.get(fix, 0) + places.size
        self._first.setdefault(fix, []).extend(
            WrongRow(row + int(place), column, values[int(place)].as_py(), said) for place in places[:MOST_SHOWN]
        )

    def refuse(self) -> None:
        """Raise DataError if there are such rows."""
        findings = Findings()
        for fix, first in self._first.items():
            shown = sorted(first, key=itemgetter(0))[:MOST_SHOWN]
            findings.attempt(refuse_rows, self._engine, self._columns.table, shown, self._counts[fix], fix)
        findings.raise_all()


def _kept(engine: Engine, columns: EdgeColumns, texts: Collection[str]) -> RawEdges:
    """The edges in a table of the engine, which may use the disk."""
    table = columns.table
    _refuse_data(engine, columns)
    asked = [
        f"{id_of(table, name, text=True) if kind in texts else integer_of(engine, table, name, kind)} AS {end}"
        for end, name, kind in zip(ENDS, (columns.source, columns.destination), columns.types, strict=True)
    ]
    asked += [f"{data.value} AS {name}" for name, data in columns.data.items()]
    rows = engine.keep(f"SELECT {', '.join(asked)}, row_number() OVER () - 1 AS number FROM {table.name}", table)
    missing = "source IS NULL OR destination IS NULL"
    wrong = engine.rows(
        f"SELECT number, source IS NULL FROM {rows} WHERE {missing} ORDER BY number LIMIT {MOST_SHOWN}", table
    )
    refuse_rows(
        engine,
        table,
        [WrongRow(row, columns.source if first else columns.destination, None, "is missing") for row, first in wrong],
        engine.count(rows, missing),
        _TWO_ENDS,
    )
    spans = [
        _NO_SPAN
        if kind in texts
        else engine.rows(f"SELECT coalesce(min({end}), 0), coalesce(max({end}), -1) FROM {rows}", table)[0]
        for end, kind in zip(ENDS, columns.types, strict=True)
    ]
    return KeptEdges(columns, (spans[0], spans[1]), {}, engine, rows)


def _refuse_data(engine: Engine, columns: EdgeColumns) -> None:
    """Refuse values that are missing or not finite.

    Raises:
        DataError: there are some. Names rows.
    """
    findings = Findings()
    for data in columns.data.values():
        finite = "" if data.dtype.kind == "i" else " OR NOT isfinite(value)"
        values = f"(SELECT {data.value} AS value, row_number() OVER () - 1 AS number FROM {columns.table.name})"
        where = f"value IS NULL{finite}"
        findings.attempt(refuse_where, engine, columns.table, data.column, values, where, data.wrong, data.fix)
    findings.raise_all()
