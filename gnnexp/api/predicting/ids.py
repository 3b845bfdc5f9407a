"""The user's own ids of the vertices of a prepared graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnexp.datasets.reading.names import GraphNames, ids_file, names_of

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class OwnIds:
    """The ids of all vertices, type by type. Vertices without ids of their own have their numbers.

    Attributes:
        folder: folder of the prepared graph.
        names: its names.
        num_nodes: V.
    """

    folder: Path
    names: GraphNames
    num_nodes: int

    @staticmethod
    def of(folder: Path, num_nodes: int) -> OwnIds:
        """The ids next to the prepared graph in `folder`, which has `num_nodes` vertices."""
        return OwnIds(folder, names_of(folder), num_nodes)

    @property
    def several_types(self) -> bool:
        """Whether vertices have types, so that an id may occur once in each type."""
        return len(self.names.types) > 1

    @property
    def are_numbers(self) -> bool:
        """Whether the vertices have no ids of their own."""
        return not self.names.types

    def file(self, kind: str) -> Path:
        """The Parquet file with the ids of a type."""
        return self.folder / ids_file(kind)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Number of the first vertex of each type, and V."""
        from pyarrow import parquet

        counts = (parquet.read_metadata(self.file(kind)).num_rows for kind in self.names.types)
        return tuple(accumulate(counts, initial=0)) if not self.are_numbers else (0, self.num_nodes)

    @cached_property
    def _kinds(self) -> tuple[pa.DataType, ...]:
        """The data types of the ids of all types."""
        from pyarrow import parquet

        return tuple(parquet.read_schema(self.file(kind)).field("id").type for kind in self.names.types)

    @property
    def texts(self) -> tuple[bool, ...]:
        """Whether the ids of each type are texts; without types, ids are numbers."""
        import pyarrow as pa

        return tuple(pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in self._kinds) or (False,)

    @property
    def text(self) -> bool:
        """Whether ids of all vertices in one column are texts: because all are, or because those of some types are."""
        return len(set(self._kinds)) > 1 or any(self.texts)

    def pieces(self, most: int) -> Iterator[dict[str, Any]]:
        """Columns `id` and, with several types, `type`, of consecutive vertices: at most `most` at a time."""
        import pyarrow as pa
        from pyarrow import parquet

        if self.are_numbers:
            for start in range(0, self.num_nodes, most):
                yield {"id": np.arange(start, min(start + most, self.num_nodes))}
            return
        for kind in self.names.types:
            with parquet.ParquetFile(self.file(kind)) as file:
                for batch in file.iter_batches(most, columns=["id"]):
                    yield self._columns(batch.column(0), pa.repeat(kind, batch.num_rows))

    def chosen(self, numbers: np.ndarray) -> dict[str, Any]:
        """The same columns of the vertices `numbers` `[n]`. The ids of all vertices are in memory."""
        import pyarrow as pa

        if self.are_numbers:
            return {"id": numbers}
        kinds = np.searchsorted(np.asarray(self.starts), numbers, side="right") - 1
        return self._columns(self._all.take(pa.array(numbers)), pa.array(list(self.names.types)).take(pa.array(kinds)))

    @cached_property
    def _all(self) -> pa.Array:
        import pyarrow as pa

        return pa.concat_arrays([pa.array(piece["id"]) for piece in self.pieces(1 << 20)])

    def _columns(self, ids: pa.Array, kinds: pa.Array) -> dict[str, Any]:
        import pyarrow as pa

        found = {"id": ids.cast(pa.string()) if self.text else ids}
        return {**found, "type": kinds} if self.several_types else found
