"""Every command line that the documentation shows: in blocks, and in inline code that begins with one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_PROGRAM = r"(?:gnnexp|make|python -m)"
_STARTS = re.compile(rf"{_PROGRAM} (?=\S)")
# Two commands in one line: joined, or side by side with some space between them.
_BETWEEN = re.compile(rf"\s*&&\s*|\s{{2,}}(?={_PROGRAM} )")
_INLINE = re.compile(rf"`({_PROGRAM} [^`]+)`")
# A word that stands for any name, not for itself; RUN_DIR and the like stand for something that there is.
_ANY = re.compile(r"(?:[\w.]+=)?([A-Z][A-Z_]*)|\S*/NAME\.\S*|group=choice|key=value")
PLACES = ("RUN_DIR", "FOLDER")
# Commands that need no further word; others alone are named, not shown.
_ALONE = ("info", "ui", "report")


@dataclass(frozen=True)
class Command:
    """One command line.

    Attributes:
        text: as it is written, without comment.
        place: page and line.
        folder: that the block has changed to, relative to the checkout.
    """

    text: str
    place: str
    folder: str = "."

    @property
    def words(self) -> list[str]:
        """As a shell splits it; a run directory that is shortened is any run directory."""
        return shlex.split(re.sub(r"\bruns/\S*…\S*", "RUN_DIR", self.text))

    @property
    def program(self) -> str:
        """`gnnexp`, `make` or `python`."""
        return self.words[0]

    @property
    def is_usage(self) -> bool:
        """Whether it stands for many (`…`, `*`, `<name>`, capitals, brackets, choices), or is just a name."""
        words = self.words
        if self.program == "gnnexp" and len(words) == 2:
            return words[1] not in _ALONE
        return any(
            set("…<*") & set(word) or word == "|" or word.startswith("[") or _stands_for_any(word) for word in words
        )


def _stands_for_any(word: str) -> bool:
    match = _ANY.fullmatch(word)
    return match is not None and match[1] not in PLACES


def documented() -> list[Command]:
    """All of them, each once per folder, in order of the pages."""
    found: dict[tuple[str, str], Command] = {}
    for page in PAGES:
        for command in commands_of(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT))):
            found.setdefault((command.text, command.folder), command)
    return list(found.values())


def commands_of(text: str, page: str) -> Iterator[Command]:
    """Those of one page."""
    fence, folder = None, "."
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{page}:{number}"
        if line.lstrip().startswith("```"):
            fence = None if fence is not None else line.strip("` ")
            folder = "."
        elif fence is None:
            yield from (Command(_without_comment(found), place) for found in _INLINE.findall(line))
        elif fence in ("", "bash", "sh", "console"):
            for part in _BETWEEN.split(_without_comment(line.strip().removeprefix("$ "))):
                if part.startswith("cd "):
                    folder = part[3:].strip()
                elif _STARTS.match(part):
                    yield Command(part.strip(), place, folder)


def _without_comment(line: str) -> str:
    return re.split(r"\s+#", line, maxsplit=1)[0].strip()
