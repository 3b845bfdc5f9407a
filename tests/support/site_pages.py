"""What the documentation is made of: Markdown files of the repository, and their text as the site has it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from repository import included

ROOT = Path(__file__).parents[2]
SOURCES = [Path(name) for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")] + sorted(
    path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")
)
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
RUN = "<!-- run -->"


class Fence(NamedTuple):
    """A block of code in a page.

    Attributes:
        source: file it stands in.
        line: number of its first line.
        language: what it says to be.
        code: without the indentation of the fence.
        runs: whether `<!-- run -->` stands right before it: tests execute it.
    """

    source: Path
    line: int
    language: str
    code: str
    runs: bool


def site_text(path: Path) -> str:
    """A file's text with the parts of README.md that it takes."""
    return included(path.read_text(encoding="utf-8"), "index.md")


def fences(source: Path, text: str | None = None) -> list[Fence]:
    """All blocks of code of a file."""
    text = (ROOT / source).read_text(encoding="utf-8") if text is None else text
    found = []
    for match in FENCE.finditer(text):
        before = text[: match.start()].rstrip("\n")
        indent = len(match["indent"])
        code = "\n".join(line[indent:] for line in match["code"].splitlines())
        line = text[: match.start()].count("\n") + 1
        found.append(Fence(source, line, match["language"].strip(), code, before.endswith(RUN)))
    return found


ALL_FENCES = [fence for source in SOURCES for fence in fences(source)]
