"""Every sentence of SECURITY.md is held by tests that exist, or is advice that says what to do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest
from site_pages import ROOT

from benchmarks.english import sentences

TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
ADVICE = ("What you do", "Report a vulnerability")
# Words that advice begins with.
VERBS = {"Add", "Keep", "Name", "Open", "Read", "Run", "Start", "Use", "Write"}
NAMED = re.compile(r"`(tests/[\w/]+\.py)::([^`]+)`")
HEAD = ("| statement | held by |", "|---|---|")


@cache
def named_in(file: str) -> frozenset[str]:
    """Names of the tests that pytest would collect in a file."""
    if not (ROOT / file).is_file():
        return frozenset()
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    names = (node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    return frozenset(name for name in names if name.startswith("test"))


def problems(text: str) -> Iterator[str]:
    """What of a page is neither held by a test nor advice."""
    for section in re.split(r"^#+ ", text, flags=re.MULTILINE)[1:]:
        title, *lines = section.splitlines()
        for line in filter(None, lines):
            yield from advice(line) if title in ADVICE else statement(line)


def advice(line: str) -> Iterator[str]:
    """Problems of an entry of a list: each of its sentences begins with a verb."""
    said = sentences(line.removeprefix("- "))
    if not line.startswith("- ") or any(one.split()[0] not in VERBS for one in said):
        yield f"no advice: {line}"


def statement(line: str) -> Iterator[str]:
    """Problems of a row: one sentence, and tests; or the name of the rows below it."""
    if line in HEAD or re.fullmatch(r"\| \*\*[^*.]+\*\* \| \|", line):
        return
    cells = line.removeprefix("| ").removesuffix(" |").split(" | ")
    if not line.startswith("| ") or len(cells) != 2 or not cells[0].endswith(".") or len(sentences(cells[0])) != 1:
        yield f"not one sentence with its tests: {line}"
        return
    found = NAMED.findall(cells[1])
    if not found or NAMED.sub("", cells[1]).strip():
        yield f"no tests: {line}"
    yield from (f"{file} has no {name}" for file, name in found if name not in named_in(file))


def test_every_sentence_is_held_by_tests() -> None:
    assert list(problems(TEXT)) == []
    assert len(TEXT.splitlines()) > 120 and len(set(NAMED.findall(TEXT))) > 100, "it says something"


HELD = "`tests/docs/test_security.py::test_what_is_not_held_is_found`"


@pytest.mark.parametrize(
    "planted",
    [
        "gnnexp is safe.",
        "- gnnexp is safe.",
        "| gnnexp is safe. | |",
        "| gnnexp is safe. | `tests/no.py::test_it` |",
        "| gnnexp is safe. | `tests/docs/test_security.py::test_of_nothing` |",
        "| gnnexp is safe. | a test |",
        f"| gnnexp is safe. It reads nothing. | {HELD} |",
        f"| It is safe. gnnexp reads nothing. | {HELD} |",
        f"| gnnexp is safe | {HELD} |",
        f"| gnnexp is safe. | {HELD} and others |",
        "| **gnnexp is safe.** | |",
        f"gnnexp is safe. {HELD}",
    ],
)
def test_what_is_not_held_is_found(planted: str) -> None:
    place = "## What gnnexp does not do\n\n| statement | held by |\n|---|---|\n"
    assert place in TEXT
    assert len(list(problems(TEXT.replace(place, f"{place}{planted}\n")))) == 1


@pytest.mark.parametrize("planted", ["- gnnexp is safe.", "Read this.", "- Read this. It is safe.", "- You may read."])
def test_what_is_no_advice_is_found(planted: str) -> None:
    assert len(list(problems(TEXT.replace("## What you do\n", f"## What you do\n{planted}\n")))) == 1
