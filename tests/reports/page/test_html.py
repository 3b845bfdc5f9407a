"""The page: well-formed, every text escaped, nothing fetched from anywhere, figures that do not share ids."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest
from pages import NASTY, Strict, nasty_page, read_strictly

from gnnexp.reports.page import html
from gnnexp.reports.page.html import is_numeric, render, write_html
from gnnexp.reports.page.page import NamedTable, Page, PageFigure
from gnnexp.reports.tables.table import ReportTable


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return render(nasty_page(tmp_path_factory.mktemp("page")))


@pytest.fixture(scope="module")
def page(text: str) -> Strict:
    return read_strictly(text)


def test_it_is_well_formed(page: Strict) -> None:
    assert page.problems == [] and page.open == []
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids)), "ids of one figure are not those of another"


def test_every_text_is_escaped(page: Strict, text: str) -> None:
    assert [tag for tag, _ in page.texts if tag == "script"] == ["script"], "the page's own script is the only one"
    assert "<img" not in text and NASTY[0] not in text
    assert page.within("h1") == [NASTY[0]]
    shown = "\n".join(words for _, words in page.texts)
    for words in (*NASTY, "runs/<a>"):
        assert words in shown, words
    cells = page.within("td", "th", "span")
    assert {"95.28 ", "± 0.44", NASTY[1], NASTY[3], "OOM"} <= set(cells)


def test_nothing_is_fetched(page: Strict) -> None:
    references = [value for _, name, value in page.attributes if name in ("src", "href", "xlink:href", "action")]
    assert references and all(value.startswith("#") for value in references), "glyphs within the page only"
    assert not [value for _, name, value in page.attributes if "url(" in value and "url(#" not in value]
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    style, script = "".join(page.within("style")), "".join(page.within("script"))
    assert not re.search(r"@import|url\(|https?:", style)
    assert not re.search(r"fetch|XMLHttpRequest|WebSocket|import\(|https?:", script)


def test_ids_that_are_pointed_to_are_there(page: Strict) -> None:
    ids = {value for _, name, value in page.attributes if name == "id"}
    pointed = {value[1:] for _, name, value in page.attributes if name == "href"}
    pointed |= {found for _, _, value in page.attributes for found in re.findall(r"url\(#([^)]*)\)", value)}
    pointed |= {value for _, name, value in page.attributes if name == "aria-labelledby"}
    assert pointed and pointed <= ids


def test_the_policy_allows_this_script_and_no_request(page: Strict) -> None:
    (policy,) = [
        value
        for tag, name, value in page.attributes
        if tag == "meta" and name == "content" and value.startswith("default-src")
    ]
    (script,) = page.within("script")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none';") and f"script-src 'sha256-{digest}'" in policy
    assert "http" not in policy and "*" not in policy


def test_figures_follow_the_pages_colours_and_say_what_they_are(page: Strict, text: str) -> None:
    alts = [value for tag, name, value in page.attributes if tag == "svg" and name == "aria-label"]
    assert alts == [NASTY[2], "b"]
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) == 2
    for drawing in drawings:
        assert "currentColor" in drawing and "var(--paper)" in drawing
        assert not re.search(r"#000000|#ffffff|<style|<metadata|Matplotlib v", drawing)


@pytest.mark.parametrize(
    ("cells", "numeric"),
    [
        (["1.0", "–", "OOM"], True),
        (["95.28 ± 0.44"], True),
        (["1,024", "2 (+1 failed)"], True),
        (["2x", "12 %"], True),
        (["2026-01-02"], False),
        (["cora", "digits"], False),
        (["3 layers", "4"], True),
        (["8bit"], False),
        ([], False),
    ],
)
def test_columns_of_numbers(cells: list[str], numeric: bool) -> None:
    assert is_numeric(cells) is numeric


def test_long_data_of_a_figure_stay_in_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = nasty_page(tmp_path)
    monkeypatch.setattr(html, "_MOST_ROWS", 2)
    assert "Its numbers, 3 rows, are in a.csv." in "".join(word for _, word in read_strictly(render(page)).texts)


def test_a_page_of_tables_alone(tmp_path: Path) -> None:
    table = ReportTable(("system", "epoch s"), (("dgl", "0.1"),), "")
    file = tmp_path / "new" / "report.html"
    write_html(Page("small", tables=[NamedTable("Comparison", table)]), file)
    page = read_strictly(file.read_text(encoding="utf-8"))
    assert page.problems == [] and "svg" not in {tag for tag, _, _ in page.attributes}
    assert "Runs" not in page.within("h2")
    assert [path.name for path in file.parent.iterdir()] == ["report.html"], "written whole, nothing next to it"


def test_a_figure_that_cannot_be_read_leaves_the_old_page(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    write_html(Page("old"), file)
    before = file.read_bytes()
    with pytest.raises(FileNotFoundError):
        write_html(Page("new", figures=[PageFigure(tmp_path / "gone.svg", "", "")]), file)
    assert file.read_bytes() == before
