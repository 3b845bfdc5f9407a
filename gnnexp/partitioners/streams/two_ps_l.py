"""2PS-L, two-phase streaming in linear time: edges by clusters of a first pass.

Source: Mayer, Orujzade, Jacobsen, "Out-of-Core Edge Partitioning at Linear Run-Time", ICDE 2022, in the form in which
its authors published it (github.com/mayerrn/two_phase_streaming); a baseline of SDT-GNN (section IV).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from gnnexp.errors import ConfigError, Problem
from gnnexp.graph.stream import EdgeStream, StreamOrder, check_record_ids
from gnnexp.kernels.partitioners import two_ps_l
from gnnexp.kernels.partitioners.spring import assign_clusters
from gnnexp.partitioners.streams.dbh import hash_key
from gnnexp.partitioners.streams.streaming import Home, NumParts, Placement, VertexCut


class TwoPsLPartitioner(VertexCut):
    """Clusters vertices in passes over the edges, gives clusters to parts, and edges to the parts of their ends.

    1. Every vertex starts as a cluster, with its degree as volume. At every edge, if neither end's cluster is larger
       than the cap, the end whose cluster is smaller without it joins the other's (the source on ties), unless that
       would grow beyond the cap.
    2. Clusters, largest volume first (lowest id on ties), go to the part with the least volume by then.
    3. Edges whose ends have clusters in one part go there.
    4. Every other edge goes to one of the parts of its ends' clusters. A part scores 1 + (1 - d(u) / (d(u) + d(v))) if
       it holds u, and vol(u) / (vol(u) + vol(v)) more, with the volumes of the ends' clusters, if u's cluster is its
       own; likewise for v. The better one takes it, the lower on ties.

    A part takes balance |E| / p edges at most (or what is needed for all edges). An edge with a full candidate goes
    where its end of the higher degree (the destination on ties) is hashed to, and if that is full to the least loaded
    part, the lowest on ties.

    Unlike the authors' program, ties of volumes go to the lower cluster instead of the higher, ties of scores to the
    lower part instead of the destination's, the hash mixes ids instead of taking them modulo p, and the cap of a part
    is one that holds all edges. The published artifact of SDT-GNN is
    max_volume=0.1, passes=2, with edges of step 4 hashed without a score.

    Takes 22 + 8 ceil(p / 64) bytes per vertex while edges are streamed.

    Args:
        num_parts: number of parts, `auto` for one per rank.
        max_volume: clusters grow up to a volume of max_volume 2|E| / p, the sum of all degrees being 2|E|.
        passes: of clustering, 1 in the authors' program unless told otherwise; each takes up where the last one ended.
        balance: edges of a part over the mean, at most; 1 or more.
        order: in which the edges of a graph are streamed: `stored` (by destination), or `shuffled`.
        seed: of the hash, and of the shuffle.
        home: see `VertexCut`.
    """

    def __init__(
        self, num_parts: NumParts = "auto", max_volume: float = 1.0, passes: int = 1, balance: float = 1.05,
        order: StreamOrder = "stored", seed: int = 0, home: Home = "most",
    ) -> None:
        super().__init__(num_parts, order, seed, home)
        self.max_volume, self.passes, self.balance = max_volume, passes, balance
        problems = [
            Problem(f"partitioner.{key}", value, f"must be {least} or more", f"set partitioner.{key}={default}")
            for key, value, least, default in (
                ("max_volume", max_volume, 0, 1.0), ("passes", passes, 1, 1), ("balance", balance, 1, 1.05))
            if not least <= value < np.inf
        ]
        if problems:
            raise ConfigError(problems)

    def place_all(self, stream: EdgeStream, num_parts: int, parts: np.ndarray) -> Mapping[str, float]:
        """Passes for degrees, for clusters and two for edges; facts: clusters with edges, and edges of step 3 and of
        overflow."""
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
                chunk.sources, chunk.destinations, records, homes, state.replicas, state.loads, capacity, key, placed)
            parts[chunk.positions] = placed
        within = int(state.loads.sum())
        for chunk in stream.chunks():
            placed = parts[chunk.positions]
            overflow += two_ps_l.place_between(
                chunk.sources, chunk.destinations, records, volumes, homes, state.replicas, state.loads, capacity, key,
                placed)
            parts[chunk.positions] = placed
        return {"clusters": float(count), "edges_within": float(within), "edges_overflowed": float(overflow)}

    def _cluster(self, stream: EdgeStream, num_parts: int) -> tuple[np.ndarray, np.ndarray]:
        """`[2 V]` records and `[V]` volumes after step 1."""
        check_record_ids(stream.num_nodes, stream.name)
        records, volumes = np.empty(two_ps_l.FIELDS * stream.num_nodes, np.int32), np.empty(stream.num_nodes, np.int64)
        two_ps_l.start(stream.degrees, records, volumes)
        max_volume = self.max_volume * 2 * stream.num_edges / num_parts
        for _ in range(self.passes):
            for chunk in stream.chunks():
                two_ps_l.cluster_edges(chunk.sources, chunk.destinations, records, volumes, max_volume)
        return records, volumes


def _parts_of_vertices(
    records: np.ndarray, volumes: np.ndarray, num_parts: int, dtype: np.dtype
) -> tuple[np.ndarray, int]:
    """Step 2: the part `[V]` of every vertex's cluster, and how many clusters have edges."""
    clusters = np.flatnonzero(volumes)
    parts = np.zeros(volumes.size, np.int32)
    order = clusters[np.argsort(-volumes[clusters], kind="stable")]
    assign_clusters(order, volumes, num_parts, parts)
    homes = np.empty(volumes.size, dtype)
    two_ps_l.parts_of_vertices(records, parts, homes)
    return homes, int(clusters.size)
