"""Tables in a terminal: numbers stand whole where there is room, and no character is lost where there is none."""

from __future__ import annotations

import io
import itertools
import re

import pytest
from rich.console import Console
from rich.table import Table

from gnnexp.reports.tables.cells import CountCell, NumberCell, StatisticsCell
from gnnexp.reports.tables.table import ReportTable
from gnnexp.reports.tables.terminal import terminal_table


def printed(table: ReportTable, width: int, title: str = "") -> list[str]:
    """What stands between the lines of a table of `width` characters."""
    console = Console(width=width, file=io.StringIO())
    console.print(terminal_table(table, width, title))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= width
    return [cell.strip() for line in text.splitlines() for cell in re.split("[│┃]", line)]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 180])
@pytest.mark.parametrize(("columns", "rows"), [(2, 1), (13, 1), (13, 2), (20, 3)])
def test_numbers_stand_whole_where_there_is_room_for_them(width: int, columns: int, rows: int) -> None:
    cells = [[f"{row}{column}.1234 ± 0.0{column}" for column in range(columns)] for row in range(rows)]
    table = ReportTable(
        ("a long name", *(f"bytes {column}" for column in range(columns))),
        tuple(("word " * 20, *row) for row in cells),
        "",
    )
    seen = printed(table, width)
    if width >= min(columns * 22, 12 + rows * 22):  # as columns, or as lines
        assert {cell for row in cells for cell in row} <= {*seen}
    else:  # folded: no character is lost
        assert sum(len(cell.replace(" ", "")) for row in cells for cell in row) <= sum(map(len, seen))


def test_a_table_that_is_too_wide_is_cut_into_tables_with_the_same_labels() -> None:
    """12 rows of 17 columns at width 80 were columns of three letters."""
    header = ("system", "model", "dataset", "workers", *(f"time of {place} s" for place in range(13)))
    kinds = itertools.product(("gsplit", "distdgl", "dgl"), ("digits", "cora"), ("1", "2"))
    rows = tuple(
        (system, "sage", *more, *(f"{number + place / 8:.4f}" for place in range(13)))
        for number, (system, *more) in enumerate(kinds)
    )
    seen = printed(ReportTable(header, rows, "what it means"), 80)
    assert {cell for row in rows for place, cell in enumerate(row) if place != 1} <= {*seen}, "no cell is folded"
    assert seen[0] == "in all rows: model sage"
    assert seen.count("workers") == seen.count("dataset") == seen.count("distdgl") // 4 > 1
    assert seen.count("what it means") == 1


@pytest.mark.parametrize("width", [40, 200])
def test_cells_are_texts_whichever_way_the_table_stands(width: int) -> None:
    cells = (StatisticsCell((1.0, 2.0), ".2f"), StatisticsCell(()), NumberCell(0.0), CountCell(2, 1, "OOM"))
    table = ReportTable(("system", "epoch s", "load s", "sent MB", "runs"), (("dgl", *cells),), "what it means")
    seen = printed(table, width, "a title")
    assert {"dgl", "1.50 (1.00 to 2.00)", "–", "0", "2 (+1 OOM)", "what it means"} <= {*seen}
    drawn = terminal_table(table, width)
    assert isinstance(drawn, Table) and drawn.row_count == (1 if width == 200 else 4), "narrow: a line per column"
