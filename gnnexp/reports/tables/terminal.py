"""A table in a terminal: as it is, transposed, or cut into several below each other, whatever its width can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gnnexp.reports.tables.table import ReportTable

if TYPE_CHECKING:
    from rich.console import Group as Stack
    from rich.table import Table as RichTable

# In a terminal of 200 characters, this many columns have 8 to 10 characters each; the comparison table has up to 17.
_MOST_COLUMNS = 18
# The least width of a text column in characters, and the characters around the text of any cell.
_LEAST_TEXT, _AROUND = 4, 3
# At most this many columns are repeated in each part of a table that is too wide.
_MOST_LABELS = 4


def terminal_table(table: ReportTable, width: int, title: str = "") -> RichTable | Stack:
    """A table for a terminal of `width` characters; transposed (a line per column) if that is easier to read.

    If it fits neither way, it is cut into tables one below the other.
    """
    upright = ReportTable(table.header, tuple(table.texts), table.caption, best=table.best)
    header, *rows = zip(upright.header, *table.texts, strict=True)
    best = frozenset((column - 1, row + 1) for row, column in table.best if column)
    turned = ReportTable(header, tuple(rows), table.caption, best=best)
    ways = [turned, upright] if len(table.header) > max(_MOST_COLUMNS, len(table.rows)) else [upright, turned]
    fitting = next((way for way in ways if _fits(way, width)), None)
    return _drawn(fitting, width, title) if fitting else _stacked(upright, width, title)


def _stacked(table: ReportTable, width: int, title: str) -> Stack:
    """Tables of some columns each. What is the same in all rows is said once, above.

    Each table begins with the first columns that together tell the rows apart.
    """
    from rich.console import Group as Stack
    from rich.text import Text

    columns, rows = _columns(table), table.texts
    same = [place for place, cells in enumerate(columns) if len(rows) > 1 and len(set(cells)) == 1]
    rest = [place for place in range(len(table.header)) if place not in same]
    labels = _label_places(rows, rest)
    needed = {place: max(map(len, (*table.header[place].split(), *columns[place], ""))) + _AROUND for place in rest}
    room = width - 1 - sum(min(needed[place], width // 2 // len(labels)) for place in labels)
    blocks: list[list[int]] = [[]]
    for place in (name for name in rest if name not in labels):
        if blocks[-1] and sum(needed[name] for name in (*blocks[-1], place)) > room:
            blocks.append([])
        blocks[-1].append(place)
    tables = [_drawn(table.of_columns((*labels, *block)), width, "") for block in blocks]
    shared = ", ".join(f"{table.header[place]} {columns[place][0]}" for place in same)
    lines = [title, f"in all rows: {shared}" if same else ""]
    return Stack(*(Text(line) for line in lines if line), *tables, Text(table.caption, "dim italic"))


def _label_places(rows: Sequence[Sequence[str]], places: Sequence[int]) -> list[int]:
    """The first columns that tell the rows apart, without those that add nothing. If they are too many: the first."""
    labels: list[int] = []
    apart = 1
    for place in places:
        now = len({tuple(row[p] for p in (*labels, place)) for row in rows})
        if now > apart:
            labels, apart = [*labels, place], now
        if apart == len(rows):
            break
    return labels if 0 < len(labels) <= _MOST_LABELS and apart == len(rows) else list(places[:1])


def _columns(table: ReportTable) -> list[tuple[str, ...]]:
    return list(zip(*table.texts, strict=True)) or [()] * len(table.header)


def _widths(table: ReportTable) -> list[int]:
    """Widths of columns: the longest cell if there are numbers, which must not be folded; 0 for text."""
    return [max(map(len, cells)) if any(cell[:1].isdigit() for cell in cells) else 0 for cells in _columns(table)]


def _fits(table: ReportTable, width: int) -> bool:
    """Whether all numbers fit in one line, next to text that is folded."""
    return sum(max(one, _LEAST_TEXT) + _AROUND for one in _widths(table)) < width


def _drawn(table: ReportTable, width: int, title: str) -> RichTable:
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(title=title or None, caption=table.caption, caption_justify="left", title_justify="left")
    fits = _fits(table, width)  # rich would cut off numbers that do not fit: then all cells are folded
    for name, least in zip(table.header, _widths(table), strict=True):
        drawn.add_column(
            name, justify="right" if least else "left", overflow="fold", min_width=least if fits and least else None
        )
    for row, cells in enumerate(table.texts):
        drawn.add_row(*(Text(cell, "bold" if table.is_best(row, place) else "") for place, cell in enumerate(cells)))
    return drawn


def terminal_cards(table: ReportTable, labels: int, title: str = "") -> Stack:
    """A block of lines for each row, with its first columns as the name; a cell's lines stand below each other."""
    from rich.console import Group as Stack
    from rich.padding import Padding
    from rich.table import Table as RichTable
    from rich.text import Text

    blocks: list[Text | Padding] = [Text(line, "bold") for line in (title, table.heading) if line]
    for cells in table.texts:
        name = ", ".join(f"{header} {cell}" for header, cell in zip(table.header[:labels], cells, strict=False))
        grid = RichTable.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for header, cell in zip(table.header[labels:], cells[labels:], strict=True):
            grid.add_row(header, cell)
        blocks += [Text(name), Padding(grid, (0, 0, 1, 2))]
    return Stack(*blocks, Text(table.caption, "dim italic"))
