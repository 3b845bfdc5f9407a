"""The backends against a dense reference, forward and backward, on awkward multigraphs; and the same masks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.graph.sparse import SparseRows
from gnnexp.kernels.counter import GOLDEN, mix
from gnnexp.ops.backend import Backend, Drop
from gnnexp.ops.backend_dgl import dgl_backend
from gnnexp.ops.backend_numba import numba_backend
from gnnexp.ops.backend_torch import torch_backend
from gnnexp.ops.backends import has_triton, is_interpreted, make_backend
from gnnexp.testing.blocks import make_block

BACKENDS: dict[str, Callable[[], Backend]] = {"numba": numba_backend, "torch": torch_backend, "dgl": dgl_backend}
if has_triton() and is_interpreted():  # in a process of tests/kernels/test_triton.py
    BACKENDS["triton"] = lambda: make_backend("triton", torch.device("cpu"))
SLOPE = 0.2
each_backend = pytest.mark.parametrize("name", BACKENDS)


BLOCKS = {
    "multigraph": make_block(13, 29, 90),
    "simple": make_block(9, 9, 20, 1, parallel=False),
    "no_edges": make_block(5, 7, 0),
    "no_destinations": make_block(0, 4, 0),
    "one": make_block(1, 1, 3),
}
each_block = pytest.mark.parametrize("which", BLOCKS)


def ends(block: Block) -> tuple[Tensor, Tensor]:
    dst = torch.repeat_interleave(torch.arange(block.num_dst), block.indptr[1:] - block.indptr[:-1])
    return block.sources.long(), dst


def dense_sum(block: Block, x: Tensor, weight: Tensor, column: list[int]) -> Tensor:
    """Reference aggregation: one dense matrix per weight slot."""
    src, dst = ends(block)
    matrices = [
        torch.zeros(block.num_dst, block.num_src, dtype=x.dtype).index_put((dst, src), weight[:, k], accumulate=True)
        for k in range(weight.shape[1])
    ]
    return torch.stack([matrices[k] @ x[:, j] for j, k in enumerate(column)], 1)


def dense_attention(block: Block, src_key: Tensor, dst_key: Tensor) -> Tensor:
    """Reference attention weights `[E, K]`, one softmax per destination."""
    parts = [src_key.new_zeros(0, src_key.shape[1])]
    for v in range(block.num_dst):
        mine = block.sources.long()[block.indptr[v] : block.indptr[v + 1]]
        parts.append(torch.softmax(torch.nn.functional.leaky_relu(src_key[mine] + dst_key[v], SLOPE), 0))
    return torch.cat(parts)


def edge_mask(block: Block, heads: int, drop: Drop) -> Tensor:
    """Reference mask `[E, K]` with the documented hash, in Python integers."""

    def absorb(state: int, word: int) -> int:
        return mix(state ^ mix(word + GOLDEN))

    def draw(key: int, counter: int) -> int:
        return mix(key + (counter + 1) * GOLDEN)

    src, dst = ends(block)
    rows = []
    for e in range(block.num_edges):
        state = draw(absorb(drop.key, int(block.dst_ids[dst[e]])), int(block.src_ids[src[e]]))
        if block.occurrence is not None and int(block.occurrence[e]) != 0:
            state = absorb(state, int(block.occurrence[e]) & 0xFFFFFFFF)
        words = [state if k < 4 else draw(state, k >> 2) for k in range(heads)]
        rows.append([(word >> 16 * (k & 3)) & 0xFFFF for k, word in enumerate(words)])
    bits = torch.tensor(rows, dtype=torch.int64).view(-1, heads)
    return (bits >= drop.threshold).to(torch.float64) * drop.scale


def compare(found: Callable[..., Tensor], expected: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Outputs and all gradients agree to 1e-12 for a random upstream gradient."""
    results = []
    for function in (found, expected):
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        out = function(*leaves)
        upstream = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(1))
        assert out.requires_grad or out.numel() == 0
        some = torch.autograd.grad(out, leaves, upstream, materialize_grads=True) if out.requires_grad else ()
        gradients = some or [torch.zeros_like(leaf) for leaf in leaves]
        results.append([out.detach(), *gradients])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


@each_backend
@each_block
@pytest.mark.parametrize("width", [1, 3, 16, 41, 100, 128])
def test_sum(name: str, which: str, width: int) -> None:
    block, backend = BLOCKS[which], BACKENDS[name]()
    ones = torch.ones(block.num_edges, 1, dtype=torch.float64)
    compare(
        lambda x: backend.sums.aggregate(block, x, None, None),
        lambda x: dense_sum(block, x, ones, [0] * width),
        normal(block.num_src, width),
    )


WEIGHTED = [(1, 1), (1, 41), (3, 41), (4, 64), (8, 128)]


@each_backend
@each_block
@pytest.mark.parametrize(("heads", "width"), WEIGHTED)
def test_weighted_sum_with_gradients_for_rows_and_weights(name: str, which: str, heads: int, width: int) -> None:
    block, backend = BLOCKS[which], BACKENDS[name]()
    # 3 heads over 41 columns: unequal, out of order, one slot used twice, as in a slice of dimensions.
    column = [j * heads // width for j in range(width)] if width % heads == 0 else [2] * 20 + [0] * 11 + [2] * 10
    slots = None if heads == 1 else torch.tensor(column)
    x, weight = normal(block.num_src, width), normal(block.num_edges, heads)
    compare(
        lambda x, w: backend.sums.aggregate(block, x, w, slots), lambda x, w: dense_sum(block, x, w, column), x, weight
    )
    compare(lambda w: backend.sums.aggregate(block, x, w, slots), lambda w: dense_sum(block, x, w, column), weight)
    compare(lambda x: backend.sums.aggregate(block, x, weight, slots), lambda x: dense_sum(block, x, weight, column), x)


@each_backend
@each_block
@pytest.mark.parametrize("width", [0, 1, 21, 100])
def test_weights_that_depend_on_the_source(name: str, which: str, width: int) -> None:
    block, backend = BLOCKS[which], BACKENDS[name]()
    scale = normal(block.num_src).detach().abs() + 0.1
    weight = scale[block.sources.long()].unsqueeze(1)
    compare(
        lambda x: backend.sums.aggregate_scaled(block, x, scale),
        lambda x: dense_sum(block, x, weight, [0] * width) if width else x.new_zeros(block.num_dst, 0) + x.sum(),
        normal(block.num_src, width),
    )


@each_backend
@each_block
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("width", [0, 3, 41])
def test_spread_is_the_transpose_of_the_sum(name: str, which: str, weighted: bool, width: int) -> None:
    """<sum(x), g> = <x, spread(g)> for all x and g."""
    block, backend = BLOCKS[which], BACKENDS[name]()
    weight = normal(block.num_edges, 1).detach() if weighted else None
    x, gradient = normal(block.num_src, width).detach(), normal(block.num_dst, width).detach()
    back = backend.sums.spread(block, gradient, weight)
    assert back.shape == x.shape and not back.requires_grad
    summed = backend.sums.aggregate(block, x, weight, None)
    torch.testing.assert_close((summed * gradient).sum(), (x * back).sum(), rtol=1e-10, atol=1e-10)


@each_backend
@each_block
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("width", [0, 1, 3])
def test_what_spread_returns_may_be_written_into(name: str, which: str, weighted: bool, width: int) -> None:
    """Its rows share no memory with one another, with or without edges."""
    block, backend = BLOCKS[which], BACKENDS[name]()
    weight = normal(block.num_edges, 1).detach() if weighted else None
    gradient = normal(block.num_dst, width).detach()
    back, given = backend.sums.spread(block, gradient, weight), gradient.clone()
    scale = torch.arange(1.0, block.num_src + 1, dtype=torch.float64).unsqueeze(1)
    expected = (back + 1) * scale
    assert torch.equal(back.add_(1).mul_(scale), expected) and torch.equal(gradient, given)


@each_backend
@each_block
@pytest.mark.parametrize(("heads", "width"), [(2, 16), (6, 7)])
def test_outer_sum(name: str, which: str, heads: int, width: int) -> None:
    block, backend = BLOCKS[which], BACKENDS[name]()

    def expected(x: Tensor, weight: Tensor) -> Tensor:
        return torch.stack([dense_sum(block, x, weight, [k] * width) for k in range(heads)], 1)

    compare(
        lambda x, w: backend.sums.aggregate_outer(block, x, w),
        expected,
        normal(block.num_src, width),
        normal(block.num_edges, heads),
    )


@each_backend
@each_block
@pytest.mark.parametrize("heads", [1, 4, 6])
@pytest.mark.parametrize("p", [0.0, 0.6])
def test_attention_with_all_gradients(name: str, which: str, heads: int, p: float) -> None:
    block, backend = BLOCKS[which], BACKENDS[name]()
    drop = Drop(p, 0xFEDCBA9876543210) if p else None
    scale = edge_mask(block, heads, drop) if drop else torch.ones(block.num_edges, heads, dtype=torch.float64)
    width = 5 * heads if heads != 4 else 64
    column = [j * heads // width for j in range(width)]
    x, raw = normal(block.num_src, width), normal(block.num_src, 7)
    keys = normal(block.num_src, heads), normal(block.num_dst, heads)
    compare(
        lambda x, s, d: backend.attention(block, x, s, d, SLOPE, drop),
        lambda x, s, d: dense_sum(block, x, dense_attention(block, s, d) * scale, column),
        x,
        *keys,
    )
    compare(
        lambda x, s, d: backend.attention_aggregate_first(block, x, s, d, SLOPE, drop),
        lambda x, s, d: torch.stack(
            [dense_sum(block, x, dense_attention(block, s, d) * scale, [k] * 7) for k in range(heads)], 1
        ),
        raw,
        *keys,
    )


@each_backend
@each_block
def test_phases_compose_to_the_fused_attention(name: str, which: str) -> None:
    block, backend, drop = BLOCKS[which], BACKENDS[name](), Drop(0.3, 77)
    column = torch.arange(8) // 4

    def phases(x: Tensor, src_key: Tensor, dst_key: Tensor) -> Tensor:
        score = torch.nn.functional.leaky_relu(backend.edges.score(block, src_key, dst_key), SLOPE)
        peak = backend.edges.max(block, score)
        assert torch.equal(peak.isneginf().any(1), block.indptr[1:] == block.indptr[:-1]) and not peak.requires_grad
        weight = backend.edges.exp(block, score, peak)
        mass = backend.edges.sum(block, weight)
        summed = backend.sums.aggregate(block, x, backend.edges.dropout(block, weight, drop), column)
        return summed / mass.clamp(min=1e-300)[:, column]

    compare(
        phases,
        lambda x, s, d: backend.attention(block, x, s, d, SLOPE, drop),
        normal(block.num_src, 8),
        normal(block.num_src, 2),
        normal(block.num_dst, 2),
    )


@each_backend
def test_attention_is_exact_for_any_common_peak(name: str) -> None:
    block, backend = BLOCKS["multigraph"], BACKENDS[name]()
    score = normal(block.num_edges, 2)
    peak = backend.edges.max(block, score).nan_to_num(neginf=0)
    shares = [backend.edges.exp(block, score, peak + shift) for shift in (0, 3, -3)]
    _, dst = ends(block)
    for weight in shares:
        torch.testing.assert_close(
            weight / backend.edges.sum(block, weight)[dst],
            shares[0] / backend.edges.sum(block, shares[0])[dst],
            rtol=1e-12,
            atol=0,
        )


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_backends_draw_the_same_masks(kind: torch.dtype) -> None:
    drop, ids = Drop(0.37, 0xABCDEF0123456789), torch.randperm(500)[:60].to(kind)
    backends = [make() for make in BACKENDS.values()]
    x = torch.randn(60, 23, dtype=torch.float64).abs() + 0.1
    whole = [backend.rows.dropout(x, ids, drop, 23) for backend in backends]
    for backend, out in zip(backends, whole, strict=True):
        assert torch.equal(out, whole[0]) and (out == 0).any() and (out > 0).any()
        assert torch.equal(backend.rows.dropout(x[5:9, 10:20], ids[5:9], drop, 23, 10), out[5:9, 10:20])
        assert torch.equal(
            backend.rows.relu_dropout(x - 1, ids, drop, 23), torch.where(x > 1, (x - 1) * drop.scale, 0) * (out > 0)
        )
    weight = normal(90, 6).abs() + 0.1
    types = torch.randint(0, 5, (90,), dtype=torch.int32)
    source = BLOCKS["multigraph"]
    typed = Block(
        source.indptr,
        source.sources,
        source.src_ids,
        source.num_dst,
        occurrence=source.occurrence,
        edge_types=types,
        dst_positions=torch.arange(source.num_dst) + 3,
    )
    looped = Block(
        torch.arange(10) * 10, torch.randint(0, 20, (90,), dtype=torch.int32), torch.randperm(20), 9, self_loops=True
    )
    for block in (source, typed, looped):
        masks = [backend.edges.dropout(block, weight, drop) for backend in backends]
        assert all(torch.equal(found, masks[0]) for found in masks)
        assert 0.5 < (masks[0] > 0).double().mean() < 0.76


@each_backend
@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_dropout_gradients(name: str, p: float) -> None:
    backend, ids, drop = BACKENDS[name](), torch.arange(8), Drop(p, 5)
    mask = backend.rows.dropout(torch.ones(8, 7, dtype=torch.float64), ids, drop, 7)
    x = normal(8, 7)
    compare(lambda x: backend.rows.dropout(x, ids, drop, 7), lambda x: x * mask, x)
    compare(lambda x: backend.rows.relu_dropout(x, ids, drop, 7), lambda x: torch.relu(x) * mask, x)
    compare(lambda x: backend.rows.dropout(x[:, 2:5], ids, drop, 7, 2), lambda x: (x * mask)[:, 2:5], x)
    block = BLOCKS["multigraph"]
    edge = backend.edges.dropout(block, torch.ones(90, 3, dtype=torch.float64), drop)
    compare(lambda w: backend.edges.dropout(block, w, drop), lambda w: w * edge, normal(90, 3))


@each_backend
def test_sparse_features(name: str) -> None:
    backend, ids, drop = BACKENDS[name](), torch.randperm(100)[:12], Drop(0.4, 9)
    dense = normal(12, 30) * (normal(30, 12).t() > 0.8)
    dense[3] = 0
    stored = dense != 0
    rows = SparseRows(
        torch.cat((torch.zeros(1, dtype=torch.int64), stored.sum(1).cumsum(0))),
        stored.nonzero()[:, 1].int(),
        dense[stored],
        30,
    )
    dropped = backend.rows.sparse_dropout(rows, ids, drop)
    assert torch.equal(dropped.to_dense(), backend.rows.dropout(dense, ids, drop, 30))
    compare(lambda w: backend.sparse_linear(dropped, w), lambda w: dropped.to_dense() @ w.t(), normal(5, 30))


@each_backend
def test_slices_transposed_rows_and_expanded_gradients(name: str) -> None:
    """Strided inputs, and the stride-0 gradient of a plain sum."""
    backend, block, wide = BACKENDS[name](), BLOCKS["multigraph"], normal(29, 40)
    torch.testing.assert_close(
        backend.sums.aggregate(block, wide[:, 3:19], None, None),
        backend.sums.aggregate(block, wide, None, None)[:, 3:19],
    )
    turned = wide.t().contiguous().t()
    torch.testing.assert_close(
        backend.sums.aggregate(block, turned, None, None), backend.sums.aggregate(block, wide, None, None)
    )
    x = wide.clone().requires_grad_()
    backend.sums.aggregate(block, x, None, None).sum().backward()  # type: ignore[no-untyped-call]
    out_degree = torch.bincount(block.sources.long(), minlength=29).double()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, out_degree.unsqueeze(1).expand(29, 40))


@each_backend
def test_float32(name: str) -> None:
    backend, block = BACKENDS[name](), BLOCKS["multigraph"]
    column = [j // 16 for j in range(64)]
    x, s, d = normal(29, 64), normal(29, 4), normal(13, 4)
    expected = dense_sum(block, x, dense_attention(block, s, d), column)
    found = backend.attention(block, x.float(), s.float(), d.float(), SLOPE, None)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


@each_backend
def test_features_without_gradient_need_no_transpose(name: str) -> None:
    source = BLOCKS["multigraph"]
    block = Block(source.indptr, source.sources, source.src_ids, source.num_dst)
    weight = normal(90, 1).requires_grad_()
    BACKENDS[name]().sums.aggregate(block, normal(29, 16), weight, None).sum().backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None and "transpose" not in vars(block)
