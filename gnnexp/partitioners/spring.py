"""SPRING, the streaming vertex partitioner of SDT-GNN (section III-B, Algorithm 1)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from gnnexp.errors import ConfigError
from gnnexp.graph.partition import owner_dtype
from gnnexp.graph.stream import EdgeStream, StreamOrder, check_degrees, check_record_ids
from gnnexp.kernels.partitioners import spring
from gnnexp.partitioners.base import Owners, too_small_problems
from gnnexp.partitioners.streaming import NumParts, StreamPartitioner


class SpringPartitioner(StreamPartitioner):
    """Clusters come from one pass over the edges, and are merged by richest neighbours; each goes to the emptiest part.

    The largest cluster goes first.

    Takes 28 bytes per vertex while edges are streamed (4 for degrees, 16 for records, 8 for volumes; 4 more with
    `bound_sizes`). Afterwards it takes 20 bytes per vertex and 24 bytes per cluster.

    Args:
        num_parts: number of parts, `auto` for one per rank.
        alpha: clusters exchange vertices up to a volume of alpha 2m / p. The paper gives no value; 0.1 is the value of
            the published artifact. Larger values give larger clusters and a worse balance of vertices.
        beta: clusters are merged up to beta V / p vertices (1.05 in the paper).
        bound_sizes: whether clusters are limited to beta V / p vertices also while edges are streamed. Algorithm 1 has
            no such limit, and a cluster of many vertices with low degrees has a small volume.
        degrees: `exact` degrees, which need an additional pass, or degrees `streamed` so far.
        order: order in which the edges of a graph are streamed: `stored` (by destination), or `shuffled`.
        seed: seed of the shuffle.
    """

    def __init__(
        self,
        num_parts: NumParts = "auto",
        alpha: float = 0.1,
        beta: float = 1.05,
        bound_sizes: bool = True,
        degrees: Literal["exact", "streamed"] = "exact",
        order: StreamOrder = "stored",
        seed: int = 0,
    ) -> None:
        super().__init__(num_parts, order, seed)
        self.alpha, self.beta, self.bound_sizes, self.degrees = alpha, beta, bound_sizes, degrees
        ConfigError.raise_all(too_small_problems([("alpha", alpha, 0, 0.1), ("beta", beta, 1, 1.05)], infinite=True))

    def assign_stream(self, stream: EdgeStream, num_parts: int) -> Owners:
        """Owners by Algorithm 1; facts: number, mean size and standard deviation of clusters before and after merging.

        Table II of the paper has these figures.
        """
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
        """The records `[4 V]` of vertices after the pass over the edges."""
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
    return {
        f"clusters_{when}/count": float(kept.size),
        f"clusters_{when}/mean_size": float(kept.mean()),
        f"clusters_{when}/std_size": float(kept.std()),
    }
