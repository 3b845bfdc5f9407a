"""Facts of a sample of tables: what the columns mean, and how many rows there are. Nothing that needs all edges."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gnnexp.datasets.looking.sample import Rows, Sample
from gnnexp.datasets.reading.npz import open_npy
from gnnexp.datasets.tables.dataset import Tables
from gnnexp.datasets.tables.engine import Engine, engine
from gnnexp.datasets.tables.features import width_of
from gnnexp.datasets.tables.scan import quoted
from gnnexp.datasets.tables.vertices import VertexColumns, read_labels

_MEMORY = 1 << 29
_ROWS = 10_000


@dataclass(frozen=True)
class SampledFacts:
    """Facts of a sample.

    Attributes:
        rows_read: rows of the sample.
        vertices: number of vertices; None if no table has them.
        edges: number of edges.
        exact: whether both are counted, and not estimated.
        types: vertices of each type; None for types without a table.
        relations: types of edges.
        features: D; None if a file has words of vertices.
        classes: names of the classes in the sample.
        counts: their numbers in the sample.
        real: whether labels are real numbers.
        spread: largest standard deviation of a column of numbers.
        notes: which column means what.
    """

    rows_read: int
    vertices: int | None
    edges: int
    exact: bool
    types: Mapping[str, int | None]
    relations: Sequence[str]
    features: int | None
    classes: Sequence[str]
    counts: Sequence[int]
    real: bool
    spread: float
    notes: Sequence[str]


def facts_of_sample(dataset: Tables, sample: Sample) -> SampledFacts:
    """The facts of a sample of the tables that `dataset` describes.

    Raises:
        DataError: the tables cannot be read so.
    """
    place = sample.place if sample.place.is_dir() else sample.place.parent
    here = replace(dataset, path=str(place))
    with tempfile.TemporaryDirectory() as scratch, engine(Path(scratch), _MEMORY, os.cpu_count() or 1) as reader:
        layout = here.layout(reader)
        tables = [*(part.table for part in layout.vertices.values()), *(part.table for part in layout.edges)]
        rows = {table.name: _rows_of(sample, place, table.files.paths) for table in tables}
        known = {
            kind: rows[layout.vertices[kind].table.name].total if kind in layout.vertices else None
            for kind in layout.types
        }
        counted = [part for part in known.values() if part is not None]
        labels = next(
            (
                read_labels(reader, part, here.label_kind, here.no_label)
                for part in layout.vertices.values()
                if part.label is not None
            ),
            None,
        )
        file = here.feature_file()
        size, spread = (0, 0.0) if file is None else _of_file(file)
        for part in layout.vertices.values() if file is None else ():
            more, widest = _of_columns(reader, part)
            size, spread = size + more, max(spread, widest)
        return SampledFacts(
            rows_read=sum(part.read for part in rows.values()),
            vertices=sum(counted) if len(counted) == len(known) else None,
            edges=sum(rows[part.table.name].total for part in layout.edges),
            exact=all(part.exact for part in rows.values()),
            types=known,
            relations=layout.relations,
            features=size,
            spread=spread,
            classes=[] if labels is None else labels.classes,
            counts=[]
            if labels is None
            else [int((labels.values == number).sum()) for number in range(len(labels.classes))],
            real=labels is not None and labels.values.dtype.kind == "f",
            notes=layout.described(),
        )


def _rows_of(sample: Sample, place: Path, paths: Sequence[Path]) -> Rows:
    """The rows of the table that has these files."""
    first = paths[0].relative_to(place)
    return next(rows for files, rows in sample.rows if first in files)


def _of_file(path: Path) -> tuple[int, float]:
    """Columns of a matrix, and its largest standard deviation in the first rows; 0 for another file."""
    if path.suffix != ".npy":
        return 0, 0.0
    rows = open_npy(path)
    start = rows[:_ROWS].reshape(min(_ROWS, rows.shape[0]), -1)
    return start.shape[1], float(start.std(0).max(initial=0.0))


def _of_columns(reader: Engine, columns: VertexColumns) -> tuple[int, float]:
    """Features of a table without its categories, and the largest standard deviation of a column of numbers."""
    table, spread = columns.table, 0.0
    single = [name for name in columns.features if not table.types[name].endswith("]")]
    if single:
        asked = ", ".join(
            f"stddev({quoted(name)}::DOUBLE) FILTER (isfinite({quoted(name)}::DOUBLE))" for name in single
        )
        spread = max(one or 0.0 for one in reader.rows(f"SELECT {asked} FROM {table.name}", table)[0])
    return sum(width_of(reader, table, name) for name in columns.features), spread
