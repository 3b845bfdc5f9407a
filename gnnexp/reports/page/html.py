"""A report as one self-contained HTML file: it needs no network, no server and no other file."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from gnnexp.record.records import write_text
from gnnexp.reports.page.inline_svg import inline_svg
from gnnexp.reports.page.page import Page
from gnnexp.reports.tables.cells import cell_text
from gnnexp.reports.tables.table import ReportTable

_ASSETS = Path(__file__).parent / "assets"
# A number with an optional unit or interval, in the way that page.js sorts it: `1,024`, `95.28 ± 0.44`, `2x`, `12 %`.
_NUMBER = re.compile(r"[-+−]?(\d[\d,]*\.?\d*|\.\d+)(e[-+]?\d+)?(?=$|[\s%x×])", re.IGNORECASE)
# A cell with at most this many characters needs no line break.
_SHORT = 24
# A table with more columns than this is set closely.
_DENSE_FROM = 9
# The data of a figure with more rows than this is only in its CSV file.
_MOST_ROWS = 2000


def write_html(page: Page, file: Path) -> None:
    """Write `page` to `file`, atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, render(page))


def render(page: Page) -> str:
    """The whole document. The template escapes all texts of `page`, and a policy in the head forbids every request."""
    environment = Environment(
        loader=FileSystemLoader(_ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    style, script = (Markup((_ASSETS / name).read_text(encoding="utf-8")) for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("page.html").render(
        page=page,
        style=style,
        script=script,
        digest=digest,
        statuses=Counter(line.status for line in page.runs),
        numeric_columns=_numeric_columns,
        short=_SHORT,
        dense_from=_DENSE_FROM,
        most_rows=_MOST_ROWS,
        svg=lambda *figure: Markup(inline_svg(*figure)),
    )


def _numeric_columns(table: ReportTable) -> list[bool]:
    return [is_numeric(map(cell_text, column)) for column in table.columns]


def is_numeric(cells: Iterable[str]) -> bool:
    """Whether a column holds numbers (and words for missing ones, such as `–` or `OOM`)."""
    found = [bool(_NUMBER.match(cell)) for cell in cells if cell[:1].isdigit() or _NUMBER.match(cell)]
    return bool(found) and all(found)
