"""The sampling kernels: the documented draws, their uniformity and independence, relabelling."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference_sampling import floyd, vertex_key
from scipy import stats

from gnnexp.kernels.counter import GOLDEN, Purpose, stream
from gnnexp.kernels.samplers import sample

ALL_BITS = np.uint64(2**64 - 1)
# Every statistical test has a fixed seed: below this p-value, the draws are wrong (about 2000 tests in all).
P_VALUE = 1e-8


def offsets(vertices: np.ndarray, degree: int, fanout: int, key: int, ring: bool = False) -> np.ndarray:
    """`[N, f]` offsets that vertices of equal degree draw: `indices` of the graph are the offsets themselves."""
    size = int(vertices.max()) + 1
    indptr = np.arange(size + 1, dtype=np.int64) * degree
    indices = np.tile(np.arange(degree, dtype=np.int32), size)
    count, taken = vertices.size, min(degree, fanout)
    starts, room, block_indptr = np.empty(count, np.int64), np.empty(count, np.uint32), np.empty(count + 1, np.int64)
    total = sample.count_hop(indptr, vertices, 0, count, fanout, 0, starts, room, block_indptr)
    assert total == count * taken
    width = sample.round_width(fanout)
    space = 1 << (2 * width * fanout - 1).bit_length() if ring else total
    found = np.empty(total, np.int32)
    sample.sample_hop(
        indices,
        vertices,
        vertices[:0],
        0,
        count,
        fanout,
        0,
        np.uint64(key),
        starts,
        room,
        block_indptr,
        np.empty(sample.ROUND, np.uint64),
        np.empty(fanout * width, np.uint32),
        np.zeros(degree, np.uint8),
        np.empty(space, np.int64),
        np.uint64(space - 1) if ring else ALL_BITS,
        found,
    )
    return found.reshape(count, taken)


LARGE = sample.LARGE_FANOUT


@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize(
    ("degree", "fanout"),
    [(1, 1), (2, 1), (7, 5), (8, 8), (9, 8), (300, 20), (140, LARGE - 1), (140, LARGE), (400, LARGE + 170)],
)
def test_draws_are_those_of_the_definition(degree: int, fanout: int, ring: bool) -> None:
    key = stream(5, Purpose.SAMPLE, degree)
    vertices = np.random.default_rng(0).permutation(100)[:71].astype(np.int32)  # two rounds and a bit
    drawn = offsets(vertices, degree, fanout, key, ring)
    for row, vertex in zip(drawn.tolist(), vertices.tolist(), strict=True):
        assert row == floyd(vertex_key(key, vertex), degree, fanout)
        assert len(set(row)) == min(degree, fanout)


@pytest.mark.parametrize(
    ("degree", "fanout"),
    [
        (2, 1),
        (3, 1),
        (3, 2),
        (6, 5),
        (16, 15),
        (16, 5),
        (17, 10),
        (40, 20),
        (200, 5),
        (1000, 1),
        (140, LARGE - 1),
        (140, LARGE),
        (150, 130),
    ],
)
def test_every_neighbour_is_equally_likely(degree: int, fanout: int) -> None:
    num = 4000 if fanout > 100 else 40_000
    drawn = offsets(np.arange(num, dtype=np.int32), degree, fanout, stream(1, Purpose.SAMPLE, 0, 0, -1, 0))
    counts, chance = np.bincount(drawn.ravel(), minlength=degree), fanout / degree
    # Counts of a sample without replacement have covariance N p (1 - p) d / (d - 1) (I - J / d).
    scale = num * chance * (1 - chance) * degree / (degree - 1)
    assert stats.chi2.sf(((counts - num * chance) ** 2).sum() / scale, degree - 1) > P_VALUE


@pytest.mark.parametrize(("degree", "fanout"), [(4, 2), (5, 2), (5, 3), (7, 3), (8, 5), (9, 1)])
def test_every_subset_is_equally_likely(degree: int, fanout: int) -> None:
    drawn = offsets(np.arange(40_000, dtype=np.int32), degree, fanout, stream(2, Purpose.SAMPLE, 7))
    subsets = {subset: number for number, subset in enumerate(combinations(range(degree), fanout))}
    seen = [subsets[tuple(sorted(row))] for row in drawn.tolist()]
    assert stats.chisquare(np.bincount(seen, minlength=len(subsets))).pvalue > P_VALUE


# A source of draws: (epoch, step, micro, hop, vertices [N], degree, fanout) -> offsets [N, f].
Source = Callable[[int, int, int, int, np.ndarray, int, int], np.ndarray]


def ours(epoch: int, step: int, micro: int, hop: int, vertices: np.ndarray, degree: int, fanout: int) -> np.ndarray:
    return offsets(vertices, degree, fanout, stream(11, Purpose.SAMPLE, epoch, step, micro, hop))


def from_keys(keys: np.ndarray, degree: int, fanout: int) -> np.ndarray:
    """Floyd's draws from ready-made vertex keys `[N]`."""
    return np.array([floyd(key, degree, fanout) for key in keys.tolist()])


def sum_of_words(
    epoch: int, step: int, micro: int, hop: int, vertices: np.ndarray, degree: int, fanout: int
) -> np.ndarray:
    """A weak key: words are added, not mixed, so hop 1 of v is hop 0 of v + 1. Every marginal is perfect."""
    return from_keys(vertices.astype(np.int64) + epoch + step + micro + hop + 1, degree, fanout)


def xor_of_words(
    epoch: int, step: int, micro: int, hop: int, vertices: np.ndarray, degree: int, fanout: int
) -> np.ndarray:
    """Another: a good stream, into which the vertex is only xored; pairs of v and v ^ 1 swap over hops."""
    return from_keys(vertices.astype(np.int64) ^ hop ^ (epoch << 20) ^ (step << 40), degree, fanout)


def overlapping_counters(
    epoch: int, step: int, micro: int, hop: int, vertices: np.ndarray, degree: int, fanout: int
) -> np.ndarray:
    """And another: draw 1 of v is the word of draw 0 of v + 1, as with one counter that runs through the vertices."""
    start = stream(3, Purpose.SAMPLE, epoch, step, micro, hop)
    return from_keys(np.array([(start + int(v) * GOLDEN) % 2**64 for v in vertices], dtype=np.uint64), degree, fanout)


def smallest_p_value(source: Source, degree: int, fanout: int, num: int) -> float:
    """Smallest p-value over joint chi-square tests of draws that must know nothing of each other."""
    vertices = np.arange(num, dtype=np.int32)
    base = source(0, 0, -1, 0, vertices, degree, fanout)
    later = vertices + 1
    others = {
        "hop": source(0, 0, -1, 1, vertices, degree, fanout),
        "hop, two apart": source(0, 0, -1, 2, vertices, degree, fanout),
        "step": source(0, 1, -1, 0, vertices, degree, fanout),
        "epoch": source(1, 0, -1, 0, vertices, degree, fanout),
        "micro": source(0, 0, 0, 0, vertices, degree, fanout),
        "neighbouring vertex": source(0, 0, -1, 0, later, degree, fanout),
        "vertex with one other bit": source(0, 0, -1, 0, vertices ^ 1, degree, fanout),
        "neighbouring vertex, other hop": source(0, 0, -1, 1, later, degree, fanout),
        "vertex with one other bit, other hop": source(0, 0, -1, 1, vertices ^ 1, degree, fanout),
        "neighbouring vertex, hop the other way": source(0, 0, -1, 1, np.maximum(vertices, 1) - 1, degree, fanout),
    }
    smallest = 1.0
    for name, other in others.items():
        for i in range(fanout):
            for j in range(fanout):
                pairs = np.arange(num)
                if "one other bit" in name:  # v and v ^ 1 are one pair, not two
                    pairs = pairs[::2] if i == j and "hop" not in name else pairs
                smallest = min(smallest, joint_p_value(base[pairs, i], other[pairs, j], degree))
    return smallest


def joint_p_value(first: np.ndarray, second: np.ndarray, degree: int) -> float:
    """p-value of independence of two columns of offsets."""
    table = np.bincount(first * degree + second, minlength=degree * degree).reshape(degree, degree)
    table = table[table.sum(1) > 0][:, table.sum(0) > 0]
    return float(stats.chi2_contingency(table, correction=False).pvalue)


@pytest.mark.parametrize(("degree", "fanout"), [(2, 1), (3, 1), (3, 2), (8, 1), (8, 3), (10, 5), (32, 2)])
def test_draws_are_independent(degree: int, fanout: int) -> None:
    assert smallest_p_value(ours, degree, fanout, 40_000) > P_VALUE


@pytest.mark.parametrize("weak", [sum_of_words, xor_of_words, overlapping_counters])
def test_weak_keys_are_caught(weak: Source) -> None:
    num = 4000
    marginal = np.bincount(weak(0, 0, -1, 0, np.arange(num), 8, 3)[:, 0], minlength=8)
    assert stats.chisquare(marginal[:6]).pvalue > P_VALUE  # the first draw is on 0..5: perfectly uniform
    assert smallest_p_value(weak, 8, 3, num) < P_VALUE**2
    assert smallest_p_value(ours, 8, 3, num) > P_VALUE


def per_vertex_p_values(source: Source, num_vertices: int, num_steps: int) -> np.ndarray:
    """p-values `[N]`, vertex by vertex, of independence of its draws at hop 0 and hop 1 over the steps."""
    vertices = np.arange(num_vertices, dtype=np.int32)
    hops = [np.stack([source(0, step, -1, hop, vertices, 4, 1)[:, 0] for step in range(num_steps)]) for hop in (0, 1)]
    return np.array([joint_p_value(hops[0][:, v], hops[1][:, v], 4) for v in range(num_vertices)])


def correlated_for_some(
    epoch: int, step: int, micro: int, hop: int, vertices: np.ndarray, degree: int, fanout: int
) -> np.ndarray:
    """Weak for one vertex in 64: both hops share its key. Pooled over vertices this drowns."""
    shared = np.where(vertices % 64 == 0, 0, hop)
    streams = [stream(4, Purpose.SAMPLE, epoch, step, micro, int(shared_hop)) for shared_hop in shared]
    keys = [vertex_key(key, int(vertex)) for key, vertex in zip(streams, vertices, strict=True)]
    return from_keys(np.array(keys, dtype=np.uint64), degree, fanout)


def test_hops_are_independent_for_every_single_vertex() -> None:
    p_values = per_vertex_p_values(ours, 256, 1000)
    assert p_values.min() > P_VALUE
    assert stats.kstest(p_values, "uniform").pvalue > P_VALUE
    assert per_vertex_p_values(correlated_for_some, 65, 200).min() < P_VALUE**2


def test_overlap_of_two_hops_is_hypergeometric() -> None:
    first, second = (ours(0, 0, -1, hop, np.arange(40_000), 12, 5) for hop in (0, 1))
    overlap = (first[:, :, None] == second[:, None, :]).any(2).sum(1)
    expected = stats.hypergeom(12, 5, 5).pmf(np.arange(6)) * overlap.size
    assert stats.chisquare(np.bincount(overlap, minlength=6), expected).pvalue > P_VALUE


@given(
    st.lists(st.integers(0, 30), max_size=80),
    st.lists(st.integers(0, 30), max_size=20, unique=True),
    st.integers(1, 2**31 - 100),
)
def test_relabel_appends_in_order_of_first_appearance(found: list[int], known: list[int], base: int) -> None:
    table = np.random.default_rng(0).integers(0, base, 31, dtype=np.int32)  # leftovers of earlier batches
    vertices = np.empty(len(known) + len(found) + 1, np.int32)
    assert sample.place_seeds(np.array(known, np.int32), table, base, vertices) == len(known)
    sources = np.array(found, np.int32)  # in place, as the samplers do
    count = sample.relabel_sources(sources, table, base, vertices, len(known), sources)
    expected = list(dict.fromkeys([*known, *found]))
    assert vertices[:count].tolist() == expected
    assert [expected[place] for place in sources] == found


@pytest.mark.parametrize("seeds", [[3, 1, 3], [3, 1, 10], [3, 1, -1]])
def test_place_seeds_stops_at_a_bad_seed(seeds: list[int]) -> None:
    table, vertices = np.zeros(10, np.int32), np.empty(3, np.int32)
    assert sample.place_seeds(np.array(seeds, np.int32), table, 1, vertices) == 2


def test_append_self_loops() -> None:
    indptr, sources, positions = sample.append_self_loops(
        np.array([0, 2, 2, 3]), np.array([4, 1, 0], np.int32), np.array([10, 11, 12])
    )
    assert indptr.tolist() == [0, 3, 4, 6]
    assert sources.tolist() == [4, 1, 0, 1, 0, 2]
    assert positions.tolist() == [10, 11, -1, -1, 12, -1]
