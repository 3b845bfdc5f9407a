"""Versions of kernels as text: a kernel's name, and the types of the arguments that it is compiled for.

    gnnexp.kernels.graph.owned.count_owned,int64[1C] int16[1C] int64

A number is written as `float32`, a constant as `=272`, and a tuple as `(int64 bool)`. An array of one dimension in C
order is `int64[1C]`, or `int64[1Cr]` if it is read only. numba's cache holds one compiled version per line.
"""

# ruff: noqa: ANN401  numba's own objects have no types
from __future__ import annotations

import csv
import importlib
import pickle
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from numba.core import types
from numba.core.types.containers import BaseTuple

_TOKEN = re.compile(r"[()]|[^\s()]+")
_ARRAY = re.compile(r"(\w+)\[(\d)([ACF])(r?)\]")
# A loop or a sum calls no other kernel with a version of its own, and takes long: each may have a process.
_ALONE = ("gnnexp.kernels.rows.rowkernel", "gnnexp.kernels.rows.aggregate")


class Version(NamedTuple):
    """One version of a kernel.

    Attributes:
        kernel: module and name.
        types: types of all arguments, as text.
    """

    kernel: str
    types: str

    @property
    def module(self) -> str:
        """The kernel's module."""
        return self.kernel.rpartition(".")[0]

    def compile(self) -> None:
        """Compile this version, or load it if the cache has it."""
        found = getattr(importlib.import_module(self.module), self.kernel.rpartition(".")[2])
        getattr(found, "kernel", found).compile(signature(self.types))


def read_versions(file: Path) -> list[Version]:
    """The versions in a CSV file."""
    with file.open(encoding="utf-8", newline="") as lines:
        return [Version(row["kernel"], row["types"]) for row in csv.DictReader(lines)]


def write(file: Path, versions: Iterable[Version]) -> None:
    """Write a CSV file for `read_versions`."""
    with file.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(Version._fields)
        writer.writerows(versions)


def pieces(versions: Iterable[Version]) -> list[list[Version]]:
    """Versions that one process should compile: kernels of a module call each other. The slowest are first."""
    found: dict[str, list[Version]] = {}
    for version in versions:
        found.setdefault(str(version) if version.module in _ALONE else version.module, []).append(version)
    return sorted(found.values(), key=lambda piece: (piece[0].module not in _ALONE, -len(piece)))


def signature(text: str) -> tuple[Any, ...]:
    """numba's types of `text`."""
    tokens = _TOKEN.findall(text)
    found = tuple(_types(tokens))
    assert not tokens, f"a bracket too many: {text}"
    return found


def _types(tokens: list[str]) -> Iterator[Any]:
    """Takes tokens up to the end, or to the bracket that ends this tuple."""
    while tokens:
        token = tokens.pop(0)
        if token == ")":
            return
        yield BaseTuple.from_types(tuple(_types(tokens))) if token == "(" else _type(token)


def _type(token: str) -> Any:
    if token.startswith("="):
        return types.IntegerLiteral(int(token[1:]))
    if array := _ARRAY.fullmatch(token):
        return types.Array(getattr(types, array[1]), int(array[2]), array[3], readonly=bool(array[4]))
    return types.boolean if token == "bool" else getattr(types, token)


def text(kind: Any) -> str:
    """A type of numba as text.

    Raises:
        TypeError: no kernel has had an argument of this type yet.
    """
    if isinstance(kind, types.IntegerLiteral):
        return f"={kind.literal_value}"
    if isinstance(kind, types.Array) and kind.aligned:
        return f"{kind.dtype}[{kind.ndim}{kind.layout}{'' if kind.mutable else 'r'}]"
    if isinstance(kind, BaseTuple):
        return f"({' '.join(map(text, kind.types))})"
    if isinstance(kind, (types.Number, types.Boolean)):
        return str(kind)
    raise TypeError(f"no text for numba's type {kind!r}")


def cached(folder: Path, package: Path) -> list[Version]:
    """The versions in numba's cache below `folder`, for the sources of `package`; the folder may be the package."""
    modules = {
        (file.parent.name, file.stem): ".".join(file.relative_to(package.parent).with_suffix("").parts)
        for file in package.rglob("*.py")
        if b"@compiled(" in file.read_bytes()
    }
    saved = []
    for index in folder.rglob("*.nbi"):
        stem, name = index.name.split("-")[0].split(".")
        with index.open("rb") as file:
            pickle.load(file)  # numba's version
            _, overloads = pickle.loads(file.read())
        beside = index.parent.name == "__pycache__"  # else numba names a folder for the source's, and adds a digest
        module = modules[index.parent.parent.name if beside else index.parent.name.rpartition("_")[0], stem]
        saved += [Version(f"{module}.{name}", " ".join(map(text, key[0]))) for key in overloads]
    return sorted(saved)
