"""The page of what users may rely on names all of it."""

from __future__ import annotations

import re

from site_pages import ROOT

import gnnexp
from gnnexp.experiment.kinds import KINDS

TEXT = (ROOT / "docs/reference/public.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (`.*?) \| (stable|experimental)\b.*?\| (.*) \|$", TEXT, re.MULTILINE)


def test_all_names_of_the_package_are_there_and_exist() -> None:
    named = {name for cell, *_ in ROWS for name in re.findall(r"`gnnexp\.(\w+)`", cell)}
    assert named - {"testing"} == {*gnnexp.__all__}


def test_all_groups_are_there_with_a_page() -> None:
    pages = {cell.strip("`"): re.findall(r"\((classes/\w+\.md)\)", link) for cell, _, link in ROWS}
    assert pages.keys() & KINDS.keys() == {*KINDS}
    for group, kind in KINDS.items():
        text = (ROOT / "docs/reference" / pages[group][0]).read_text(encoding="utf-8")
        assert f"::: {kind}" in text, (group, "its page has another class")
