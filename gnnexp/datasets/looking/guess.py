"""What a file or a folder probably is, as overrides of the configuration."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gnnexp.datasets.looking.tables import guess_tables
from gnnexp.errors import DataError, Problem
from gnnexp.files.regular import is_file
from gnnexp.graph.storage.arrays import META


@dataclass(frozen=True)
class Guess:
    """A format, and how gnnexp reads it.

    Attributes:
        format: what the place is, in a few words.
        overrides: overrides that load it.
        classes: columns that may be classes, with the number of their values.
    """

    format: str
    overrides: Sequence[str]
    classes: Mapping[str, int] = field(default_factory=dict)


def recognised(path: Path) -> Guess:
    """The format of a file or a folder.

    Raises:
        DataError: nothing is there, or no format fits.
    """
    place = path.expanduser().absolute()
    if not place.exists():
        raise DataError(Problem("PATH", str(path), "there is no such file or folder", "correct the path"))
    for look in _FORMATS:
        if found := look(place):
            return found
    raise DataError(Problem("PATH", str(path), "no known format fits this place", "give a folder of tables (CSV, "
                            "Parquet, …), or one of gnnexp list dataset; docs/howto/dataset.md"))


def _gnnexp_format(place: Path) -> Guess | None:
    meta = place / META
    if not is_file(meta) or json.loads(meta.read_text("utf-8")).get("kind") != "graph":
        return None
    return Guess("a graph in gnnexp's format", ["dataset=gnnexp_format", f"dataset.path={place}"])


def _planetoid(place: Path) -> Guess | None:
    found = sorted(place.glob("ind.*.graph")) if place.is_dir() else []
    if len(found) != 1:
        return None
    name = found[0].name.removeprefix("ind.").removesuffix(".graph")
    return Guess(f"Planetoid files of {name}", ["dataset=planetoid", f"dataset.name={name}", f"dataset.path={place}"])


def _triples(place: Path) -> Guess | None:
    names = ("train.txt", "valid.txt", "test.txt")
    if not place.is_dir() or not all(is_file(place / name) for name in names):
        return None
    with (place / names[0]).open(encoding="utf-8") as file:
        if len(file.readline().split()) != 3:
            return None
    return Guess("triples of a knowledge graph", ["dataset=triples", f"dataset.path={place}"])


def _tables(place: Path) -> Guess | None:
    found = guess_tables(place)
    return None if found is None else Guess("tables", *found)


_FORMATS: tuple[Callable[[Path], Guess | None], ...] = (_gnnexp_format, _planetoid, _triples, _tables)
