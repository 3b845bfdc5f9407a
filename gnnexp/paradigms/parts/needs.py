"""What training part by part holds at once: the largest part, the next one beside it, and a model for each."""

from __future__ import annotations

from collections.abc import Sequence

from gnnexp.experiment.plan import Drawn, GraphFacts, Need
from gnnexp.graph.parts import BYTES_PER_EDGE, BYTES_PER_TYPED_EDGE, PartSizes


def least_sizes(facts: GraphFacts, parts: int) -> list[PartSizes]:
    """Of `parts` parts that are not cut yet: the largest one has no less than an even share, without any halo."""
    totals = facts.num_nodes, facts.num_nodes, facts.num_edges, facts.num_train
    return [PartSizes(*(-(-total // parts) for total in totals))] * parts


def at_once(sizes: Sequence[PartSizes], ranks: int) -> list[PartSizes]:
    """The largest parts that a rank may have in memory: one, and while it is trained the next one of several."""
    return sorted(sizes, key=lambda size: (size.vertices, size.edges))[-2 if len(sizes) > ranks else -1 :]


def drawn_from_parts(sizes: Sequence[PartSizes], ranks: int, batch_size: int | None) -> Drawn:
    """What batches are drawn from.

    Args:
        sizes: of every part.
        ranks: q.
        batch_size: targets of a part's batch, None for all.
    """
    train = max(size.train for size in sizes)
    return Drawn(
        vertices=max(size.vertices for size in sizes), edges=max(size.edges for size in sizes),
        targets=min(batch_size or train, train), held=sum(size.vertices for size in at_once(sizes, ranks)),
        models=-(-len(sizes) // ranks),
    )


def topology_bytes(facts: GraphFacts, size: PartSizes) -> int:
    """Of a part: edges, their types, and the ids of its vertices and of its own."""
    name = facts.id_bytes
    edge = name + 4 if facts.typed else name
    return 8 * (size.vertices + 1) + edge * size.edges + name * size.vertices + 8 * size.owned


def feature_bytes(facts: GraphFacts, size: PartSizes) -> int:
    """Of a part, its halo included, in its file; of sparse rows, with the mean entries of a row."""
    return facts.row_bytes(4) * size.vertices


def part_needs(facts: GraphFacts, sizes: Sequence[PartSizes], ranks: int) -> list[Need]:
    """Topology and ids are in memory, features and labels are mapped; cutting comes before any rank starts."""
    held, most = at_once(sizes, ranks), max(size.edges for size in sizes)
    cutting = BYTES_PER_TYPED_EDGE if facts.typed else BYTES_PER_EDGE
    return [
        Need(f"topology of {len(held)} parts" if len(held) > 1 else "topology of a part", "host",
             sum(topology_bytes(facts, size) for size in held)),
        Need("features of parts, mapped", "shared", sum(feature_bytes(facts, size) for size in held)),
        Need("cutting the parts", "host", 9 * facts.num_nodes + cutting * most, per_rank=False),
    ]
