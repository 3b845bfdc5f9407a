"""A table in GitHub's Markdown."""

from __future__ import annotations

from gnnexp.reports.tables.table import ReportTable


def markdown_of(table: ReportTable) -> str:
    """The table in GitHub's syntax. Texts of records (labels, reasons) are escaped and appear unchanged."""
    header = [_literal(cell) for cell in table.header]
    rows = [
        [f"**{_literal(cell)}**" if table.is_best(row, place) else _literal(cell) for place, cell in enumerate(cells)]
        for row, cells in enumerate(table.texts)
    ]
    lines = [header, ["---"] * len(header), *rows]
    above = f"{_literal(table.heading)}\n\n" if table.heading else ""
    drawn = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{above}{drawn}\n\n{_literal(table.caption)}\n"


def _literal(text: str) -> str:
    """`text` in Markdown, so that it contains no HTML tags, no links, and no end of a cell or line."""
    for special, written in (("<", "&lt;"), ("](", "]\\("), ("|", "\\|"), ("\n", "; ")):
        text = text.replace(special, written)
    return text
