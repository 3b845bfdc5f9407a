"""Find prose that breaks the rule of CONTRIBUTING.md ("English"): `python benchmarks/english.py [FILE…]`.

The script reads docstrings, comments and messages of Python files, comments of YAML files, and the text of Markdown
files. It prints each unwanted word and each sentence of more than 30 words with its file and line, and exits with 1
if it has found any.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
FOLDERS = (
    "gnnexp",
    "papers",
    "conf",
    "sweeps",
    "docs",
    "examples",
    "benchmarks",
    "tests",
    "torture",
    "emulated_gpu",
)
SKIPPED = ("docs/results/", "CHANGELOG.md", "benchmarks/english.py")  # generated pages; earlier versions; this list
MOST_WORDS = 30
UNWANTED = {
    "told": "said, given",
    "anew": "again",
    "beside": "next to, compared with",
    "how-manieth": "0-based index",
    "is another thing": "say what the difference is",
    "whence": "from where",
    "mend": "fix",
    "mended": "fixed",
    "mends": "fixes",
    "thereof": "of it",
    "therein": "in it",
    "manifold": "many times",
}
_UNWANTED = re.compile(r"\b(" + "|".join(sorted(UNWANTED, key=len, reverse=True)) + r")\b", re.IGNORECASE)
_END = re.compile(r"(?<=[.!?])[)\"']*\s+(?=[A-Z`\"'(\d*_\[]|gnnexp\b)|[.!?:;]\s*$")
_CODE = re.compile(r"<[^<>]+>|``.*?``|`[^`]*`|\"[^\"]*\"|“[^”]*”|\{[^{}]*\}|\]\([^)]*\)|\S*[/=_]\S*|https?://\S+")
# What begins a passage: an entry of a list, of a docstring's section, or a section's name.
_ENTRY = re.compile(r"([-*#>]|\d+\.)\s|[\w`*]+(, [\w`*]+)*: |(Args|Attributes|Returns|Raises|Yields):$")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")

Passage = tuple[int, str]  # line, text


def passages(file: Path) -> Iterator[Passage]:
    """The prose of a file: each paragraph, list entry, docstring paragraph, block of comments, or message."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        yield from _of_program(text)
    elif file.suffix in (".yaml", ".yml"):
        found = [
            (number, line.partition("#"))
            for number, line in enumerate(text.split("\n"), 1)
            if re.match(r"\s*#|.*\s#\s", line)
        ]
        # What explains one key, behind it or as `# links.h2d: …`, is a passage of its own.
        of_keys = {number for number, (key, _, comment) in found if key.strip() or re.match(r" \w+\.\w+: ", comment)}
        yield from _of_comments((number, comment) for number, (_, _, comment) in found if number not in of_keys)
        yield from ((number, comment) for number, (_, _, comment) in found if number in of_keys)
    else:
        yield from _of_markdown(text)


def _of_program(text: str) -> Iterator[Passage]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    yield from _of_comments(
        (token.start[0], token.string.lstrip("#: ")) for token in tokens if token.type == tokenize.COMMENT
    )
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            words = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            if _is_prose(words):
                yield node.lineno, words
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_prose(node.value):
            yield from _paragraphs(node.lineno, node.value)


def _is_prose(text: str) -> bool:
    """Whether a string may be prose, and is not a program or a query."""
    program = r"^\s*((import|from|def|select|with|create) |\w+=)"
    return " " in text and not re.search(program, text, re.MULTILINE | re.IGNORECASE)


def _of_comments(lines: Iterator[Passage]) -> Iterator[Passage]:
    """Comments of successive lines are one passage."""
    start, last, words = 0, -1, ""
    for number, text in lines:
        if number != last + 1:
            if words:
                yield start, words
            start, words = number, ""
        last, words = number, f"{words} {text.strip()}".strip()
    if words:
        yield start, words


def _of_markdown(text: str) -> Iterator[Passage]:
    """Paragraphs and list entries; fenced code has no prose. A row of a table is one passage for each cell."""
    fenced = False
    kept = []
    for line in text.split("\n"):
        fence = line.lstrip().startswith(("```", "~~~", "<!-- english: "))
        fenced ^= fence
        kept.append("" if fenced or fence or re.match(r"\s*\|?[-:| ]+\|?\s*$", line) else line)
    yield from _paragraphs(1, "\n".join(kept))


def _paragraphs(line: int, text: str) -> Iterator[Passage]:
    start, words = line, ""
    for number, raw in enumerate(text.split("\n"), line):
        row = raw.strip()
        if row.startswith("|"):
            yield from ((number, cell) for cell in row.split("|"))
            row = ""
        if not row or _ENTRY.match(row):
            if words:
                yield start, words
            start, words = number, ""
        start, words = (start, f"{words} {row}") if words else (number, row)
    if words:
        yield start, words


def sentences(text: str) -> list[str]:
    """The sentences of a passage, with `code` for each piece of code."""
    return [one.strip() for one in _END.split(_CODE.sub(" code ", text)) if one and one.strip()]


def complaints(text: str) -> Iterator[str]:
    """What a passage has that the rule does not allow."""
    plain = _CODE.sub(" code ", text)
    for word in _UNWANTED.findall(plain):
        yield f"unwanted word '{word}': {UNWANTED[word.lower()]}"
    for sentence in sentences(text):
        count = len(_WORD.findall(sentence))
        if count > MOST_WORDS:
            yield f"a sentence of {count} words: {' '.join(sentence.split()[:8])} …"


def files() -> Iterator[Path]:
    """All files of the checkout that have prose of ours."""
    for pattern in ("*.md", *(f"{folder}/**/*{end}" for folder in FOLDERS for end in (".py", ".yaml", ".md"))):
        for file in sorted(HERE.glob(pattern)):
            if not str(file.relative_to(HERE)).startswith(SKIPPED):
                yield file


def main() -> None:
    found = 0
    for file in map(Path, sys.argv[1:]) if sys.argv[1:] else files():
        for line, text in passages(file):
            for complaint in complaints(text):
                found += 1
                print(f"{file}:{line}: {complaint}")
    sys.exit(f"{found} places" if found else 0)


if __name__ == "__main__":
    main()
