"""Memory of training part by part: the largest part, the next part during its training, and a model for each part."""

from __future__ import annotations

from collections.abc import Sequence

from gnnexp.components.facts import GraphFacts, Need
from gnnexp.components.plan import Drawn
from gnnexp.graph.parts import BYTES_PER_EDGE, BYTES_PER_TYPED_EDGE, PartSizes


def least_sizes(facts: GraphFacts, parts: int) -> list[PartSizes]:
    """Sizes of parts that are not cut yet: even shares without halo, a lower bound of the largest part."""
    totals = facts.num_nodes, facts.num_nodes, facts.num_edges, facts.num_train
    return [PartSizes(*(-(-total // parts) for total in totals))] * parts


def at_once(sizes: Sequence[PartSizes], ranks: int) -> list[PartSizes]:
    """The largest parts that a rank may have in memory: one, or two if it prefetches the next part."""
    return sorted(sizes, key=lambda size: (size.vertices, size.edges))[-2 if len(sizes) > ranks else -1 :]


def drawn_from_parts(sizes: Sequence[PartSizes], ranks: int, batch_size: int | None) -> Drawn:
    """Sizes of what batches are drawn from.

    Args:
        sizes: sizes of every part.
        ranks: q, number of ranks.
        batch_size: number of targets of a part's batch; None: all.
    """
    train = max(size.train for size in sizes)
    return Drawn(
        vertices=max(size.vertices for size in sizes),
        edges=max(size.edges for size in sizes),
        targets=min(batch_size or train, train),
        held=sum(size.vertices for size in at_once(sizes, ranks)),
        models=-(-len(sizes) // ranks),
    )


def topology_bytes(facts: GraphFacts, size: PartSizes) -> int:
    """Bytes of a part's topology: edges, types and weights, and the ids of all its vertices and of its own vertices."""
    name = facts.id_bytes
    edge = name + 4 * (facts.typed + facts.weighted)
    return 8 * (size.vertices + 1) + edge * size.edges + name * size.vertices + 8 * size.owned


def feature_bytes(facts: GraphFacts, size: PartSizes) -> int:
    """Bytes of a part's features in its file, with the halo. Sparse rows have the mean number of entries."""
    return facts.row_bytes(4) * size.vertices


def part_needs(facts: GraphFacts, sizes: Sequence[PartSizes], ranks: int) -> list[Need]:
    """Memory: topology and ids are in memory, features are mapped. Parts are cut before ranks start."""
    held, most = at_once(sizes, ranks), max(size.edges for size in sizes)
    cutting = BYTES_PER_TYPED_EDGE + 8 * facts.weighted if facts.typed or facts.weighted else BYTES_PER_EDGE
    return [
        Need(
            f"topology of {len(held)} parts" if len(held) > 1 else "topology of a part",
            "host",
            sum(topology_bytes(facts, size) for size in held),
        ),
        Need("features of parts, mapped", "shared", sum(feature_bytes(facts, size) for size in held)),
        Need("cutting the parts", "host", 9 * facts.num_nodes + cutting * most, per_rank=False),
    ]
