"""A report as one HTML file that needs nothing else: no network, no server, no other file."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from gnnexp.record.records import write_text
from gnnexp.reports.page.inline_svg import inline_svg
from gnnexp.reports.page.page import NamedTable, Page, PageFigure, RunLine
from gnnexp.reports.table import Table

_ASSETS = Path(__file__).parent / "assets"
# A number with a unit or an interval, as page.js sorts it: `1,024`, `95.28 ± 0.44`, `3 (+1 failed)`, `2x`, `12 %`.
_NUMBER = re.compile(r"[-+−]?(\d[\d,]*\.?\d*|\.\d+)(e[-+]?\d+)?(?=$|[\s%x×])", re.IGNORECASE)
# Characters of a cell that need no line break.
_SHORT = 24
# More rows of a figure's data than this stay in their CSV file alone.
_MOST_ROWS = 2000


def write_html(page: Page, file: Path) -> None:
    """Write `page` to `file`, atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, render(page))


def render(page: Page) -> str:
    """The whole document. Every text of `page` is escaped; a policy in its head forbids any request besides."""
    style, script = ((_ASSETS / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; "
              "form-action 'none'")
    return "\n".join([
        "<!DOCTYPE html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">', '<meta name="referrer" content="no-referrer">',
        f"<title>{escape(page.title)} – gnnexp report</title>", f"<style>\n{style}</style>", "</head>", "<body>",
        *_header(page), "<main>", *_body(page), "</main>",
        f"<script>{script}</script>", "</body>", "</html>", "",
    ])


def _header(page: Page) -> list[str]:
    lines = ["<header>", f"<h1>{escape(page.title)}</h1>"]
    if page.description:
        lines.append(f'<p class="description">{escape(page.description)}</p>')
    lines.append(f'<p class="chips">{_chips(page)}</p>')
    if page.command:
        lines += ['<p class="label">Made again by</p>',
                  f'<pre class="command"><code>{escape(page.command)}</code></pre>']
    return [*lines, "</header>"]


def _chips(page: Page) -> str:
    counts: dict[str, int] = {}
    for line in page.runs:
        counts[line.status] = counts.get(line.status, 0) + 1
    chips = [f'<span class="chip {_class_of(status)}">{count} {escape(status)}</span>'
             for status, count in counts.items()]
    made = " ".join(filter(None, ("page made", page.date, page.version and f"by gnnexp {page.version}")))
    return " ".join([*chips, f'<span class="made">{escape(made)}</span>'] if page.date else chips)


def _class_of(status: str) -> str:
    """How a status is coloured."""
    return {"finished": "good", "failed": "bad"}.get(status, "open")


def _body(page: Page) -> list[str]:
    lines: list[str] = []
    if page.notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in page.notes)
        lines.append(f'<section class="notes" aria-labelledby="notes"><h2 id="notes">To be read first</h2>'
                     f"<ul>{items}</ul></section>")
    for number, named in enumerate(page.tables, 1):
        lines += _table_section(named, f"table-{number}")
    if page.figures:
        figures = [_figure(figure, number) for number, figure in enumerate(page.figures, 1)]
        lines += [f'<section><h2 id="figures">Figures</h2><div class="figures">{"".join(figures)}</div></section>']
    if page.runs:
        lines += ['<section><h2 id="runs">Runs</h2>', _runs(page.runs), "</section>"]
    if page.provenance:
        pairs = "".join(f"<dt>{escape(what)}</dt><dd>{escape(value)}</dd>" for what, value in page.provenance)
        lines += [f'<section><h2 id="provenance">Provenance</h2><dl>{pairs}</dl></section>']
    return lines


def _table_section(named: NamedTable, name: str) -> list[str]:
    return [f'<section><h2 id="{name}-title">{escape(named.name)}</h2>', _table(named.table, name, f"{name}-title"),
            f'<p class="caption">{escape(named.table.caption)}</p>', "</section>"]


def _table(table: Table, name: str, title: str) -> str:
    """In a container that scrolls sideways, for the keyboard too; the first column names rows."""
    numeric = [is_numeric([row[column] for row in table.rows]) for column in range(len(table.header))]
    head = "".join(f'<th scope="col"{_numeric(flag)}>{escape(cell)}</th>'
                   for cell, flag in zip(table.header, numeric, strict=True))
    rows = "\n".join(f"<tr>{_cells(row, numeric)}</tr>" for row in table.rows)
    return _scrolling(name, title, head, rows)


def _scrolling(name: str, title: str, head: str, rows: str) -> str:
    return (f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{title}"><table id="{name}" class="data">'
            f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>")


def _cells(row: Sequence[str], numeric: Sequence[bool]) -> str:
    return "".join(f'<th scope="row"{_numeric(flag)}>{escape(cell)}</th>' if column == 0
                   else f"<td{_numeric(flag)}>{escape(cell)}</td>"
                   for column, (cell, flag) in enumerate(zip(row, numeric, strict=True)))


def _numeric(flag: bool) -> str:
    return ' class="n"' if flag else ""


def is_numeric(cells: Iterable[str]) -> bool:
    """Whether a column holds numbers (and words for missing ones, such as `–` or `OOM`)."""
    found = [bool(_NUMBER.match(cell)) for cell in cells if cell[:1].isdigit() or _NUMBER.match(cell)]
    return bool(found) and all(found)


def _figure(figure: PageFigure, number: int) -> str:
    drawing = inline_svg(figure.file, f"f{number}-", figure.alt)
    caption = f"<figcaption>{escape(figure.caption)}</figcaption>" if figure.caption else ""
    return f'<figure><div class="scroll">{drawing}</div>{caption}{_data(figure, number)}</figure>'


def _data(figure: PageFigure, number: int) -> str:
    if figure.data is None:
        return ""
    count = len(figure.data.rows)
    if count > _MOST_ROWS:
        return f'<p class="caption">Its numbers, {count} rows, are in {escape(figure.file.stem)}.csv.</p>'
    return (f'<details><summary id="figure-{number}-title">The numbers ({count} rows)</summary>'
            f'{_table(figure.data, f"figure-{number}", f"figure-{number}-title")}</details>')


def _runs(runs: Sequence[RunLine]) -> str:
    columns = [("run", True), ("status", True), ("exact", any(run.exact for run in runs)),
               ("reason", any(run.reason for run in runs)), ("directory", True), ("command", True)]
    shown = [name for name, wanted in columns if wanted]
    head = "".join(f'<th scope="col">{name}</th>' for name in shown)
    return _scrolling("run-list", "runs", head, "\n".join(_run(run, shown) for run in runs))


def _run(run: RunLine, shown: Sequence[str]) -> str:
    """A row; the command, long as it is, folded away."""
    command = ("<details><summary>show</summary>"
               f'<code class="command">{escape(run.command)}</code></details>') if run.command else "–"
    cells = {
        "run": f'<th scope="row">{escape(run.label)}</th>',
        "status": f'<td><span class="chip {_class_of(run.status)}">{escape(run.status)}</span></td>',
        "exact": _words(run.exact),
        "reason": _words(run.reason),
        "directory": f"<td><code>{escape(run.run_dir)}</code></td>" if run.run_dir else _words(""),
        "command": f"<td>{command}</td>",
    }
    return f"<tr>{''.join(cells[name] for name in shown)}</tr>"


def _words(text: str) -> str:
    """A cell that is wide where there is much to say."""
    wide = ' class="wide"' if len(text) > _SHORT else ""
    return f"<td{wide}>{escape(text) or '–'}</td>"
