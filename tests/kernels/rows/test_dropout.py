"""Dropout masks: the documented function, on any slice, with independent draws at the right rate."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnexp.kernels.counter import GOLDEN, Purpose, mix, stream
from gnnexp.kernels.pool import allocate
from gnnexp.kernels.rows.dropout import drop_edges, drop_rows, drop_sparse, keep_positive, quantised, survivor_scale

LOW = 0xFFFFFFFF


def reference_keep(key: int, vertex: int, column: int, num_columns: int, threshold: int) -> bool:
    """The documented mask in Python integers."""
    half = (num_columns + 1) // 2
    state = mix(key ^ mix(vertex + GOLDEN))
    word = ((state & LOW) + (column % half if column >= half else column) * 0x9E3779B9) & LOW
    word = ((word ^ word >> 16) * 0x7FEB352D) & LOW
    word = ((word ^ word >> 15) + (state >> 32)) & LOW
    word = (word * 0x846CA68B) & LOW
    word ^= word >> 16
    return (word >> 16 if column >= half else word & 0xFFFF) >= threshold


def mask(ids: np.ndarray, key: int, p: float, num_columns: int, start: int = 0, stop: int | None = None) -> np.ndarray:
    """`[N, d]` bool, from dropping ones."""
    stop = num_columns if stop is None else stop
    x = np.ones((ids.size, stop - start), np.float32)
    out = np.empty_like(x)
    drop_rows(x.ravel(), stop - start, out.reshape(-1), ids, key, quantised(p), num_columns, start, stop)
    return out > 0


@given(st.integers(0, 2**64 - 1), st.integers(1, 40), st.floats(0, 1), st.sampled_from([np.int32, np.int64]))
@settings(max_examples=25, deadline=None)
def test_mask_is_the_documented_function(key: int, num_columns: int, p: float, kind: type) -> None:
    ids = np.array([0, 7, 2**31 - 1], kind)
    threshold = quantised(p)
    expected = [[reference_keep(key, int(v), c, num_columns, threshold) for c in range(num_columns)] for v in ids]
    assert (mask(ids, key, p, num_columns) == (np.array(expected) & (threshold < 65536))).all()


@given(st.integers(1, 70), st.data())
@settings(max_examples=30, deadline=None)
def test_slices_of_rows_and_columns_draw_the_same_mask(num_columns: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, num_columns - 1))
    stop = data.draw(st.integers(start + 1, num_columns))
    ids = np.random.default_rng(num_columns).permutation(50)
    whole = mask(ids, 99, 0.4, num_columns)
    chosen = data.draw(st.lists(st.integers(0, 49), min_size=1, max_size=10))
    assert (mask(ids[chosen], 99, 0.4, num_columns, start, stop) == whole[chosen, start:stop]).all()


@pytest.mark.parametrize("p", [0.1, 0.5, 0.6])
def test_rate_and_scale(p: float) -> None:
    kept = mask(np.arange(20_000), stream(1, Purpose.DROPOUT, 2), p, 64)
    sigma = np.sqrt(p * (1 - p) / kept.size)
    assert abs(kept.mean() - (1 - p)) < 5 * sigma
    assert np.abs(kept.mean(0) - (1 - p)).max() < 5 * sigma * 8
    assert survivor_scale(quantised(p)) * (1 - quantised(p) / 65536) == pytest.approx(1)


def test_masks_are_independent_over_rows_columns_and_keys() -> None:
    """Correlations of pairs of columns, neighbouring vertices, keys one apart and layers stay within chance."""
    count, columns = 20_000, 32
    ids = np.arange(count)
    first = mask(ids, stream(0, Purpose.DROPOUT, 0, 0, -1, 0), 0.5, columns) * 2.0 - 1
    limit = 5.5 / np.sqrt(count)
    for a, b in itertools.combinations(range(columns), 2):
        assert abs((first[:, a] * first[:, b]).mean()) < limit, (a, b)
    for lag in (1, 2, 3, 64, 1024):
        assert np.abs((first[lag:] * first[:-lag]).mean(0)).max() < limit * 1.05, lag
    for words in ((0, 0, -1, 1), (0, 1, -1, 0), (1, 0, -1, 0)):
        other = mask(ids, stream(0, Purpose.DROPOUT, *words), 0.5, columns) * 2.0 - 1
        assert np.abs((first * other).mean(0)).max() < limit, words
    near = mask(ids, stream(0, Purpose.DROPOUT, 0, 0, -1, 0) ^ 1, 0.5, columns) * 2.0 - 1
    assert np.abs((first * near).mean(0)).max() < limit
    # A column against every other column of the next row: a shifted sequence would show here.
    cross = np.abs(first[1:].T @ first[:-1] / (count - 1))
    assert cross.max() < limit


def test_sparse_mask_equals_the_dense_one() -> None:
    rng = np.random.default_rng(0)
    dense = rng.random((40, 33)) * (rng.random((40, 33)) < 0.2)
    indptr = np.r_[0, np.cumsum((dense > 0).sum(1))]
    columns = np.nonzero(dense)[1].astype(np.int32)
    ids = rng.permutation(1000)[:40]
    dropped = np.zeros_like(dense)
    drop_rows(dense.ravel(), 33, dropped.reshape(-1), ids, 5, quantised(0.3), 33, 0, 33)
    values = drop_sparse(indptr, columns, dense[dense > 0], ids, 5, quantised(0.3), 33)
    assert (values == dropped[dense > 0]).all() and (values == 0).any()


def test_relu_is_fused_and_its_backward_needs_no_hash() -> None:
    rng = np.random.default_rng(1)
    x, gradient = rng.standard_normal((2, 30, 11)).astype(np.float32)
    ids = np.arange(30, dtype=np.int32)
    out, plain, back = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    drop_rows(x.ravel(), 11, out.reshape(-1), ids, 3, quantised(0.5), 11, 0, 11, relu=True)
    drop_rows(np.maximum(x, 0).ravel(), 11, plain.reshape(-1), ids, 3, quantised(0.5), 11, 0, 11)
    assert (out == plain).all()
    keep_positive(out.ravel(), gradient.ravel(), back.reshape(-1), quantised(0.5))
    assert (back == np.where(out > 0, gradient * np.float32(2), 0)).all()


def test_edge_masks_depend_on_identity_alone() -> None:
    """Edges of a row-permuted, relabelled block keep their masks; parallel edges, types and added loops differ."""
    rng = np.random.default_rng(2)
    num_edges, heads = 3000, 6
    indptr, index = np.array([0, num_edges // 2, num_edges]), np.arange(num_edges, dtype=np.int32) % 1500
    src_ids, dst_ids = rng.permutation(5000)[:1500], np.array([17, 4])
    none = np.empty(0, np.int32)

    def kept(
        indptr: np.ndarray,
        index: np.ndarray,
        src: np.ndarray,
        dst: np.ndarray,
        types: np.ndarray,
        occurrence: np.ndarray,
        loops: bool = False,
    ) -> np.ndarray:
        out = np.empty(index.size * heads, np.float32)
        drop_edges(indptr, index, src, dst, types, occurrence, loops, np.ones_like(out), out, heads, 11, 32768)
        return out.reshape(-1, heads) > 0

    base = kept(indptr, index, src_ids, dst_ids, none, none)
    order = rng.permutation(num_edges // 2)
    places = rng.permutation(1500)
    relabelled = np.argsort(places).astype(np.int32)[index[num_edges // 2 :][order]]
    moved = kept(np.array([0, num_edges // 2]), relabelled, src_ids[places], dst_ids[1:], none, none)
    assert (moved == base[num_edges // 2 :][order]).all()

    zeros = np.zeros(num_edges, np.int32)
    assert (kept(indptr, index, src_ids, dst_ids, zeros, zeros) == base).all(), "type 0, occurrence 0 are the default"
    for types, occurrence in ((zeros + 1, zeros), (zeros, zeros + 1), (zeros, zeros - 1)):
        other = kept(indptr, index, src_ids, dst_ids, types, occurrence)
        assert abs((other == base).mean() - 0.5) < 5 * 0.5 / np.sqrt(base.size)
    loops = kept(indptr, index, src_ids, dst_ids, none, none, loops=True)
    marked = zeros.copy()
    marked[indptr[1:] - 1] = -1
    assert (loops == kept(indptr, index, src_ids, dst_ids, none, marked)).all()
    signs = base * 2.0 - 1
    assert np.abs(np.triu(signs.T @ signs, 1) / num_edges).max() < 5 / np.sqrt(num_edges), "heads are independent"


@pytest.mark.parametrize("relu", [False, True])
def test_streamed_results_equal_stored_ones(relu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, ids, outputs = np.random.default_rng(3), np.arange(1500), []
    x, gradient = rng.standard_normal((2, 1500, 48)).astype(np.float32)
    for limit in (0, 1 << 60):
        monkeypatch.setattr("gnnexp.kernels.rows.vector.STREAM_BYTES", limit)
        out, back = (allocate(x.nbytes).view(np.float32).reshape(x.shape) for _ in range(2))
        drop_rows(x.ravel(), 48, out.reshape(-1), ids, 3, quantised(0.5), 48, 0, 48, relu=relu)
        keep_positive(out.ravel(), gradient.ravel(), back.reshape(-1), quantised(0.5))
        outputs.append((out, back))
    assert (outputs[0][0] == outputs[1][0]).all() and (outputs[0][1] == outputs[1][1]).all()
