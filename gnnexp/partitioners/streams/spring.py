"""SPRING, the streaming vertex partitioner of SDT-GNN (section III-B, Algorithm 1)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from gnnexp.errors import ConfigError, Problem
from gnnexp.graph.partition import owner_dtype
from gnnexp.graph.stream import EdgeStream, StreamOrder, check_degrees, check_record_ids
from gnnexp.kernels.partitioners import spring
from gnnexp.partitioners.base import Owners
from gnnexp.partitioners.streams.streaming import NumParts, StreamPartitioner


class SpringPartitioner(StreamPartitioner):
    """Clusters from one pass over the edges, merged by richest neighbours, largest first to the emptiest part.

    Takes 28 bytes per vertex while edges are streamed (4 for degrees, 16 for records, 8 for volumes; 4 more with
    `bound_sizes`), then 20 and 24 per cluster.

    Args:
        num_parts: number of parts, `auto` for one per rank.
        alpha: clusters move vertices up to a volume of alpha 2m / p, which the paper leaves open; 0.1 is the published
            artifact's. Larger ones find larger clusters and lose the balance of vertices.
        beta: clusters are merged up to beta V / p vertices (1.05 in the paper).
        bound_sizes: while edges are streamed no cluster takes more than beta V / p vertices either. Algorithm 1 does
            not bound them: few edges make a large volume only where degrees are large.
        degrees: `exact` ones, which take a pass of their own, or those `streamed` so far.
        order: in which the edges of a graph are streamed: `stored` (by destination), or `shuffled`.
        seed: of the shuffle.
    """

    def __init__(
        self, num_parts: NumParts = "auto", alpha: float = 0.1, beta: float = 1.05, bound_sizes: bool = True,
        degrees: Literal["exact", "streamed"] = "exact", order: StreamOrder = "stored", seed: int = 0,
    ) -> None:
        super().__init__(num_parts, order, seed)
        self.alpha, self.beta, self.bound_sizes, self.degrees = alpha, beta, bound_sizes, degrees
        problems = [
            Problem(f"partitioner.{key}", value, f"must be {least} or more", f"set partitioner.{key}={default}")
            for key, value, least, default in (("alpha", alpha, 0, 0.1), ("beta", beta, 1, 1.05))
            if not value >= least
        ]
        if problems:
            raise ConfigError(problems)

    def assign_stream(self, stream: EdgeStream, num_parts: int) -> Owners:
        """Algorithm 1; facts: clusters before and after merging, number, mean and deviation of sizes (Table II)."""
        most = self.beta * stream.num_nodes / num_parts
        records = self._cluster(stream, num_parts, most)
        count = spring.number_clusters(records, np.empty(stream.num_nodes, np.int32))
        sizes, richest, representatives, joined = (np.empty(count, np.int32) for _ in range(4))
        spring.describe_clusters(records, sizes, richest, representatives, self.degrees == "streamed")
        facts = _described("clustered", sizes)
        spring.merge_clusters(records, sizes, richest, representatives, joined, most)
        del richest, representatives
        facts |= _described("merged", sizes)
        parts = np.zeros(count, np.int32)
        spring.assign_clusters(np.argsort(-sizes, kind="stable"), sizes, num_parts, parts)
        owners = np.empty(stream.num_nodes, torch.zeros(0, dtype=owner_dtype(num_parts)).numpy().dtype)
        spring.owners_of_vertices(records, joined, parts, owners)
        return Owners(torch.from_numpy(owners), None, facts)

    def _cluster(self, stream: EdgeStream, num_parts: int, most: float) -> np.ndarray:
        """`[4 V]` records after the pass over the edges."""
        V, streamed = stream.num_nodes, self.degrees == "streamed"
        check_record_ids(V, stream.name)
        records, volumes = np.empty(spring.FIELDS * V, np.int32), np.empty(V, np.int64)
        spring.start(np.zeros(V, np.int32) if streamed else stream.degrees, records, volumes)
        sizes = np.ones(V if self.bound_sizes else 0, np.int32)
        max_volume = self.alpha * 2 * stream.num_edges / num_parts
        for chunk in stream.chunks():
            spring.cluster_edges(chunk.sources, chunk.destinations, records, volumes, sizes, max_volume, most, streamed)
        check_degrees(records[spring.DEGREE :: spring.FIELDS], stream.name)
        return records


def _described(when: str, sizes: np.ndarray) -> dict[str, float]:
    kept = sizes[sizes > 0]
    return {f"clusters_{when}/count": float(kept.size), f"clusters_{when}/mean_size": float(kept.mean()),
            f"clusters_{when}/std_size": float(kept.std())}
