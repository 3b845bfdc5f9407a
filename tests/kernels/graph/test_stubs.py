import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.graph.stubs import StubEdges
from gnnexp.kernels.compiled import compiled
from gnnexp.kernels.graph.stubs import partners, position

keys = st.integers(0, 2**64 - 1)


@compiled()
def positions(low: int, high: int, total: int, key: np.uint64) -> np.ndarray:
    found = np.empty(high - low, np.int64)
    for i in range(found.size):
        found[i] = position(low + i, low, high, total, key)
    return found


@given(st.integers(0, 2**40), st.integers(1, 2000), keys)
def test_partners_are_an_involution_within_the_block(low: int, count: int, key: int) -> None:
    found = partners(low, low + count, np.uint64(key))
    assert found.min() >= low and found.max() < low + count
    assert np.array_equal(found[found - low], low + np.arange(count))
    assert (found == low + np.arange(count)).sum() == count % 2, "an odd block has one loop, an even block none"


def test_any_two_stubs_are_partners_equally_often() -> None:
    pairs = np.zeros((8, 8))
    for key in range(1400):
        pairs[np.arange(8), partners(0, 8, np.uint64(key * 31337))] += 1
    assert (np.diag(pairs) == 0).all()
    upper = pairs[np.triu_indices(8, 1)]
    # Expected 200 each; chi square of about 27 degrees of freedom, deviation 7.3.
    assert ((upper - 200) ** 2 / 200).sum() < 27 + 4 * 7.3


@given(st.integers(1, 500), st.integers(1, 2**50), keys)
def test_in_stubs_are_spread_evenly_over_the_weights(count: int, total: int, key: int) -> None:
    found = np.sort(positions(3, 3 + count, total, np.uint64(key)))
    assert found[0] >= 0 and found[-1] < total
    steps = np.diff(found)
    assert not steps.size or (steps.min() >= total // count and steps.max() <= total // count + 1)


@pytest.mark.parametrize("directed", [False, True])
def test_the_owner_of_a_stub_is_found_among_places_without_stubs(directed: bool) -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 9, (2, 1000)) * (rng.random((2, 1000)) < 0.1)
    counts[:, -5:] = 0
    bounds = np.zeros((2, 1001), np.int64)
    np.cumsum(counts, axis=1, out=bounds[:, 1:])
    weights = np.concatenate([[0], np.cumsum(rng.integers(1, 10**6, 1000))]) if directed else None
    edges = StubEdges(bounds, weights, (100, 1000), (1, 2))
    _, sources = edges.rows(edges.indptr(), 0, 1000)
    expected, place = [], 0
    for place in range(1000):
        for level, size in enumerate(edges.sizes):
            first = place // size * size
            low, high = bounds[level, first], bounds[level, first + size]
            for stub in range(bounds[level, place], bounds[level, place + 1]):
                key = np.uint64(edges.keys[level])
                if weights is None:
                    wanted, ends = partners(low, high, key)[stub - low], bounds[level]
                else:
                    total = weights[first + size] - weights[first]
                    wanted, ends = weights[first] + positions(low, high, total, key)[stub - low], weights
                expected.append(int(np.searchsorted(ends, wanted, side="right")) - 1)
    assert sources.tolist() == expected
