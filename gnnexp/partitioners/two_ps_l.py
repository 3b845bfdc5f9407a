"""2PS-L, two-phase streaming in linear time: clusters of a first pass decide the parts of edges.

Source: Mayer, Orujzade, Jacobsen, "Out-of-Core Edge Partitioning at Linear Run-Time", ICDE 2022, in the form in which
its authors published it (github.com/mayerrn/two_phase_streaming); a baseline of SDT-GNN (section IV).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from gnnexp.errors import ConfigError
from gnnexp.graph.stream import EdgeStream, StreamOrder, check_record_ids
from gnnexp.kernels.partitioners import two_ps_l
from gnnexp.kernels.partitioners.spring import assign_clusters
from gnnexp.partitioners.base import too_small_problems
from gnnexp.partitioners.dbh import hash_key
from gnnexp.partitioners.streaming import Home, NumParts, Placement, VertexCut


class TwoPsLPartitioner(VertexCut):
    """Clusters vertices in passes over the edges, assigns clusters to parts, and edges to the parts of their ends.

    1. Every vertex starts as a cluster, with its degree as volume. For every edge, one end joins the cluster of the
       other end. The end that moves has the smaller cluster, measured without that end; on ties it is the source. No
       end moves if one of the clusters exceeds the volume limit, or would exceed it.
    2. Clusters come by volume, largest first (lowest id on ties). Each goes to the part with the least volume then.
    3. Edges whose ends have clusters in the same part go to that part.
    4. Every other edge (u, v) goes to one of the two parts of its ends' clusters: the one with the higher score, the
       lower part on ties. A part that holds u scores 1 + (1 - d(u) / (d(u) + d(v))). If the cluster of u is in that
       part too, vol(u) / (vol(u) + vol(v)) is added, with the volumes of the ends' clusters. The same applies to v.

    A part takes balance |E| / p edges at most, or |E| / p rounded up if that is more. An edge with a full candidate
    goes to the part that the hash of its higher-degree end (the destination on ties) selects. If that part is full too,
    the edge goes to the least loaded part, the lowest on ties.

    There are four differences to the authors' program. Ties of volumes go to the lower cluster instead of the higher.
    Ties of scores go to the lower part instead of the destination's part. The hash mixes ids instead of taking them
    modulo p. The limit of a part is never too low to hold all edges. The published artifact of SDT-GNN uses
    max_volume=0.1 and passes=2, and hashes the edges of step 4 without a score.

    Takes 22 + 8 ceil(p / 64) bytes per vertex while edges are streamed.

    Args:
        num_parts: number of parts, `auto` for one per rank.
        max_volume: clusters grow up to a volume of max_volume 2|E| / p; the sum of all degrees is 2|E|.
        passes: number of passes that cluster vertices; each continues the result of the pass before. The authors'
            program uses 1 by default.
        balance: most edges of a part over the mean; 1 or more.
        order: order in which the edges of a graph are streamed: `stored` (by destination), or `shuffled`.
        seed: seed of the hash and of the shuffle.
        home: see `VertexCut`.
    """

    def __init__(
        self,
        num_parts: NumParts = "auto",
        max_volume: float = 1.0,
        passes: int = 1,
        balance: float = 1.05,
        order: StreamOrder = "stored",
        seed: int = 0,
        home: Home = "most",
    ) -> None:
        super().__init__(num_parts, order, seed, home)
        self.max_volume, self.passes, self.balance = max_volume, passes, balance
        ConfigError.raise_all(
            too_small_problems(
                [("max_volume", max_volume, 0, 1.0), ("passes", passes, 1, 1), ("balance", balance, 1, 1.05)]
            )
        )

    def place_all(self, stream: EdgeStream, num_parts: int, parts: np.ndarray) -> Mapping[str, float]:
        """Place all edges, in passes for degrees, for clusters, and two for edges.

        Returns facts: the number of clusters with edges, of edges placed in step 3, and of edges with a full candidate.
        """
        if not parts.size:
            return {}
        records, volumes = self._cluster(stream, num_parts)
        homes, count = _parts_of_vertices(records, volumes, num_parts, parts.dtype)
        capacity = max(-(-parts.size // num_parts), math.floor(self.balance * parts.size / num_parts))
        state, key = Placement.empty(stream.degrees, num_parts), hash_key(self.seed)
        overflow = 0
        for chunk in stream.chunks():
            placed = np.empty(chunk.sources.size, parts.dtype)
            overflow += two_ps_l.place_within(
                chunk.sources, chunk.destinations, records, homes, state.replicas, state.loads, capacity, key, placed
            )
            parts[chunk.positions] = placed
        within = int(state.loads.sum())
        for chunk in stream.chunks():
            placed = parts[chunk.positions]
            overflow += two_ps_l.place_between(
                chunk.sources,
                chunk.destinations,
                records,
                volumes,
                homes,
                state.replicas,
                state.loads,
                capacity,
                key,
                placed,
            )
            parts[chunk.positions] = placed
        return {"clusters": float(count), "edges_within": float(within), "edges_overflowed": float(overflow)}

    def _cluster(self, stream: EdgeStream, num_parts: int) -> tuple[np.ndarray, np.ndarray]:
        """The records `[2 V]` of vertices and the volumes `[V]` of clusters after step 1."""
        check_record_ids(stream.num_nodes, stream.name)
        records, volumes = np.empty(two_ps_l.FIELDS * stream.num_nodes, np.int32), np.empty(stream.num_nodes, np.int64)
        two_ps_l.put_alone(stream.degrees, records, volumes)
        max_volume = self.max_volume * 2 * stream.num_edges / num_parts
        for _ in range(self.passes):
            for chunk in stream.chunks():
                two_ps_l.cluster_by_volume(chunk.sources, chunk.destinations, records, volumes, max_volume)
        return records, volumes


def _parts_of_vertices(
    records: np.ndarray, volumes: np.ndarray, num_parts: int, dtype: np.dtype
) -> tuple[np.ndarray, int]:
    """Step 2: the part `[V]` of every vertex's cluster, and the number of clusters with edges."""
    clusters = np.flatnonzero(volumes)
    parts = np.zeros(volumes.size, np.int32)
    order = clusters[np.argsort(-volumes[clusters], kind="stable")]
    assign_clusters(order, volumes, num_parts, parts)
    homes = np.empty(volumes.size, dtype)
    two_ps_l.parts_of_vertices(records, parts, homes)
    return homes, int(clusters.size)
