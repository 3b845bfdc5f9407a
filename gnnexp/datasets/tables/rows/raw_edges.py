"""Edges of a table as it has them: one pass reads the ids of both ends, and what edges have besides."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gnnexp.datasets.tables.edges import ENDS, EdgeColumns
from gnnexp.datasets.tables.engine import MOST_SHOWN, Engine
from gnnexp.datasets.tables.ids import bytes_of, has_points, id_of, parsed
from gnnexp.datasets.tables.rows.places import WrongRow, refuse_rows
from gnnexp.datasets.tables.spool import Spool
from gnnexp.errors import Findings
from gnnexp.kernels.tables.texts import Dictionary

if TYPE_CHECKING:
    import pyarrow as pa

_NO_SPAN = ((0, -1), (0, -1))
_SMALL = np.dtype(np.int32)  # of ids, until one does not fit
_TWO_ENDS = "give each edge two ends"


@dataclass(frozen=True, eq=False)
class RawEdges:
    """Edges as the table has them, read once.

    Attributes:
        columns: the table.
        spool: columns `source` and `destination`: ids (int32 if all of them fit, else int64), or places of ids in
            `texts`; and what edges have besides. Or None.
        rows: name in SQL of the rows, if there is no spool.
        span: smallest and largest id of each end, if ids are integers.
        texts: the different texts of each end, if they fit in memory; or None.
    """

    columns: EdgeColumns
    spool: Spool | None
    rows: str
    span: tuple[tuple[int, int], tuple[int, int]]
    texts: tuple[Dictionary, Dictionary] | None = None


def read_integers(engine: Engine, columns: EdgeColumns, folder: Path, held_bytes: int) -> RawEdges:
    """Edges whose ids are integers, in one pass over the table.

    Args:
        engine: what reads the table.
        columns: the table.
        folder: folder of the spool.
        held_bytes: most bytes of edges in memory.

    Raises:
        DataError: the table is damaged, or a value is missing or not finite. Names rows.
        NoIntegersError: an id is none.
    """
    names = columns.source, columns.destination
    asked = [id_of(columns.table, name, text=False) for name in names]
    points = [has_points(engine, columns.table, name) for name in names]
    wrong, spans = _Wrong(engine, columns), list[list[tuple[int, int]]]()
    with Spool(folder, columns.name, columns.dtypes(_SMALL), held_bytes) as spool, \
            closing(_batches(engine, columns, asked)) as batches:
        for batch in filter(len, batches):
            wrong.look(batch, spool.num_rows)
            ends = [parsed(values, points=one) if name in columns.table.looks else _numbers(values)
                    for name, one, values in zip(names, points, batch.columns, strict=False)]
            arrays = [*ends, *map(_numbers, batch.columns[2:])]
            spans.append([(int(ids.min()), int(ids.max())) for ids in arrays[:2]])
            if spool.dtypes["source"] == _SMALL and not all(_fits(span) for span in spans[-1]):
                spool.widen(ENDS, np.dtype(np.int64))
            spool.append(*arrays)
    wrong.refuse()
    lows, highs = (np.array(spans, np.int64).reshape(-1, 2, 2)[:, :, side] for side in (0, 1))
    span = tuple((int(lows[:, end].min()), int(highs[:, end].max())) if spans else (0, -1) for end in (0, 1))
    return RawEdges(columns, spool, "", (span[0], span[1]))


def _numbers(values: pa.Array) -> np.ndarray:
    """The numbers of a column, 0 for a missing one."""
    found: np.ndarray = values.fill_null(0).to_numpy(zero_copy_only=False)
    return found


def _fits(span: tuple[int, int]) -> bool:
    return np.iinfo(_SMALL).min <= span[0] and span[1] <= np.iinfo(_SMALL).max


def _batches(engine: Engine, columns: EdgeColumns, ends: Sequence[str]
             ) -> Generator[pa.RecordBatch, None, None]:
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
        for one, values in zip(columns.data.values(), batch.columns[2:], strict=True):
            wrong = values.is_null() if values.null_count else None
            if one.dtype.kind == "f":
                import pyarrow.compute as pc

                wrong = pc.invert(pc.is_finite(values).fill_null(False))
            self._add(values, wrong, row, one.column, one.wrong, one.fix)

    def _add(self, values: pa.Array, wrong: pa.Array | None, row: int, column: str, said: str, fix: str) -> None:
        if wrong is None or not wrong.true_count:
            return
        places = np.flatnonzero(wrong.to_numpy(zero_copy_only=False))
        self._counts[fix] = self._counts.get(fix, 0) + places.size
        self._first.setdefault(fix, []).extend(WrongRow(row + int(place), column, values[int(place)].as_py(), said)
                                               for place in places[:MOST_SHOWN])

    def refuse(self) -> None:
        """Raise DataError if there are such rows."""
        findings = Findings()
        for fix, first in self._first.items():
            shown = sorted(first, key=itemgetter(0))[:MOST_SHOWN]
            findings.attempt(refuse_rows, self._engine, self._columns.table, shown, self._counts[fix], fix)
        findings.raise_all()


def read_texts(engine: Engine, columns: EdgeColumns, folder: Path, most_bytes: int, held_bytes: int) -> RawEdges:
    """Edges of which an end has texts as ids: the different texts are in memory, or the engine keeps the columns.

    Args:
        engine: what reads the table.
        columns: the table.
        folder: folder of the spool.
        most_bytes: most bytes of different texts in memory.
        held_bytes: most bytes of edges in memory.

    Raises:
        DataError: as `read_integers`.
    """
    return _in_memory(engine, columns, folder, most_bytes, held_bytes) or _kept(engine, columns)


def _in_memory(engine: Engine, columns: EdgeColumns, folder: Path, most_bytes: int, held_bytes: int
               ) -> RawEdges | None:
    """The edges in one pass over the table; None if the different texts are too many."""
    first = Dictionary()
    ends = first, first if columns.types[0] == columns.types[1] else Dictionary()
    asked = [id_of(columns.table, name, text=True) for name in (columns.source, columns.destination)]
    wrong = _Wrong(engine, columns)
    with Spool(folder, f"texts_{columns.name}", columns.dtypes(np.dtype(np.int32)), held_bytes) as spool, \
            closing(_batches(engine, columns, asked)) as batches:
        for batch in filter(len, batches):
            wrong.look(batch, spool.num_rows)
            codes = [one.numbers(*bytes_of(values)) for one, values in zip(ends, batch.columns, strict=False)]
            spool.append(*codes, *(values.fill_null(0).to_numpy(zero_copy_only=False) for values in batch.columns[2:]))
            if sum(one.num_bytes for one in {*ends}) > most_bytes:
                break
        else:
            wrong.refuse()
            return RawEdges(columns, spool, "", _NO_SPAN, ends)
    spool.remove()
    return None


def _kept(engine: Engine, columns: EdgeColumns) -> RawEdges:
    """The edges in a table of the engine, which may use the disk."""
    table = columns.table
    _refuse_data(engine, columns)
    asked = [f"{id_of(table, name, text=True)} AS {end}"
             for end, name in zip(ENDS, (columns.source, columns.destination), strict=True)]
    asked += [f"{one.value} AS {name}" for name, one in columns.data.items()]
    rows = engine.keep(f"SELECT {', '.join(asked)}, row_number() OVER () - 1 AS number FROM {table.name}", table)
    missing = "source IS NULL OR destination IS NULL"
    wrong = engine.rows(f"SELECT number, source IS NULL FROM {rows} WHERE {missing} ORDER BY number LIMIT {MOST_SHOWN}",
                        table)
    refuse_rows(engine, table, [WrongRow(row, columns.source if first else columns.destination, None, "is missing")
                                for row, first in wrong], engine.count(rows, missing), _TWO_ENDS)
    return RawEdges(columns, None, rows, _NO_SPAN)


def _refuse_data(engine: Engine, columns: EdgeColumns) -> None:
    """Refuse values that are missing or not finite.

    Raises:
        DataError: there are some. Names rows.
    """
    findings = Findings()
    for one in columns.data.values():
        finite = "" if one.dtype.kind == "i" else " OR NOT isfinite(value)"
        values = (f"(SELECT {one.value} AS value, row_number() OVER () - 1 AS number FROM {columns.table.name}) "
                  f"WHERE value IS NULL{finite}")
        count = engine.rows(f"SELECT count(*) FROM {values}", columns.table)[0][0]
        found = engine.rows(f"SELECT number, value FROM {values} ORDER BY number LIMIT {MOST_SHOWN}", columns.table)
        findings.attempt(refuse_rows, engine, columns.table,
                         [WrongRow(row, one.column, value, one.wrong) for row, value in found], count, one.fix)
    findings.raise_all()
