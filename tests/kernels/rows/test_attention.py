"""Attention weights and phases against numpy; the exponential against libm."""

import numba
import numpy as np
import pytest

from gnnexp.kernels.rows.aggregate import Edges
from gnnexp.kernels.rows.attention import EdgeOperation, edge_operation, unweigh, weigh
from gnnexp.kernels.rows.layout import layout
from gnnexp.kernels.rows.rowmath import exponential
from gnnexp.kernels.rows.vector import load_row, store_row


@numba.njit
def _exp_all(x: np.ndarray, out: np.ndarray, shape: int) -> None:
    shape = numba.literally(shape)
    for i in range(0, x.size, 8):
        store_row(out, np.uint64(i), np.uint64(8), exponential(load_row(x, np.uint64(i), np.uint64(8), shape)))


@pytest.mark.parametrize(("kind", "ulps"), [(np.float32, 2), (np.float64, 2)])
def test_exponential(kind: type, ulps: int) -> None:
    info = np.finfo(kind)
    low, high = np.log(info.smallest_subnormal), np.log(info.max)
    outside = [low - 1, low * 2, high + 1, high * 2]
    special = [0, -0.0, 1, -1, -np.inf, np.inf, np.nan, *outside, 88.5, -87.5, 1e-30, 700, -744]
    inner = np.linspace(np.log(info.tiny), high - 1e-3, 40_000)
    x = np.concatenate([np.array(special), inner]).astype(kind)
    x = x[: x.size // 8 * 8]
    out = np.empty_like(x)
    _exp_all(x, out, int(layout(8, x.itemsize).code))
    with np.errstate(over="ignore", under="ignore"):
        expected = np.exp(x.astype(np.longdouble)).astype(kind)
    np.testing.assert_allclose(out, expected, rtol=ulps * float(info.eps), atol=float(info.smallest_subnormal) * 2)


def block(num_edges: int, num_src: int, num_dst: int) -> tuple[Edges, np.ndarray]:
    rng = np.random.default_rng(num_edges)
    dst = np.sort(rng.integers(0, num_dst - 1, num_edges))
    src = rng.integers(0, num_src, num_edges).astype(np.int32)
    return Edges(np.searchsorted(dst, np.arange(num_dst + 1)), src), dst


@pytest.mark.parametrize("heads", [1, 3, 4])
def test_weights_and_their_gradient(heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnexp.kernels.rows.rowkernel.SERIAL_FLOATS", 0 if heads == 4 else 1 << 60)
    edges, dst = block(200, 30, 20)
    rng, src = np.random.default_rng(heads), edges.index
    src_key, dst_key, upstream = (rng.standard_normal((n, heads)) * 3 for n in (30, 20, 200))
    score = src_key[src] + dst_key[dst]
    leaky = np.where(score > 0, score, 0.2 * score)
    share = np.exp(leaky)
    mass = np.zeros((20, heads))
    np.add.at(mass, dst, share)
    share /= mass[dst]
    signed, weight = np.empty((2, 200, heads))
    weigh(edges, src_key.ravel(), dst_key.ravel(), heads, 0.2, signed.reshape(-1), weight.reshape(-1))
    np.testing.assert_allclose(weight, share, rtol=1e-12)
    np.testing.assert_array_equal(np.sign(signed), np.where(score > 0, 1, -1))

    kept = rng.random((200, heads)) < 0.6
    dropped = np.where(kept, weight * 2.5, 0)
    change, key_gradient = np.empty((200, heads)), np.empty((20, heads))
    unweigh(
        edges,
        signed.ravel(),
        dropped.ravel(),
        upstream.ravel(),
        2.5,
        0.2,
        heads,
        change.reshape(-1),
        key_gradient.reshape(-1),
    )
    flow = np.where(kept, upstream * 2.5, 0)
    mean = np.zeros((20, heads))
    np.add.at(mean, dst, share * flow)
    expected = share * (flow - mean[dst]) * np.where(score > 0, 1, 0.2)
    np.testing.assert_allclose(change, expected, rtol=0, atol=1e-12)
    total = np.zeros((20, heads))
    np.add.at(total, dst, expected)
    np.testing.assert_allclose(key_gradient, total, rtol=0, atol=1e-12)


@pytest.mark.parametrize("heads", [1, 3, 4])
def test_phases(heads: int) -> None:
    edges, dst = block(200, 30, 20)
    rng, src = np.random.default_rng(heads), edges.index
    a, b, per_edge = (rng.standard_normal((n, heads)) for n in (30, 20, 200))
    peak = np.full((20, heads), -np.inf)
    np.maximum.at(peak, dst, per_edge)
    total = np.zeros((20, heads))
    np.add.at(total, dst, per_edge)
    expected = {
        EdgeOperation.SCORE: (a, a[src] + b[dst]),
        EdgeOperation.SUM: (per_edge, total),
        EdgeOperation.MAX: (per_edge, peak),
        EdgeOperation.EXP: (per_edge, np.exp(per_edge - b[dst])),
        EdgeOperation.SPREAD: (per_edge, b[dst]),
    }
    for phase, (operand, result) in expected.items():
        out = np.full(result.shape, np.nan)
        edge_operation(phase, edges, operand.ravel(), b.ravel(), heads, out.reshape(-1))
        np.testing.assert_allclose(out, result, rtol=1e-13, atol=1e-13, err_msg=phase.name)


def test_a_diverged_score_shows() -> None:
    edges = Edges(np.array([0, 2]), np.array([0, 1], np.int32))
    signed, weight = np.empty(2), np.empty(2)
    weigh(edges, np.array([np.nan, 0.0]), np.zeros(1), 1, 0.2, signed, weight)
    assert np.isnan(weight).all()
