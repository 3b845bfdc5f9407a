"""Tables in Markdown: a line per row, and no text of a record is markup."""

from __future__ import annotations

import re

from gnnexp.reports.tables.cells import CountCell, NumberCell, StatisticsCell
from gnnexp.reports.tables.markdown import markdown_of
from gnnexp.reports.tables.table import ReportTable


def test_texts_of_records_are_no_markup_in_markdown() -> None:
    evil = "<script>alert(1)</script> [x](javascript:alert(1)) a|b\nc"
    text = markdown_of(ReportTable((evil, "n"), ((evil, "1"),), f"caption {evil}", f"heading {evil}"))
    assert "<" not in text and "](" not in text
    heading, _, *table, _, caption = text.splitlines()
    assert heading.startswith("heading &lt;script>") and caption.startswith("caption &lt;script>")
    assert len(table) == 3 and all(re.sub(r"\\\|", "", line).count("|") == 3 for line in table)


def test_what_stands_in_place_of_numbers_is_no_markup_either() -> None:
    cells = (StatisticsCell((), absent="<b>a|b"), NumberCell(float("nan"), absent="<b>a|b"), CountCell(0, 1, "<b>a|b"))
    line = markdown_of(ReportTable(("x", "y", "z"), (cells,), "")).splitlines()[2]
    assert line == "| &lt;b>a\\|b | &lt;b>a\\|b | 0 (+1 &lt;b>a\\|b) |"


def test_the_lines_are_the_rows_as_people_read_them() -> None:
    cells = (StatisticsCell((1.0, 2.0), ".2f"), StatisticsCell(()), NumberCell(0.0), CountCell(2, 1, "OOM"))
    table = ReportTable(("system", "epoch s", "load s", "sent MB", "runs"), (("dgl", *cells),), "what it means")
    assert markdown_of(table).splitlines() == [
        "| system | epoch s | load s | sent MB | runs |",
        "| --- | --- | --- | --- | --- |",
        "| dgl | 1.50 (1.00 to 2.00) | – | 0 | 2 (+1 OOM) |",
        "",
        "what it means",
    ]
