"""A graph that a user's Python holds: the same options as for files of other libraries."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import scipy.sparse

from gnnexp.datasets.base import WrittenDataset
from gnnexp.datasets.formats.dataset import ForeignOptions, write_foreign
from gnnexp.datasets.formats.foreign import ForeignGraph
from gnnexp.graph.graph import Graph


@dataclass(kw_only=True, eq=False)
class InMemory(ForeignOptions, WrittenDataset):
    """A graph in arrays. It is no choice of a configuration: `gnnexp.from_pyg` and its siblings prepare it.

    Attributes:
        name: name of the graph.
        found: the arrays.
    """

    unkeyed: ClassVar[frozenset[str]] = frozenset({"found"})
    name: str
    found: ForeignGraph | None = None

    def key(self) -> str:
        """SHA-256 of the options, the code and the arrays."""
        digest = hashlib.sha256(super().key().encode())
        foreign = self.read()
        for kind, vertices in foreign.vertices.items():
            digest.update(json.dumps(["vertices", kind, vertices.count, list(vertices.classes)]).encode())
            for part in (
                vertices.features,
                vertices.labels,
                vertices.ids,
                *(vertices.splits.get(name) for name in sorted(vertices.splits)),
            ):
                _add(digest, part)
            digest.update(json.dumps(sorted(vertices.splits)).encode())
        for edges in foreign.edges:
            digest.update(json.dumps(["edges", edges.name, edges.types, edges.reverse]).encode())
            for part in (edges.source, edges.destination, edges.weight):
                _add(digest, part)
        digest.update(json.dumps(list(foreign.notes)).encode())
        return digest.hexdigest()

    def generate(self, folder: Path) -> Graph:
        """See `WrittenDataset.generate`."""
        return write_foreign(self.read(), self, self.name, folder)

    def read(self) -> ForeignGraph:
        """The arrays."""
        assert self.found is not None, "a graph in memory has arrays"
        return self.found


def _add(digest: hashlib._Hash, part: np.ndarray | scipy.sparse.csr_array | None) -> None:
    """Add the type, the shape and the values of an array."""
    if part is None:
        digest.update(b"none")
    elif isinstance(part, np.ndarray):
        digest.update(json.dumps([part.dtype.str, part.shape]).encode())
        digest.update(json.dumps(part.tolist()).encode() if part.dtype == object else np.ascontiguousarray(part).data)
    else:
        matrix = scipy.sparse.csr_array(part)
        digest.update(json.dumps(matrix.shape).encode())
        for array in (matrix.indptr, matrix.indices, matrix.data):
            _add(digest, array)
