"""Identifies Python source: the modules that a program reads, and a digest of each that ignores comments.

A digest changes when the program changes. It does not change with docstrings, with comments on lines of their own and
with empty lines. It is the same for every version of Python.

Installed packages and modules in archives have a digest of their bytes.
"""

from __future__ import annotations

import ast
import hashlib
import os
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from itertools import chain
from pathlib import Path

from gnnexp.errors import DataError, Problem

DIGITS = 16
# Suffixes of modules, in the order in which Python looks for them: a compiled module is executed if there is one.
_SUFFIXES = (*EXTENSION_SUFFIXES, *SOURCE_SUFFIXES, *BYTECODE_SUFFIXES)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_LISTING = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)


def digest_of(file: Path) -> str:
    """The digest of a file: of the program for Python source, of the bytes for anything else.

    Raises:
        DataError: the file cannot be read, or it ends in `.py` and is not Python.
    """
    return _digest(file, _stamp(file))


@dataclass(frozen=True)
class Closure:
    """The modules that an import of some modules may read.

    Attributes:
        files: modules below the base, by name, sorted.
        outside: imported names that are not below the base or were excluded.
    """

    files: Mapping[str, Path]
    outside: frozenset[str]


def closure(roots: Iterable[str], base: Path, excluded: Sequence[str] = ()) -> Closure:
    """Modules below `base` that importing `roots` may read.

    Imports inside of functions count, but imports for type checkers only do not. Compiled modules are found, but their
    imports are not.

    Args:
        roots: dotted names of the first modules.
        base: the folder that is in `sys.path`.
        excluded: packages and modules that are not followed, unless they are roots.

    Raises:
        DataError: a file cannot be read.
    """
    files: dict[str, Path] = {}
    outside: set[str] = set()
    roots = set(roots)
    waiting = sorted(roots)
    while waiting:
        name = waiting.pop()
        if name in files or name in outside:
            continue
        followed = name in roots or not is_within(name, excluded)
        file = file_of(name, base) if followed else None
        # A package is executed before its modules; the name of a nested class leads to its module in the same way.
        waiting += [name.rpartition(".")[0]] if "." in name else []
        if name.endswith(".*") and (package := file_of(name[:-2], base)) is not None:
            waiting += [f"{name[:-2]}.{item}" for item in _starred(package, _stamp(package))]
        if file is None:
            outside.add(name)
            continue
        files[name] = file
        waiting += imports_of(file, name)
    return Closure(dict(sorted(files.items())), frozenset(outside))


def is_within(name: str, packages: Iterable[str]) -> bool:
    """Whether a dotted name is one of `packages`, or below one."""
    return any(name == one or name.startswith(f"{one}.") for one in packages)


def file_of(name: str, base: Path) -> Path | None:
    """The file of a module below `base`; None for a name that is no module there."""
    path = base.joinpath(*name.split("."))
    if not path.name or not path.parent.is_dir():  # most often an attribute of a module
        return None
    choices = (path / f"__init__{suffix}" for suffix in _SUFFIXES), (Path(f"{path}{suffix}") for suffix in _SUFFIXES)
    return next((file for file in chain(*choices) if file.is_file()), None)


def imports_of(file: Path, name: str) -> tuple[str, ...]:
    """Dotted names that the module `name` imports: modules, and names that may be modules."""
    return _imports(file, name, _stamp(file))


def _stamp(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except OSError as error:
        raise _unreadable(file, str(error.strerror)) from None
    return status.st_mtime_ns, status.st_size


def _unreadable(file: Path, why: str) -> DataError:
    return DataError(Problem(str(file), why, "the source of a component must be readable Python", "correct the file"))


@lru_cache(maxsize=4096)
def _tree(file: Path, stamp: tuple[int, int]) -> tuple[str, ast.Module]:
    try:
        with tokenize.open(file) as source:  # in the encoding that the file names
            text = source.read()
        return text, ast.parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise _unreadable(file, str(error)) from None


@lru_cache(maxsize=4096)
def _digest(file: Path, stamp: tuple[int, int]) -> str:
    if file.suffix != ".py":
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()[:DIGITS]
    text, tree = _tree(file, stamp)
    return hashlib.sha256(program_of(text, tree).encode()).hexdigest()[:DIGITS]


def program_of(text: str, tree: ast.Module) -> str:
    """The lines of `text` without docstrings, empty lines and lines that are a comment."""
    lines = text.split("\n")  # as Python counts them: `splitlines` ends lines at form feeds, too
    dropped = {line for first, last in _docstrings(tree) for line in range(first, last + 1)}
    texts = {line for first, last in _long_texts(tree) for line in range(first + 1, last + 1)} - dropped
    kept = []
    for number, line in enumerate(lines, 1):
        words = line.strip()
        if number in texts:
            kept.append(line)
        elif number not in dropped and words and not words.startswith("#"):
            kept.append(line.rstrip())
    return "\n".join(kept)


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """First and last lines of docstrings that have these lines to themselves."""
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and node.body and _is_text(node.body[0]):
            after = node.body[1].lineno if len(node.body) > 1 else 0
            first, last = node.body[0].lineno, node.body[0].end_lineno or 0
            if after != last and (isinstance(node, ast.Module) or node.lineno != first):
                yield first, last


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _long_texts(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """First and last lines of texts that span several lines: a `#` inside of them is no comment."""
    for node in ast.walk(tree):
        plain = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        if isinstance(node, ast.expr) and (plain or isinstance(node, ast.JoinedStr)):
            last = node.end_lineno or 0
            if last > node.lineno:
                yield node.lineno, last


@lru_cache(maxsize=4096)
def _imports(file: Path, name: str, stamp: tuple[int, int]) -> tuple[str, ...]:
    if file.suffix != ".py":
        return ()
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    return tuple(dict.fromkeys(_imported(_tree(file, stamp)[1], package)))


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    unseen = {
        id(node)
        for test in ast.walk(tree)
        if isinstance(test, ast.If) and _for_type_checkers(test)
        for part in test.body
        for node in ast.walk(part)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and id(node) not in unseen:
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and id(node) not in unseen:
            module = _absolute(node, package)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


@lru_cache(maxsize=4096)
def _starred(file: Path, stamp: tuple[int, int]) -> tuple[str, ...]:
    """The names that `from package import *` imports, which may be modules: the texts in the package's `__all__`."""
    if file.suffix != ".py":
        return ()
    lists = [
        node
        for node in ast.walk(_tree(file, stamp)[1])
        if isinstance(node, _LISTING)
        and any(isinstance(part, ast.Name) and part.id == "__all__" for part in ast.walk(node))
    ]
    return tuple(
        part.value
        for node in lists
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    )


def _absolute(node: ast.ImportFrom, package: str) -> str:
    """The absolute name of the module in `from ..a import b`."""
    if not node.level:
        return str(node.module)
    above = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*above, *([node.module] if node.module else [])])


def _for_type_checkers(node: ast.If) -> bool:
    return ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


_CODE = (".py", ".so", ".pyd")
# Of a larger library only the size counts: an edit that keeps the version and all sources is unlikely.
_LARGE_BYTES = 64 << 20


def digest_of_installed(places: Iterable[Path]) -> str:
    """The digest of the code in the folders of an installed package, or of its one file.

    The version alone is not enough: `pip install .` of an edited project keeps it.

    Raises:
        DataError: a file cannot be read.
    """
    total = hashlib.sha256()
    for place in places:
        for name, file in _code_in(place):
            try:
                size = file.stat().st_size
                content = file.read_bytes() if size <= _LARGE_BYTES else b""
            except OSError as error:
                raise DataError(
                    Problem(
                        str(file),
                        error.strerror,
                        "the code of a component must be readable",
                        "install the package again",
                    )
                ) from None
            total.update(f"{name} {size}\n".encode() + content)
    return total.hexdigest()[:DIGITS]


def _code_in(place: Path) -> Iterator[tuple[str, Path]]:
    """Files of code with their names relative to `place`, in order, without Python's compiled files."""
    if not place.is_dir():
        yield place.name, place
        return
    for folder, below, names in os.walk(place):
        below[:] = sorted(name for name in below if name != "__pycache__")
        for name in sorted(names):
            if name.endswith(_CODE):
                file = Path(folder) / name
                yield file.relative_to(place).as_posix(), file


def existing(origin: Path) -> Path:
    """The file with the bytes of a module: the module's own file, or the archive that contains it."""
    return next((place for place in (origin, *origin.parents) if place.is_file()), origin)
