"""Names next to a prepared graph: of types, classes, relations and columns, and the user's own ids of vertices."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gnnexp.graph.storage.writer import ArrayWriter, write_json

# Entries in the order of the columns of features, by type of vertices:
# `{column, width}`: a column of numbers, or of lists of `width` numbers. There may be lists of `width` numbers: `empty`
#     replaces missing numbers, `mean` and `spread` standardize.
# `{column, values}`: a column of categories, and the value of each of its one-hot columns.
# `{file, width}`: a file of features with this ending.
Columns = Mapping[str, Sequence[Mapping[str, Any]]]
_FILE, _IDS = "names.json", "ids_"


@dataclass(frozen=True)
class Names:
    """Names of what a prepared graph has.

    Attributes:
        types: types of vertices, in the order of their numbers; empty for a graph without ids of its own.
        classes: names of the classes; empty: classes are numbers.
        relations: names of the types of edges, in the order of their numbers.
        columns: what the columns of features are, by type of vertices (see `Columns`).
    """

    types: Sequence[str] = ()
    classes: Sequence[str] = ()
    relations: Sequence[str] = ()
    columns: Columns = field(default_factory=dict)

    def write(self, writer: ArrayWriter) -> None:
        """Put the names next to the arrays of a graph."""
        write_json(writer.extra(_FILE), asdict(self))


def names_of(folder: Path) -> Names:
    """The names that stand next to a prepared graph. A dataset whose vertices have no names has none."""
    path = folder / _FILE
    return Names(**json.loads(path.read_text("utf-8"))) if path.is_file() else Names()


def ids_file(kind: str) -> str:
    """Name of the Parquet file with the ids of the vertices of a type: columns `id` and, ascending, `vertex`."""
    return f"{_IDS}{quote(kind, safe='')}.parquet"  # a type may have any name


def is_of_names(path: Path) -> bool:
    """Whether a file next to the arrays of a graph has names or ids."""
    return path.name == _FILE or path.name.startswith(_IDS)
