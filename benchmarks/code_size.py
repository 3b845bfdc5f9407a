"""Tokens of code, without comments, docstrings and layout: `python benchmarks/code_size.py [--at COMMIT]`.

Lines are no measure across a formatter. A token is a name, a number, a text or an operator of the program. Figures are
by room, in all, and of the training core, which is what a rank trains with.
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
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
# The formatter adds and removes these without a change of the program.
_PUNCTUATION = {"(", ")", ","}
CORE = (
    *("graph", "kernels", "ops", "comm", "tiers", "placement", "samplers", "feature_stores", "models", "tasks"),
    *("paradigms", "training", "experiment", "components", "measure", "partitioners"),
)


def code_tokens(text: str) -> int:
    """How many tokens of a program are code."""
    documented = set(_docstring_lines(ast.parse(text)))
    return sum(
        token.type not in _LAYOUT and token.string not in _PUNCTUATION and token.start[0] not in documented
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
    )


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
        if count := code_tokens(text):
            rooms[str(Path(name).parent)].append(count)
    for room, counts in sorted(rooms.items()):
        print(f"{room:<36}{sum(counts):>8} tokens{len(counts):>4} files, the longest {max(counts)}")
    total, files = sum(map(sum, rooms.values())), sum(map(len, rooms.values()))
    core = sum(sum(counts) for room, counts in rooms.items() if room.split("/")[1:2] and room.split("/")[1] in CORE)
    print(f"{chosen.folder:<36}{total:>8} tokens{files:>4} files in {len(rooms)} folders")
    print(f"{'training core':<36}{core:>8} tokens")


if __name__ == "__main__":
    main()
