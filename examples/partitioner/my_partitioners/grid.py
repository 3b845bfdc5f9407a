"""A vertex-cut by a grid (GraphBuilder, Jain, Liao and Willke, 2013; GraphX's EdgePartition2D), from a stream of edges.

Parts are the cells of a grid of R rows and C columns. An edge goes to the row of its source and the column of its
destination. So a vertex has copies in one row and one column only, in at most R + C - 1 parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt

import numpy as np

from gnnexp.graph.stream import EdgeStream
from gnnexp.kernels.counter import Purpose, stream, uniform_words
from gnnexp.partitioners.streaming import VertexCut


class GridPartitioner(VertexCut):
    """Draws the row and the column of every vertex from `seed`. The arguments are those of `VertexCut`."""

    def place_all(self, stream: EdgeStream, num_parts: int, parts: np.ndarray) -> Mapping[str, float]:
        """Assign the edges with numpy, one chunk of the stream at a time."""
        rows = next(count for count in range(isqrt(num_parts), 0, -1) if num_parts % count == 0)
        columns = num_parts // rows
        row, column = (self._drawn(stream.num_nodes, number, count) for number, count in enumerate((rows, columns)))
        for chunk in stream.chunks():
            parts[chunk.positions] = row[chunk.sources] * columns + column[chunk.destinations]
        return {"rows": rows, "columns": columns}  # the record shows them

    def _drawn(self, num_nodes: int, number: int, count: int) -> np.ndarray:
        """`[V]` numbers from 0 to `count` - 1. They depend on the seed alone."""
        key = np.uint64(stream(self.seed, Purpose.PARTITION, number))
        return (uniform_words(key, num_nodes) % np.uint64(count)).astype(np.int64)
