"""The page in a browser: columns sort by a click, rows are filtered, and no request leaves it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser import needs_chromium, visit
from pages import NASTY, nasty_page

from gnnexp.reports.page.html import write_html

pytestmark = [needs_chromium, pytest.mark.timeout(300)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "report.html"
    write_html(nasty_page(tmp_path), file)
    return file


def column(dom: str, number: int, table: str = "table-1") -> list[str]:
    body = re.search(rf'id="{table}".*?<tbody>(.*?)</tbody>', dom, re.DOTALL)
    assert body is not None
    return [
        re.sub("<[^>]*>", "", re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)[number])
        for row in re.findall(r"<tr.*?</tr>", body[1], re.DOTALL)
    ]


def test_a_click_sorts_numbers_as_numbers_and_no_request_is_made(file: Path, tmp_path: Path) -> None:
    seen = visit(file, tmp_path, "#sort=table-1:2:ascending")
    assert column(seen.dom, 2) == ["2", "33", "512", "1,024"]
    head = re.search(r'id="table-1".*?</thead>', seen.dom, re.DOTALL)
    assert head is not None
    assert re.findall(r'aria-sort="(\w+)"', head[0]) == ["none", "none", "ascending", "none"]
    assert seen.requests == [] and seen.log == "", "no request, no error, nothing that its policy refused"


def test_a_second_click_turns_it_round_and_words_stay_last(file: Path, tmp_path: Path) -> None:
    seen = visit(file, tmp_path, "#sort=table-1:1:descending&filter=gsplit")
    assert column(seen.dom, 1) == ["100.0", "95.28 ± 0.44", "9.5", "–"]
    rows = re.findall(r"<tr[^>]*>(?=<th scope=\"row\")", seen.dom.partition('id="figures"')[0])
    assert ["hidden" in row for row in rows] == [False, True, True, True]
    assert "1 of 6 rows" in seen.dom, "of the table's four and of the two runs"


def test_what_slips_in_is_neither_run_nor_fetched(file: Path, tmp_path: Path) -> None:
    """The policy is a second wall: here text gets past the first, escaping; a page without a policy shows the probe."""
    text = file.read_text(encoding="utf-8")
    hostile = '<img src="http://127.0.0.1:9/probe"><script>document.body.dataset.ran = "yes"</script></main>'
    file.write_text(text.replace("</main>", hostile), encoding="utf-8")
    seen = visit(file, tmp_path)
    assert seen.requests == [] and "data-ran" not in seen.dom
    assert seen.log.count("Content Security Policy") >= 2
    open_page = tmp_path / "open.html"
    open_page.write_text(f"<html><body><main>{hostile}</body></html>")
    (tmp_path / "again").mkdir()
    seen = visit(open_page, tmp_path / "again")
    assert "http://127.0.0.1:9/probe" in seen.requests and "data-ran" in seen.dom


def test_nothing_that_users_wrote_becomes_an_element(file: Path, tmp_path: Path) -> None:
    dom = visit(file, tmp_path).dom
    assert "<img" not in dom and dom.count("<script") == 1
    assert NASTY[0].replace("<", "&lt;").replace(">", "&gt;") in dom
