"""Lines of code, without docstrings, comments and blank lines: `python benchmarks/code_lines.py [--at COMMIT]`.

A line counts if a token of the program is on it. By room, with its files and its longest file, and in all.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def code_lines(text: str) -> int:
    """How many lines of a program have code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - set(_docstring_lines(ast.parse(text))))


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and type(first.value.value) is str:
                yield from range(first.lineno, (first.end_lineno or first.lineno) + 1)


def programs(folder: str, commit: str | None) -> Iterator[tuple[str, str]]:
    """Name and text of every program of a folder, in this checkout or in a commit."""
    if commit is None:
        for file in sorted((HERE / folder).rglob("*.py")):
            yield str(file.relative_to(HERE)), file.read_text(encoding="utf-8")
        return
    for name in _git("ls-tree", "-r", "--name-only", commit, folder).splitlines():
        if name.endswith(".py"):
            yield name, _git("show", f"{commit}:{name}")


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(HERE), *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at", help="commit")
    parser.add_argument("--folder", default="gnnexp")
    chosen = parser.parse_args()
    rooms: dict[str, list[int]] = defaultdict(list)
    for name, text in programs(chosen.folder, chosen.at):
        if count := code_lines(text):
            rooms[str(Path(name).parent)].append(count)
    for room, counts in sorted(rooms.items()):
        print(f"{room:<36}{sum(counts):>7} lines{len(counts):>4} files, the longest {max(counts)}")
    print(f"{chosen.folder:<36}{sum(map(sum, rooms.values())):>7} lines{sum(map(len, rooms.values())):>4} files")


if __name__ == "__main__":
    main()
