"""Expected counts of a sampled batch on a configuration model, without a graph (milliseconds).

A batch grows by hops: each vertex so far draws `fanout` of its stubs. An edge that was drawn before, from either end,
leads to no new vertex. Vertices are grouped by class, and by the hop in which they were found. For each group the model
keeps the share of stubs that nobody has drawn yet (the exploration of Molloy and Reed 1995, for a large graph).

Large blocks (communities, the whole graph) have as many draws as expected. In small blocks one vertex more or less
matters: blocks are grouped by how often they were entered at each hop, a Poisson number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Poisson numbers 0, 1, 2, 3 of entries into a block, and the mean of all larger ones.
_ENTRIES = 5
_TINY = 1e-300


@dataclass(frozen=True)
class VertexClasses:
    """Classes of vertices that have the same degree, and the same chances.

    Attributes:
        share: `[K]` share of the vertices; the sum is 1.
        degree: `[K]` (in-)degree.
        weight: `[K]` out-weight, if edges have a direction: sources are drawn in its proportion. None = undirected.
    """

    share: np.ndarray
    degree: np.ndarray
    weight: np.ndarray | None = None


@dataclass(frozen=True)
class Levels:
    """How stubs are shared between levels of blocks; the rest belongs to the whole graph.

    Attributes:
        local_size: vertices of a local block.
        local: share of a vertex's stubs that are matched inside its local block.
        community: share of its stubs that are matched inside its community.
    """

    local_size: int = 128
    local: float = 0.0
    community: float = 0.0


@dataclass(frozen=True)
class Communities:
    """Groups of communities with equal chances of targets. They are so large that means describe them.

    Attributes:
        share: `[C]` share of the vertices; the sum is 1.
        target: `[C, K]` chance of a vertex to be a target of the batch.
    """

    share: np.ndarray
    target: np.ndarray


@dataclass(frozen=True)
class BatchCounts:
    """Expected counts of one batch, by hop (targets' hop first).

    Attributes:
        edges: drawn edges of each hop.
        inputs: distinct vertices after each hop.
    """

    edges: tuple[float, ...]
    inputs: tuple[float, ...]


@dataclass
class _Batch:
    """Arrays `[C, G, K]` over communities, histories of blocks, and classes; lists are over hops."""

    chance: np.ndarray  # [C, G, 1] share of all vertices
    seen: np.ndarray
    found: list[np.ndarray]
    unused: list[list[np.ndarray]]  # by level, then by hop: share of stubs that nobody has drawn


def expected_counts(
    num_nodes: int, classes: VertexClasses, levels: Levels, communities: Communities, fanouts: Sequence[int]
) -> BatchCounts:
    """Expected edges and distinct vertices of a batch, by hop.

    Args:
        num_nodes: V, number of vertices.
        classes: degrees and out-weights.
        levels: shares of the stubs by level.
        communities: where the targets are.
        fanouts: edges that each vertex draws without replacement, by hop from the targets; -1 = all.
    """
    shares = (levels.local, levels.community, 1 - levels.local - levels.community)
    batch = _targets(classes, levels, communities)
    edges, inputs = [], []
    for hop, fanout in enumerate(fanouts):
        drawn = classes.degree if fanout < 0 else np.minimum(classes.degree, fanout)
        edges.append(num_nodes * float((batch.chance * batch.seen * drawn * classes.share).sum()))
        batch = _expand(batch, classes, levels.local_size, shares, drawn, last=hop == len(fanouts) - 1)
        inputs.append(num_nodes * float((batch.chance * batch.seen * classes.share).sum()))
    return BatchCounts(tuple(edges), tuple(inputs))


def _targets(classes: VertexClasses, levels: Levels, communities: Communities) -> _Batch:
    target = np.broadcast_to(communities.target, (len(communities.share), len(classes.share)))[:, None, :]
    chance = communities.share[:, None, None]
    if levels.local > 0:
        entries = levels.local_size * (target * classes.share).sum(-1)
        likely, factor = _poisson(entries)
        chance, target = _branch(chance, likely), np.minimum(_branch(target, factor), 1.0)
    return _Batch(chance, target, [target], [[np.ones_like(target)] for _ in range(3)])


def _branch(values: np.ndarray, by_number: np.ndarray) -> np.ndarray:
    """`values` `[C, G, K]`, times `by_number` `[C, G, A]` of each number of entries: `[C, G * A, K]`."""
    product: np.ndarray = values[:, :, None, :] * by_number[..., None]
    return product.reshape(values.shape[0], -1, values.shape[-1])


def _poisson(mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Chances `[C, G, A]` of 0, 1, 2, 3 and more entries, and each number (mean of the last) over `mean`."""
    chances, numbers, chance = [], [], np.exp(-mean)
    for number in range(_ENTRIES - 1):
        chances.append(chance)
        numbers.append(np.full_like(mean, number))
        chance = chance * mean / (number + 1)
    rest = np.maximum(1 - sum(chances), 0.0)
    above = mean - sum(chance * number for chance, number in zip(chances, numbers, strict=True))
    numbers.append(np.where(rest > 1e-9, above / np.maximum(rest, 1e-9), _ENTRIES - 1))
    return np.stack([*chances, rest], -1), np.stack(numbers, -1) / np.maximum(mean, _TINY)[..., None]


def _expand(
    batch: _Batch, classes: VertexClasses, local_size: int, shares: Sequence[float], drawn: np.ndarray, last: bool
) -> _Batch:
    """One hop: chances of vertices to be found, and which stubs are used up."""
    rates = _rates(batch, classes, shares, drawn)
    if shares[0] > 0 and not last:
        outside = rates[1].hits + rates[2].hits
        likely, factor = _poisson(local_size * (outside * classes.share).sum(-1))
        batch, rates = _split(batch, rates, likely, factor)
    hits = sum(rate.hits for rate in rates)
    new = (1 - batch.seen) * -np.expm1(-hits)
    several = hits / np.maximum(-np.expm1(-hits), _TINY)  # drawn edges to a vertex that was found, on average
    kept = 1 - drawn / np.maximum(classes.degree, _TINY)
    for level, rate in enumerate(rates):
        own = kept * np.exp(-rate.drawn_each) if classes.weight is None else kept
        batch.unused[level] = [unused * own for unused in batch.unused[level]]
        fresh = np.ones_like(new)
        if classes.weight is None and shares[level] > 0:
            used = several * rate.hits / np.maximum(hits, _TINY) / np.maximum(shares[level] * classes.degree, _TINY)
            fresh = np.clip(1 - used, 0.0, 1.0)
        batch.unused[level].append(fresh)
    return _Batch(batch.chance, batch.seen + new, [*batch.found, new], batch.unused)


@dataclass(frozen=True)
class _Rate:
    """What a level's draws hit: expected hits `[C, G, K]` of an unseen vertex, and of each unused stub."""

    hits: np.ndarray
    drawn_each: np.ndarray


def _rates(batch: _Batch, classes: VertexClasses, shares: Sequence[float], drawn: np.ndarray) -> list[_Rate]:
    return [_rate(batch, classes, level, share, drawn) for level, share in enumerate(shares)]


def _rate(batch: _Batch, classes: VertexClasses, level: int, share: float, drawn: np.ndarray) -> _Rate:
    open_stubs = [found * unused for found, unused in zip(batch.found, batch.unused[level], strict=True)]
    draws = _mean(share * sum(open_stubs) * drawn, batch, classes, level)
    if classes.weight is not None:
        each = draws / max(float((classes.weight * classes.share).sum()), _TINY)
        return _Rate(each * classes.weight * np.ones_like(batch.seen), each)
    left = _mean(share * (1 - batch.seen + sum(open_stubs)) * classes.degree, batch, classes, level)
    each = draws / np.maximum(left, _TINY)
    return _Rate(each * share * classes.degree * np.ones_like(batch.seen), each)


def _mean(values: np.ndarray, batch: _Batch, classes: VertexClasses, level: int) -> np.ndarray:
    """Mean over vertices of a block, of a community, or of the graph: `[C, G, 1]`, `[C, 1, 1]`, `[1, 1, 1]`."""
    by_block: np.ndarray = (values * classes.share).sum(-1, keepdims=True)
    if level == 0:
        return by_block
    over = (1,) if level == 1 else (0, 1)
    total: np.ndarray = batch.chance.sum(over, keepdims=True)
    mean: np.ndarray = (by_block * batch.chance).sum(over, keepdims=True) / np.maximum(total, _TINY)
    return mean


def _split(batch: _Batch, rates: list[_Rate], likely: np.ndarray, factor: np.ndarray) -> tuple[_Batch, list[_Rate]]:
    """Every history of blocks, followed by each number of entries at this hop."""
    same = np.ones_like(likely)
    changed = _Batch(
        _branch(batch.chance, likely),
        _branch(batch.seen, same),
        [_branch(new, same) for new in batch.found],
        [[_branch(unused, same) for unused in level] for level in batch.unused],
    )
    local = _Rate(_branch(rates[0].hits, same), _branch(rates[0].drawn_each, same))
    outside = [_Rate(_branch(rate.hits, factor), _wide(rate.drawn_each, likely)) for rate in rates[1:]]
    return changed, [local, *outside]


def _wide(values: np.ndarray, likely: np.ndarray) -> np.ndarray:
    return _branch(np.broadcast_to(values, (*likely.shape[:2], 1)), np.ones_like(likely))
