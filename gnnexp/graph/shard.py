"""What one rank holds of a graph."""

from __future__ import annotations

from dataclasses import dataclass

from gnnexp.graph.graph import Graph


@dataclass(frozen=True)
class BlockNeeds:
    """What the model wants of every block that a sampler builds.

    Attributes:
        self_loops: append an edge v -> v to every destination, on top of the graph's own and never dropped by sampling.
        edge_identity: fill `edge_ids` and `occurrence` where the graph has parallel edges (attention dropout).
        edge_types: fill `edge_types`.
    """

    self_loops: bool = False
    edge_identity: bool = False
    edge_types: bool = False


@dataclass(frozen=True)
class Shard:
    """One rank's share: with a replicated topology the whole graph.

    Attributes:
        graph: topology and vertex data within reach of this rank.
        rank: this rank.
        num_ranks: ranks in the run.
        needs: what blocks must carry.
    """

    graph: Graph
    rank: int = 0
    num_ranks: int = 1
    needs: BlockNeeds = BlockNeeds()
