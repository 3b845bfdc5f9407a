"""DBH, Degree-Based Hashing: a hash of the end with fewer edges selects the part of an edge.

Source: Xie, Yan, Li, Zhang, "Distributed Power-Law Graph Computing: Theoretical and Empirical Analysis", NIPS 2014; a
baseline of SDT-GNN (section IV).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gnnexp.graph.stream import EdgeStream, StreamOrder, check_degrees
from gnnexp.kernels.counter import Purpose, stream
from gnnexp.kernels.partitioners.dbh import place_by_hash
from gnnexp.partitioners.streaming import Degrees, Home, NumParts, VertexCut

# Separates the hash from the shuffle with the same seed.
HASH = 2


class DbhPartitioner(VertexCut):
    """The hash of an edge's lower-degree end selects the part of the edge; on ties, the hash of the destination.

    So vertices with many edges are cut, and most others are not. The hash is the counter-based generator of all draws;
    the published artifact of SDT-GNN uses SHA-256. The load of a part is random and has no limit. Takes 4 bytes per
    vertex while edges are streamed.

    Args:
        num_parts: number of parts, `auto` for one per rank.
        degrees: `exact` degrees, which need an additional pass, or degrees `streamed` so far, with the current edge.
        order: order in which the edges of a graph are streamed: `stored` (by destination), or `shuffled`. With exact
            degrees it changes only the homes of `home=last`.
        seed: seed of the hash and of the shuffle.
        home: see `VertexCut`.
    """

    def __init__(
        self,
        num_parts: NumParts = "auto",
        degrees: Degrees = "exact",
        order: StreamOrder = "stored",
        seed: int = 0,
        home: Home = "most",
    ) -> None:
        super().__init__(num_parts, order, seed, home)
        self.degrees = degrees

    def place_all(self, stream: EdgeStream, num_parts: int, parts: np.ndarray) -> Mapping[str, float]:
        """Place all edges in one pass, by the kernel; returns no facts."""
        streamed = self.degrees == "streamed"
        degrees = np.zeros(stream.num_nodes, np.int32) if streamed else stream.degrees
        key = hash_key(self.seed)
        for chunk in stream.chunks():
            placed = np.empty(chunk.sources.size, parts.dtype)
            place_by_hash(chunk.sources, chunk.destinations, degrees, streamed, key, num_parts, placed)
            parts[chunk.positions] = placed
        check_degrees(degrees, stream.name)
        return {}


def hash_key(seed: int) -> np.uint64:
    """The key of a partitioner's hash of vertices."""
    return np.uint64(stream(seed, Purpose.PARTITION, HASH))
