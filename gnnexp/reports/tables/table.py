"""A report's table, before a format is chosen: the other modules of this folder write it in formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gnnexp.reports.tables.cells import ABSENT, TableCell, cell_text


@dataclass(frozen=True)
class ReportTable:
    """A table of a report.

    Attributes:
        header: names of the columns, with units.
        rows: the cells; each row has as many as `header`. A column has one kind of cells; a text in a column of numbers
            stands for a missing one.
        caption: what a reader must know to read the table.
        heading: a sentence above the table, or nothing.
        best: row and column of each cell that is the best of those it is compared with.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    caption: str
    heading: str = ""
    best: frozenset[tuple[int, int]] = frozenset()

    @property
    def columns(self) -> list[tuple[TableCell, ...]]:
        """The cells of each column."""
        return [tuple(row[place] for row in self.rows) for place in range(len(self.header))]

    @property
    def texts(self) -> list[tuple[str, ...]]:
        """The rows as people read them."""
        return [tuple(map(cell_text, row)) for row in self.rows]

    def first(self, columns: int) -> ReportTable:
        """The table with only its first `columns` columns, or all if it has fewer."""
        return self.of_columns(range(min(columns, len(self.header))), self.caption)

    def is_best(self, row: int, column: int) -> bool:
        """Whether a cell is marked."""
        return (row, column) in self.best

    def of_columns(self, places: Sequence[int], caption: str = "") -> ReportTable:
        """Some columns of the table."""
        return ReportTable(
            tuple(self.header[place] for place in places),
            tuple(tuple(row[place] for place in places) for row in self.rows),
            caption,
            best=frozenset((row, places.index(column)) for row, column in self.best if column in places),
        )


def stack(tables: Mapping[str, ReportTable], column: str) -> ReportTable:
    """Tables below each other, with a first column that names the table of each row; missing cells are "–".

    Args:
        tables: tables by their name in the first column.
        column: header of the first column.
    """
    header = tuple(dict.fromkeys(name for table in tables.values() for name in table.header))
    rows: list[tuple[TableCell, ...]] = []
    for name, table in tables.items():
        cells = [dict(zip(table.header, row, strict=True)) for row in table.rows]
        rows += [(name, *(row.get(title, ABSENT) for title in header)) for row in cells]
    caption = " ".join(dict.fromkeys(table.caption for table in tables.values()))
    heading = " ".join(f"{name}: {table.heading}" for name, table in tables.items() if table.heading)
    return ReportTable((column, *header), tuple(rows), caption, heading)
