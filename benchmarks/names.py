"""List names that stand in several modules, and variables that say nothing: `python benchmarks/names.py`.

The tests (`tests/test_house.py`) refuse a second public class or function of one name, and count variables that say
nothing of what they hold.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "gnnexp"
# A module's own command, and what compiles its kernels: always called by the module's name.
ENTRIES = frozenset({"main", "warm_up"})
SAY_NOTHING = frozenset({"found", "given", "made", "one", "there"})
LONG = 10

Trees = Iterable[tuple[str, ast.Module]]  # path of a module below gnnexp/, and its syntax tree


def several(trees: Trees, kind: type[ast.ClassDef] | type[ast.FunctionDef]) -> Mapping[str, Sequence[str]]:
    """The modules of each public class or function that stands in several, without twins in Triton."""
    modules: dict[str, list[str]] = {}
    for module, tree in trees:
        for node in tree.body:
            if isinstance(node, kind) and not node.name.startswith("_") and node.name not in ENTRIES:
                modules.setdefault(node.name, []).append(module)
    return {name: places for name, places in modules.items() if len(places) > 1 and not _are_twins(places)}


def _are_twins(modules: Sequence[str]) -> bool:
    """Whether all but one are in Triton, or are its words, and have the names of what they stand for."""
    twins = [module.startswith("kernels/cuda/") or module.endswith(("_triton.py", "/words.py")) for module in modules]
    return twins.count(False) == 1 and all(module.startswith(("kernels/", "ops/")) for module in modules)


def saying_nothing(trees: Trees) -> Iterator[str]:
    """Each function of more than `LONG` lines, with each name of `SAY_NOTHING` that it or its inner functions bind."""
    for module, tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= LONG:
                bound = {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)}
                bound |= {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and _is_bound(name)}
                yield from (f"{module}: {node.name}: {name}" for name in sorted(bound & SAY_NOTHING))


def _is_bound(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def main() -> None:
    """Print the lists and their lengths."""
    files = sorted(PACKAGE.rglob("*.py"))
    trees = [(file.relative_to(PACKAGE).as_posix(), ast.parse(file.read_text(encoding="utf-8"))) for file in files]
    for what, kind in (("classes", ast.ClassDef), ("functions", ast.FunctionDef)):
        names = several(trees, kind)
        print(
            f"{len(names)} names of {what} in several modules",
            *sorted(f"  {n}: {m}" for n, m in names.items()),
            sep="\n",
        )
    silent = list(saying_nothing(trees))
    print(f"{len(silent)} names of variables that say nothing", *(f"  {line}" for line in silent), sep="\n")


if __name__ == "__main__":
    main()
