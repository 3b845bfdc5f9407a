"""Every protection that SECURITY.md states is held by tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest
from site_pages import ROOT

TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
TABLE = TEXT[TEXT.index("| protection | held by |"):TEXT.index("## Run directories")]
ROWS = [cells for line in TABLE.splitlines()[2:] if (cells := line.strip("| ").split(" | ")) and len(cells) == 2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::([^`]+)`")


@cache
def named_in(file: str) -> frozenset[str]:
    """Names of the tests that pytest would collect in a file."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    names = (node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    return frozenset(name for name in names if name.startswith("test"))


def test_there_are_protections() -> None:
    assert len(ROWS) > 20 and len(set(NAMED.findall(TEXT))) > 25


@pytest.mark.parametrize(("protection", "held_by"), ROWS, ids=lambda cell: cell[:40])
def test_every_protection_is_held_by_tests(protection: str, held_by: str) -> None:
    found = NAMED.findall(held_by)
    assert found and NAMED.sub("", held_by).strip() == "", "nothing but names of tests"
    for file, name in found:
        assert name in named_in(file), f"{file} has no {name}"


def test_a_test_that_is_not_there_is_noticed() -> None:
    assert "test_every_protection_is_held_by_tests" in named_in("tests/docs/test_security.py")
    assert "test_of_nothing" not in named_in("tests/docs/test_security.py")
