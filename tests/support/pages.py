"""Pages full of what users may write, and a strict reader of HTML."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

from gnnexp.reports.figures.drawing import empty_figure
from gnnexp.reports.page.page import NamedTable, Page, PageFigure, RunLine
from gnnexp.reports.tables.table import ReportTable

NASTY = ('<script>alert("1")</script>', "a & b <i>", '"><img src=http://127.0.0.1:9/x>', "'quoted' </table>")
_VOID = {"meta", "input", "br", "link", "img"}


def draw(file: Path, label: str = "accuracy") -> Path:
    """A figure of matplotlib's with a clip path, glyphs and a black line."""
    figure = empty_figure(4, 3)
    axes = figure.add_subplot()
    axes.plot([1, 2, 3], [1, 4, 9], label=label, color="black")
    axes.set_title(label)
    figure.savefig(file)
    return file


def nasty_page(folder: Path) -> Page:
    """Every text of it would break a page that does not escape it."""
    numbers = [
        ("dgl", "95.28 ± 0.44", "1,024", "OOM"),
        (NASTY[1], "9.5", "512", "0.25"),
        ("p3", "–", "2", "12"),
        ("gsplit", "100.0", "33", "3"),
    ]
    data = ReportTable(("epoch", NASTY[0]), tuple((str(n), NASTY[2]) for n in range(3)), "")
    return Page(
        title=NASTY[0],
        description=NASTY[2],
        command=f"gnnexp sweep {NASTY[3]}",
        date="2026-01-02",
        version="0.1.0",
        provenance=[("machine", NASTY[1])],
        notes=[NASTY[0]],
        tables=[
            NamedTable(NASTY[1], ReportTable(("system", "acc/test %", "rows", NASTY[3]), tuple(numbers), NASTY[2]))
        ],
        figures=[
            PageFigure(draw(folder / "a.svg", "first & <second>"), NASTY[0], NASTY[2], data),
            PageFigure(draw(folder / "b.svg"), "b", "b"),
        ],
        runs=[
            RunLine(NASTY[0], "failed", NASTY[2], "no: " + NASTY[3], "runs/<a>", "gnnexp run " + NASTY[0]),
            RunLine("fine", "finished", run_dir="runs/b", exact="yes"),
        ],
    )


class Strict(HTMLParser):
    """Keeps what a page is made of, and says what is not closed in order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.problems: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[tuple[str, str]] = []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def within(self, *tags: str) -> list[str]:
        return [text for tag, text in self.texts if tag in tags]


def read_strictly(text: str) -> Strict:
    reader = Strict()
    reader.feed(text)
    reader.close()
    return reader
