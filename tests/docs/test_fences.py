"""Blocks of code name their language, are of that language, and run where they say so."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from site_pages import ALL_FENCES, FENCE, ROOT, SOURCES, Fence, fences

LANGUAGES = {"bash", "text", "yaml", "python", "json", "toml", "markdown", "sql"}


def name(fence: Fence) -> str:
    return f"{fence.source}:{fence.line}"


def problem(fence: Fence) -> str | None:
    """Why a block is not what it says to be."""
    language = fence.language.split(" ")[0]
    if language not in LANGUAGES:
        return f"the language {language!r} is none of {sorted(LANGUAGES)}"
    parse = {"python": ast.parse, "yaml": yaml.safe_load, "json": json.loads}.get(language)
    try:
        parse and parse(fence.code)
    except (SyntaxError, ValueError, yaml.YAMLError) as error:
        return str(error)
    return None


def test_blocks_are_what_they_say() -> None:
    assert {name(fence): why for fence in ALL_FENCES if (why := problem(fence))} == {}


@pytest.mark.parametrize("fence", [fence for fence in ALL_FENCES if fence.runs], ids=name)
@pytest.mark.interpreter
def test_blocks_that_are_marked_run(fence: Fence, tmp_path: Path) -> None:
    assert fence.language == "python"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GNNEXP_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", fence.code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "```\ngnnexp run\n```\n",
        "```fortran\nx\n```\n",
        "```python\ndef f(:\n```\n",
        "```yaml\na: [1\n```\n",
        "```json\n{a: 1}\n```\n",
    ],
)
def test_blocks_that_are_not_are_found(text: str) -> None:
    """The control."""
    (fence,) = fences(Path("some.md"), text)
    assert problem(fence)


def test_marks_are_seen() -> None:
    """The control: a mark before a block counts, one further up does not."""
    text = "<!-- run -->\n```python\n1\n```\n\n```python\n2\n```\n"
    assert [(fence.runs, fence.code) for fence in fences(Path("some.md"), text)] == [(True, "1"), (False, "2")]


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_lists_and_tables_begin_after_a_blank_line(source: Path) -> None:
    """GitHub does without, the site would make them part of the paragraph."""
    assert glued((ROOT / source).read_text(encoding="utf-8")) == []


def glued(text: str) -> list[str]:
    """First lines of lists and tables that stand right after a line of a paragraph."""
    lines = FENCE.sub("", text).splitlines()
    begins, goes_on = re.compile(r"- |\d+\. |\|"), re.compile(r"\s*(- |\d+\. |\|)|  |#|<!--")
    return [
        line for before, line in pairwise(lines) if begins.match(line) and before.strip() and not goes_on.match(before)
    ]


def test_glued_lists_are_found() -> None:
    """The control."""
    assert glued("Text:\n- one\n- two\n\n- three\n  more\n- four\n| a |\n") == ["- one"]
