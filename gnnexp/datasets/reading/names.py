"""Names next to a prepared graph: of types, classes, relations and columns, and the user's own ids of vertices."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypedDict
from urllib.parse import quote

from gnnexp.graph.storage.writer import ArrayWriter, write_json_to_disk

_FILE, _IDS = "names.json", "ids_"


class Column(TypedDict, total=False):
    """What some columns of features are: a column of numbers, one of categories, or a file.

    Attributes:
        column: name of the column of the table.
        file: ending of the file.
        width: number of columns of features that a column of numbers or a file makes.
        values: the value of each one-hot column of a column of categories.
        empty: what replaces missing numbers, `width` numbers; only if tables are filled or standardized.
        mean, spread: what is subtracted from numbers, and by what the result is divided, `width` numbers each; only if
            tables are standardized.
    """

    column: str
    file: str
    width: int
    values: list[str]
    empty: list[float]
    mean: list[float]
    spread: list[float]


Columns = Mapping[str, Sequence[Column]]


@dataclass(frozen=True)
class GraphNames:
    """Names of what a prepared graph has.

    Attributes:
        types: types of vertices, in the order of their numbers; empty for a graph without ids of its own.
        classes: names of the classes; empty: classes are numbers.
        relations: names of the types of edges, in the order of their numbers.
        columns: what the columns of features are, in their order, by type of vertices.
    """

    types: Sequence[str] = ()
    classes: Sequence[str] = ()
    relations: Sequence[str] = ()
    columns: Columns = field(default_factory=dict)

    def write(self, writer: ArrayWriter) -> None:
        """Put the names next to the arrays of a graph."""
        write_json_to_disk(writer.extra(_FILE), asdict(self))


def names_of(folder: Path) -> GraphNames:
    """The names that stand next to a prepared graph. A dataset whose vertices have no names has none."""
    path = folder / _FILE
    return GraphNames(**json.loads(path.read_text("utf-8"))) if path.is_file() else GraphNames()


def ids_file(kind: str) -> str:
    """Name of the Parquet file with the ids of the vertices of a type: columns `id` and, ascending, `vertex`."""
    return f"{_IDS}{quote(kind, safe='')}.parquet"  # a type may have any name


def is_of_names(path: Path) -> bool:
    """Whether a file next to the arrays of a graph has names or ids."""
    return path.name == _FILE or path.name.startswith(_IDS)
