"""Every relative link of the pages leads to a file, and every anchor to a heading of it, on GitHub and on the site."""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, normpath

import pytest
from generated import pages
from pymdownx.slugs import slugify
from site_pages import ROOT, SOURCES, site_text

LINK = re.compile(r"(?<!\\)\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")
SLUG = slugify(case="lower")


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL))


def anchors(text: str) -> set[str]:
    """As GitHub and the site make them: repeated headings get a number."""
    plain = re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)
    found = set(re.findall(r'<a id="([^"]+)"', plain))
    for heading in re.findall(r"^#+ +(.+?) *#*$", plain, flags=re.MULTILINE):
        found.add(SLUG(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", ""), "-"))
    return found


def problems(source: str, text: str, found: set[str] | None = None) -> list[str]:
    """Links of `text`, which stands in the file `source` of the repository, that lead nowhere."""
    wrong = []
    for link in LINK.findall(without_code(text)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = normpath(f"{dirname(source)}/{path}" if dirname(source) else path) if path else source
        made = pages().get(target.removeprefix("docs/")) if target.startswith("docs/") else None
        if made is None and not (ROOT / target).exists():
            wrong.append(f"{link}: no such file")
        elif anchor and anchor not in anchors(made or site_text(ROOT / target)):
            wrong.append(f"{link}: no such heading")
    return wrong


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_links_of_files_lead_somewhere(source: Path) -> None:
    assert problems(str(source), (ROOT / source).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", sorted(pages()))
def test_links_of_made_pages_lead_somewhere(page: str) -> None:
    assert problems(f"docs/{page}", pages()[page]) == []


def test_links_that_lead_nowhere_are_found() -> None:
    """The control."""
    text = (
        "# One\n[a](nowhere.md) [b](../README.md#ten-minutes) [c](../README.md#nothing) [d](#one) [e](#two) "
        "[f](reference/config/model.md#gat) `[g](x.md)` [h](reference/config/model.md#nothing)"
    )
    assert [wrong.split(":")[0] for wrong in problems("docs/index.md", text)] == [
        "nowhere.md",
        "../README.md#nothing",
        "#one",
        "#two",
        "reference/config/model.md#nothing",
    ]
