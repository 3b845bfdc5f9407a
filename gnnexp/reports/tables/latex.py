r"""A table for a paper in LaTeX (booktabs, siunitx), and a macro for each of its cells.

`\input{table.tex}` in the preamble defines them all. `\quickstartTable` is then the tabular, and `\quickstartCaption`
its caption. `\quickstartDglCoraEpochS` is one mean for the text of the paper. With `HalfWidth`, `Min`, `Max` or `N`
behind it, it is another number of that cell. A name is made of the report's name, the row's labels and the column's
header. Digits are spelled out, since names of commands have letters only. `\newcommand` stops if a paper has such a
name already.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from gnnexp.reports.tables.cells import CountCell, NumberCell, StatisticsCell, TableCell, cell_text, fields_of
from gnnexp.reports.tables.table import ReportTable

_HEAD = r"""% Made by gnnexp. Preamble: \usepackage{booktabs,siunitx} and \input of this file.
% \%sTable is the table, \%sCaption its caption; the numbers of its cells are the commands below.
"""
_DIGITS = ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")
_WORDS = {"%": " percent ", "±": " plus minus ", "+": " plus ", **{str(n): f" {d} " for n, d in enumerate(_DIGITS)}}
_SPECIAL = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "{}$&#_%"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": "--",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": "$-$",
    "µ": r"$\mu$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "\n": "; ",
}
_EXPONENT = re.compile(r"-?\d+(?:\.\d+)?e[-+]?\d+")
_PLAIN = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:e([-+]?\d+))?")


def latex_of(table: ReportTable, name: str) -> str:
    """The macros of all cells, of the caption and of the tabular. `name` is the beginning of their names."""
    prefix = command_name(name)
    prefix = prefix[:1].lower() + prefix[1:]
    macros = [f"\\newcommand{{\\{command}}}{{{value}}}" for command, value in _macros(table, prefix)]
    caption = f"\\newcommand{{\\{prefix}Caption}}{{{escaped(' '.join(filter(None, (table.heading, table.caption))))}}}"
    tabular = "\n".join([f"\\newcommand{{\\{prefix}Table}}{{%", *_tabular(table), "}"])
    return "\n".join([_HEAD.replace("%s", prefix).rstrip(), *macros, caption, tabular, ""])


def command_name(text: str) -> str:
    """Letters for the name of a command: `acc/test 2 %` is `AccTestTwoPercent`."""
    for sign, word in _WORDS.items():
        text = text.replace(sign, word)
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"[^A-Za-z]+", plain))


def escaped(text: str) -> str:
    """`text` as LaTeX prints it; no character of it is a command."""
    return "".join(_SPECIAL.get(sign, sign) for sign in text)


def _macros(table: ReportTable, prefix: str) -> Iterator[tuple[str, str]]:
    """Name and value of each cell's commands."""
    labels = _label_places(table)
    used = {f"{prefix}Caption", f"{prefix}Table"}
    for row in table.rows:
        own = prefix + "".join(command_name(cell_text(row[place])) for place in labels)
        for place, (header, cell) in enumerate(zip(table.header, row, strict=True)):
            if place not in labels:
                command = _unused(own + command_name(header), used)
                yield from ((f"{command}{ending}", value) for ending, value in _values(cell))


def _values(cell: TableCell) -> list[tuple[str, str]]:
    """The ending of the name and the text of each number of a cell."""
    if not isinstance(cell, StatisticsCell):
        return [("", _printed(cell_text(cell)) if isinstance(cell, NumberCell) else escaped(cell_text(cell)))]
    texts = {
        "": cell.head,
        "HalfWidth": cell.half,
        "Min": cell.least,
        "Max": cell.greatest,
        "N": str(len(cell.values)),
    }
    return [(ending, _printed(text)) for ending, text in texts.items()]


def _printed(text: str) -> str:
    """`text` as LaTeX prints it, with powers of ten in place of exponents."""
    return _EXPONENT.sub(r"\\num{\g<0>}", escaped(text))


def _label_places(table: ReportTable) -> list[int]:
    """The columns that name the rows: the texts before the first numbers, or the first column."""
    texts = [place for place, column in enumerate(table.columns) if fields_of(column) == {"": str}]
    leading = [place for place in texts if texts[: place + 1] == list(range(place + 1))]
    return leading if 0 < len(leading) < len(table.header) else [0]


def _unused(name: str, used: set[str]) -> str:
    """`name`, with letters behind it if another cell has this name."""
    while name in used:
        name += "X"
    used.add(name)
    return name


def _tabular(table: ReportTable) -> Iterator[str]:
    columns = [
        _LatexColumn(header, cells, [row for row, column in table.best if column == place])
        for place, (header, cells) in enumerate(zip(table.header, table.columns, strict=True))
    ]
    yield f"\\begin{{tabular}}{{{' '.join(column.form for column in columns)}}}"
    yield "\\toprule"
    yield _line(column.title for column in columns)
    yield "\\midrule"
    for place in range(len(table.rows)):
        yield _line(column.cell(place) for column in columns)
    yield "\\bottomrule"
    yield "\\end{tabular}"


def _line(cells: Iterable[str]) -> str:
    """A row. A first cell in brackets, or a star, would be an option of the line before it."""
    line = " & ".join(cells) + " \\\\"
    return f"{{}}{line}" if line.startswith(("[", "*")) else line


class _LatexColumn:
    """A column of the table: one of LaTeX's, or two if numbers have a spread behind them."""

    def __init__(self, header: str, cells: Sequence[TableCell], best: Sequence[int]) -> None:
        self._header, self._cells, self._best = header, cells, best
        self._numbers = any(isinstance(cell, NumberCell | StatisticsCell) for cell in cells)
        self._spread = any(isinstance(cell, StatisticsCell) and cell.spread for cell in cells)

    @property
    def form(self) -> str:
        """siunitx aligns numbers at the decimal marker."""
        if not self._numbers:
            return "r" if any(isinstance(cell, CountCell) for cell in self._cells) else "l"
        form = _table_format([_head(cell) for cell in self._cells])
        bold = ", detect-weight, mode=text" if self._best else ""
        return f"S[table-format={form}{bold}]" + (r"@{\,}l" if self._spread else "")

    @property
    def title(self) -> str:
        """The header over one column or two."""
        title = escaped(self._header)
        return f"\\multicolumn{{2}}{{c}}{{{title}}}" if self._spread else f"{{{title}}}" if self._numbers else title

    def cell(self, place: int) -> str:
        """The cell of a row; text among numbers is in braces, so that siunitx leaves it alone."""
        cell = self._cells[place]
        if not self._numbers:
            return escaped(cell_text(cell))
        head = _head(cell)
        number = head if _PLAIN.fullmatch(head) else f"{{{escaped(head)}}}"
        number = f"\\bfseries {number}" if place in self._best else number
        spread = _printed(cell.spread) if isinstance(cell, StatisticsCell) else ""
        return f"{number} & {spread}" if self._spread else number


def _head(cell: TableCell) -> str:
    return cell.head if isinstance(cell, StatisticsCell) else cell_text(cell)


def _table_format(texts: Sequence[str]) -> str:
    """The greatest number of digits before and after the marker, and of the exponent: `-3.2e2`."""
    found = [match.groups(default="") for text in texts if (match := _PLAIN.fullmatch(text))]
    sign = "-" if any(minus for minus, *_ in found) else ""
    digits = [[len(part[k].lstrip("+")) for part in found] for k in (1, 2, 3)]
    whole, decimals, exponent = max(digits[0], default=1), max(digits[1], default=0), max(digits[2], default=0)
    return f"{sign}{whole}.{decimals}" + (f"e{exponent}" if exponent else "")
