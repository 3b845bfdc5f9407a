import numpy as np
import pytest

from gnnexp.datasets.generated.degrees import DegreeModel, quantiles
from gnnexp.datasets.generated.mean_field import BatchCounts, Communities, Levels, VertexClasses, expected_counts

V = 24_000
FANOUTS = (8, 8, 8)


def degrees_of(sigma: float, zeros: float = 0.0) -> np.ndarray:
    model = DegreeModel(mean=15.0, sigma=sigma, largest=2000, zeros=zeros)
    rng = np.random.default_rng(1)
    drawn: np.ndarray = rng.permutation(np.floor(quantiles(model, V) + rng.random(V)).astype(np.int64))
    return drawn


def classes_of(degrees: np.ndarray) -> VertexClasses:
    values, counts = np.unique(degrees, return_counts=True)
    return VertexClasses(counts / V, values.astype(np.float64))


def matched(degrees: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Both ends of all edges: stubs are matched at random inside blocks."""
    rng, owners = np.random.default_rng(2), np.repeat(np.arange(V), degrees)
    order = np.lexsort((rng.random(len(owners)), owners // block))
    shuffled = owners[order]
    edges = [
        np.stack([part[0 : len(part) // 2 * 2 : 2], part[1 : len(part) // 2 * 2 : 2]])
        for part in np.split(shuffled, np.flatnonzero(np.diff(shuffled // block)) + 1)
    ]
    left, right = np.concatenate(edges, axis=1)
    return np.concatenate([left, right]), np.concatenate([right, left])


def counted(ends: tuple[np.ndarray, np.ndarray], targets: list[np.ndarray]) -> BatchCounts:
    """Edges and distinct vertices by hop of sampled batches, on average: a plain sampler as a second opinion."""
    order = np.argsort(ends[0], kind="stable")
    sources, bounds = ends[1][order], np.searchsorted(ends[0][order], np.arange(V + 1))
    rng, edges, inputs = np.random.default_rng(3), np.zeros((len(targets), 3)), np.zeros((len(targets), 3))
    for batch, seen in enumerate(targets):
        for hop, fanout in enumerate(FANOUTS):
            drawn = [sources[bounds[v] : bounds[v + 1]] for v in seen]
            drawn = [own if len(own) <= fanout else rng.choice(own, fanout, replace=False) for own in drawn]
            edges[batch, hop] = sum(map(len, drawn))
            seen = np.unique(np.concatenate([seen, *drawn]))
            inputs[batch, hop] = len(seen)
    return BatchCounts(tuple(edges.mean(0)), tuple(inputs.mean(0)))


def uniform(batch: int, repeats: int = 6) -> tuple[Communities, list[np.ndarray]]:
    rng = np.random.default_rng(4)
    drawn = [rng.choice(V, batch, replace=False) for _ in range(repeats)]
    return Communities(np.ones(1), np.full((1, 1), batch / V)), drawn


def check(counts: BatchCounts, real: BatchCounts, error: float) -> None:
    assert counts.edges == pytest.approx(real.edges, rel=error)
    assert counts.inputs == pytest.approx(real.inputs, rel=error)


@pytest.mark.parametrize(("sigma", "zeros"), [(0.3, 0.0), (1.2, 0.0), (1.0, 0.3), (2.0, 0.0)])
@pytest.mark.parametrize("batch", [40, 400])
def test_counts_are_those_of_sampled_graphs(sigma: float, zeros: float, batch: int) -> None:
    degrees = degrees_of(sigma, zeros)
    communities, targets = uniform(batch, repeats=max(3, 800 // batch))
    counts = expected_counts(V, classes_of(degrees), Levels(), communities, FANOUTS)
    check(counts, counted(matched(degrees, V), targets), 0.06)


@pytest.mark.parametrize("local", [0.2, 0.5])
def test_local_blocks_lower_the_distinct_vertices_as_in_sampled_graphs(local: float) -> None:
    degrees = degrees_of(0.8)
    inside = np.floor(local * degrees + np.random.default_rng(5).random(V)).astype(np.int64)
    near, far = matched(inside, 64), matched(degrees - inside, V)
    communities, targets = uniform(40, repeats=20)
    classes = classes_of(degrees)
    counts = expected_counts(V, classes, Levels(64, local), communities, FANOUTS)
    real = counted((np.concatenate([near[0], far[0]]), np.concatenate([near[1], far[1]])), targets)
    check(counts, real, 0.06)
    assert counts.inputs[-1] < 0.99 * expected_counts(V, classes, Levels(), communities, FANOUTS).inputs[-1]


def test_targets_in_communities_meet_fewer_vertices_as_in_sampled_graphs() -> None:
    degrees, size = degrees_of(0.8), V // 10
    rng = np.random.default_rng(6)
    inside = np.floor(0.8 * degrees + rng.random(V)).astype(np.int64)
    near, far = matched(inside, size), matched(degrees - inside, V)
    targets = [rng.choice(size, 100, replace=False) for _ in range(8)]
    communities = Communities(np.array([0.1, 0.9]), np.array([[100 / size], [0.0]]))
    counts = expected_counts(V, classes_of(degrees), Levels(community=0.8), communities, FANOUTS)
    real = counted((np.concatenate([near[0], far[0]]), np.concatenate([near[1], far[1]])), targets)
    check(counts, real, 0.05)


def test_directed_sources_follow_their_weights() -> None:
    rng, degrees = np.random.default_rng(7), degrees_of(0.8, zeros=0.3)
    weights = rng.choice([1.0, 10.0], V)
    into = np.repeat(np.arange(V), degrees)
    sources = rng.choice(V, len(into), p=weights / weights.sum())
    values, counts = np.unique(degrees, return_counts=True)
    classes = VertexClasses(
        np.concatenate([counts, counts]) / V / 2, np.tile(values, 2).astype(float), np.repeat([1.0, 10.0], len(values))
    )
    communities, targets = uniform(60, repeats=100)
    expected = expected_counts(V, classes, Levels(), communities, FANOUTS)
    check(expected, counted((into, sources), targets), 0.06)


def test_counts_that_are_known_exactly() -> None:
    regular = VertexClasses(np.ones(1), np.array([6.0]))
    far = Communities(np.ones(1), np.full((1, 1), 1e-9))
    counts = expected_counts(10**12, regular, Levels(), far, (-1, -1))
    # A tree: a target has 6 neighbours, each of them 5 others. Both hops count the target's edges.
    assert counts.edges == pytest.approx((6e3, 42e3), rel=1e-4)
    assert counts.inputs == pytest.approx((7e3, 37e3), rel=1e-4)
    whole = expected_counts(100, regular, Levels(), Communities(np.ones(1), np.ones((1, 1))), (3,))
    assert whole.edges == pytest.approx((300.0,)) and whole.inputs == pytest.approx((100.0,))
