"""Row kernels against loops: every layout of a row, every number of threads."""

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.kernels.pool import allocate
from gnnexp.kernels.rows.aggregate import Edges, Matrix, chunks, dot_rows, groups, sum_and_dot_rows, sum_rows
from gnnexp.kernels.rows.layout import Layout, layout, max_width
from gnnexp.kernels.rows.outer import inner_rows, outer_dot_rows, outer_rows
from gnnexp.kernels.rows.rowkernel import boundaries
from gnnexp.kernels.rows.vector import can_stream


def random_edges(num_src: int, num_dst: int, num_edges: int, seed: int) -> tuple[Edges, Edges, np.ndarray]:
    """A multigraph forward and transposed, and the destination of each edge."""
    rng = np.random.default_rng(seed)
    dst = np.sort(rng.integers(0, max(1, num_dst - 1), num_edges))  # the last destination stays isolated
    src = rng.integers(0, max(1, num_src - 1), num_edges).astype(np.int32)
    order = np.argsort(src, kind="stable")
    forward = Edges(np.searchsorted(dst, np.arange(num_dst + 1)), src)
    turned = np.searchsorted(src[order], np.arange(num_src + 1))
    return forward, Edges(turned, dst[order].astype(np.int32), order), dst


def as_matrix(x: np.ndarray) -> Matrix:
    return Matrix(x.reshape(-1), x.shape[1])


@given(st.integers(1, 256), st.sampled_from([4, 8]), st.integers(0, 8), st.integers(0, 300), st.booleans())
def test_layout_covers_every_column_and_survives_its_code(
    width: int, itemsize: int, heads: int, head_width: int, permuted: bool
) -> None:
    width = min(width, max_width(itemsize))
    form = layout(width, itemsize, heads, head_width, permuted)
    assert Layout.decode(form.code) == form
    assert form.lanes <= width <= form.lanes * form.count < width + form.lanes


@given(st.integers(1, 3000), st.integers(1, 512))
def test_chunks_are_few_and_equal(width: int, widest: int) -> None:
    pieces = chunks(width, widest)
    assert [start for start, _ in pieces] == [sum(w for _, w in pieces[:i]) for i in range(len(pieces))]
    widths = [w for _, w in pieces]
    assert sum(widths) == width and max(widths) - min(widths) <= 1 and len(pieces) == -(-width // widest)


@given(st.integers(1, 12), st.integers(1, 300), st.sampled_from([4, 8]))
def test_groups_cover_every_column_with_its_head(heads: int, head_width: int, itemsize: int) -> None:
    seen = np.full(heads * head_width, -1)
    for start, width, slot, together in groups(heads * head_width, heads, itemsize):
        assert width <= max_width(itemsize) and width % together == 0
        seen[start : start + width] = slot + np.arange(width) // (width // together)
    assert (seen == np.arange(heads * head_width) // head_width).all()


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 30))
def test_ranges_cover_every_row_once(degrees: list[int], parts: int) -> None:
    indptr = np.r_[0, np.cumsum(np.array(degrees, np.int64))].astype(np.int64)
    bounds = boundaries(indptr, parts).tolist()
    assert bounds[0] == 0 and bounds[-1] == len(degrees) and bounds == sorted(bounds)


CASES = [(0, 1), (0, 16), (1, 41), (1, 300), (4, 64), (6, 42), (2, 600)]


@pytest.mark.parametrize(("heads", "width"), CASES)
def test_sums_and_dots_equal_loops(heads: int, width: int) -> None:
    forward, turned, dst = random_edges(40, 30, 300, width)
    rng, src, slots = np.random.default_rng(heads), forward.index, max(1, heads)
    x, dy = rng.standard_normal((40, width)), rng.standard_normal((30, width))
    weight = rng.standard_normal((300, slots)) if heads else np.empty((0, 1))
    column = np.arange(width) // (width // slots)
    factor = weight[:, column] if heads else np.ones((300, width))
    parts = groups(width, heads, 8)

    out, expected = np.full((30, width), np.nan), np.zeros((30, width))
    np.add.at(expected, dst, factor * x[src])
    sum_rows(forward, as_matrix(x), as_matrix(out), weight.reshape(-1), slots, parts)
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-12)

    back, expected_back = np.full((40, width), np.nan), np.zeros((40, width))
    np.add.at(expected_back, src, factor * dy[dst])
    sum_rows(turned, as_matrix(dy), as_matrix(back), weight.reshape(-1), slots, parts)
    np.testing.assert_allclose(back, expected_back, rtol=0, atol=1e-12)
    if not heads:
        return
    products = np.stack([(dy[dst] * x[src])[:, column == k].sum(1) for k in range(heads)], 1)
    found = np.full((300, heads), np.nan)
    dot_rows(forward, as_matrix(dy), as_matrix(x), found.reshape(-1), heads, parts)
    np.testing.assert_allclose(found, products, rtol=0, atol=1e-12)
    found[:], back[:] = np.nan, np.nan
    sum_and_dot_rows(
        turned, as_matrix(x), as_matrix(dy), as_matrix(back), found.reshape(-1), weight.reshape(-1), heads, parts
    )
    np.testing.assert_allclose(found, products, rtol=0, atol=1e-12)
    np.testing.assert_allclose(back, expected_back, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("heads", "width"), [(3, 7), (4, 100), (8, 41)])
def test_outer_kernels_equal_loops(heads: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnexp.kernels.rows.rowkernel.SERIAL_FLOATS", 0 if heads == 4 else 1 << 60)
    forward, turned, dst = random_edges(40, 30, 300, width)
    rng, src = np.random.default_rng(heads), forward.index
    x, weight, dy = (rng.standard_normal(shape) for shape in ((40, width), (300, heads), (30, heads, width)))
    out, expected = np.full((30, heads, width), np.nan), np.zeros((30, heads, width))
    np.add.at(expected, dst, weight[:, :, None] * x[src][:, None])
    outer_rows(forward, as_matrix(x), out.reshape(-1), weight.reshape(-1), heads, width)
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-12)
    found = np.full((300, heads), np.nan)
    outer_dot_rows(forward, dy.reshape(-1), as_matrix(x), found.reshape(-1), heads, width)
    np.testing.assert_allclose(found, (dy[dst] * x[src][:, None]).sum(-1), rtol=0, atol=1e-12)
    back, expected_back = np.full((40, width), np.nan), np.zeros((40, width))
    np.add.at(expected_back, src, (weight[:, :, None] * dy[dst]).sum(1))
    inner_rows(turned, dy.reshape(-1), back.reshape(-1), weight.reshape(-1), heads, width)
    np.testing.assert_allclose(back, expected_back, rtol=0, atol=1e-12)


def test_results_do_not_depend_on_threads() -> None:
    """Bit-identical for 1 and 2 threads, with skewed degrees and more floats than the serial limit."""
    forward, _, _ = random_edges(2000, 1500, 60_000, 3)
    x = np.random.default_rng(0).standard_normal((2000, 41))
    outputs = []
    before = numba.get_num_threads()
    for threads in (1, min(2, numba.config.NUMBA_NUM_THREADS)):
        numba.set_num_threads(threads)
        outputs.append(np.empty((1500, 41)))
        sum_rows(forward, as_matrix(x), as_matrix(outputs[-1]), np.empty(0), 1, groups(41, 0, 8))
    numba.set_num_threads(before)
    assert (outputs[0] == outputs[1]).all()


@pytest.mark.parametrize("width", [16, 64, 300])
def test_streamed_results_equal_stored_ones(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results beyond the cache are written past it; 300 columns are no whole number of vectors and never are."""
    forward, _, _ = random_edges(200, 150, 3000, width)
    x = np.random.default_rng(0).standard_normal((200, width))
    outputs = []
    for limit in (0, 1 << 60):
        monkeypatch.setattr("gnnexp.kernels.rows.vector.STREAM_BYTES", limit)
        out = allocate(150 * width * 8).view(np.float64).reshape(150, width)
        assert can_stream(out.reshape(-1), width, width) == (limit == 0 and width != 300)
        sum_rows(forward, as_matrix(x), as_matrix(out), np.empty(0), 1, groups(width, 0, 8))
        outputs.append(out)
    assert (outputs[0] == outputs[1]).all()
