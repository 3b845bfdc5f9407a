"""Triton's kernels, interpreted on the CPU, against numba's: sums and masks to the bit.

Triton decides at its import whether it interprets, by TRITON_INTERPRET=1, and other tests need the compiler. So these
tests run in a process of their own, which `tests/kernels/test_triton.py` starts; elsewhere they are skipped.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from fused_interpreter import needs_fused_interpreter
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.graph.sparse import SparseRows, StoredRows
from gnnexp.kernels import counter as cpu
from gnnexp.ops.backend import Backend, Drop
from gnnexp.ops.backend_numba import numba_backend
from gnnexp.ops.backends import is_interpreted, make_backend
from gnnexp.testing.blocks import looped, make_block, typed

pytestmark = [
    needs_fused_interpreter,
    pytest.mark.skipif(not is_interpreted(), reason="run by tests/kernels/test_triton.py"),
]
CPU, DROP = torch.device("cpu"), Drop(0.37, 0xFEDCBA9876543210)
KINDS = (torch.float32, torch.float64)
each_kind = pytest.mark.parametrize("kind", KINDS)


def both() -> tuple[Backend, Backend]:
    return numba_backend(), make_backend("triton", CPU)


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    """Blocks with one vertex, vertices without edges, and parallel edges; ids of either type, types, added loops."""
    num_dst, extra = draw(st.integers(0, 5)), draw(st.integers(0, 4))
    num_src = num_dst + extra + 1
    degrees = draw(st.lists(st.integers(0, 6), min_size=num_dst, max_size=num_dst))
    num_edges = sum(degrees)
    sources = draw(st.lists(st.integers(0, num_src - 1), min_size=num_edges, max_size=num_edges))
    indptr = torch.tensor([0, *np.cumsum(degrees)], dtype=torch.int64)
    ids = torch.randperm(1000, generator=torch.Generator().manual_seed(num_edges))[:num_src]
    block = Block(indptr, torch.tensor(sources, dtype=torch.int32), ids + draw(st.sampled_from([0, 1 << 33])), num_dst)
    shape = draw(st.sampled_from(["plain", "typed", "occurrence", "loops"]))
    if shape == "typed":
        return typed(block)
    if shape == "occurrence":
        return replace(block, occurrence=torch.arange(num_edges, dtype=torch.int32) % 3 - 1)
    return looped(block) if shape == "loops" and num_dst else block


def normal(kind: torch.dtype, *shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape))).to(kind)


def passed(call, *inputs: Tensor) -> list[Tensor]:
    """The output, and the gradients of all inputs for a drawn upstream gradient."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    out = call(*leaves)
    upstream = normal(out.dtype, *out.shape)
    return [out.detach(), *torch.autograd.grad(out, leaves, upstream)]


def equal(found: list[Tensor], expected: list[Tensor]) -> bool:
    return all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def near(found: list[Tensor], expected: list[Tensor]) -> bool:
    bound = 1e-12 if found[0].dtype == torch.float64 else 2e-6
    scale = max((float(x.abs().max()) for x in expected if x.numel()), default=0.0) or 1.0
    return all(
        a.shape == b.shape and (not a.numel() or float((a - b).abs().max()) <= bound * scale)
        for a, b in zip(found, expected, strict=True)
    )


def test_the_generator_draws_the_words_of_the_cpu() -> None:
    from triton_counter import words_kernel

    words = cpu.uniform_words(np.uint64(7), 64)
    a, b, out = words[:32], words[32:], torch.empty(128, dtype=torch.int64)
    words_kernel[1,](torch.from_numpy(a.view(np.int64)), torch.from_numpy(b.view(np.int64)), out, N=32)
    expected = [
        [cpu.mix64(x) for x in a],
        [cpu.absorb(x, y) for x, y in zip(a, b, strict=True)],
        [cpu.draw(x, y) for x, y in zip(a, b, strict=True)],
        [cpu.bounded(x, y & np.uint64(0xFFFFFFFF)) for x, y in zip(a, b, strict=True)],
    ]
    assert out.numpy().view(np.uint64).tolist() == [int(word) for row in expected for word in row]


@given(blocks(), st.sampled_from(KINDS), st.sampled_from([1, 3, 16, 21]))
@settings(max_examples=8)
def test_sums_have_the_bits_of_numba_forward_and_backward(block: Block, kind: torch.dtype, width: int) -> None:
    x, weight = normal(kind, block.num_src, width), normal(kind, block.num_edges, 1)
    scale = normal(kind, block.num_src).abs()
    plain, weighted, scaled, spread = (
        [call(backend) for backend in both()]
        for call in (
            lambda k: passed(lambda x: k.sums.aggregate(block, x, None, None), x),
            lambda k: passed(lambda x: k.sums.aggregate(block, x, weight, None), x),
            lambda k: passed(lambda x: k.sums.aggregate_scaled(block, x, scale), x),
            lambda k: [k.sums.spread(block, normal(kind, block.num_dst, width), weight)],
        )
    )
    for numba, triton in (plain, weighted, scaled, spread):
        assert equal(triton, numba)


@given(
    blocks(),
    st.sampled_from(KINDS),
    st.booleans(),
    st.sampled_from([1, 3, 16, 21]),
    st.sampled_from([torch.int32, torch.int64, None]),
)
@settings(max_examples=16)
def test_sums_of_rows_where_they_are_stored_are_those_of_a_matrix(
    block: Block, kind: torch.dtype, narrow: bool, width: int, ids_of: torch.dtype | None
) -> None:
    values = normal(kind, block.num_src if ids_of is None else 1000, width)
    values = values.bfloat16() if narrow else values
    ids = None if ids_of is None else (torch.arange(block.num_src) * 7919 % 1000).to(ids_of)
    stored, weight, scale = StoredRows(values, ids, kind), normal(kind, block.num_edges, 1), normal(kind, block.num_src)
    rows, (numba, triton) = stored.to_dense(), both()
    assert rows.dtype == kind and rows.shape == stored.shape == (block.num_src, width)
    for factors in ((None, None), (weight, None), (None, scale.abs())):
        found = triton.sums.aggregate_stored(block, stored, *factors)
        assert equal(list(found), list(numba.sums.aggregate_stored(block, stored, *factors))) and found[0].dtype == kind
    original = block.src_ids
    for p in (0.0, 0.37, 1.0):
        found = triton.rows.dropout_stored(stored, original, Drop(p, DROP.key))
        assert equal([found], [numba.rows.dropout(rows, original, Drop(p, DROP.key), width)]) and found.dtype == kind


def test_learned_weights_of_stored_rows_have_gradients() -> None:
    block, weight = make_block(3, 5, 6, 1), normal(torch.float64, 6)
    stored = StoredRows(normal(torch.float64, 9, 4), torch.arange(5) + 3, torch.float64)
    numba, triton = (
        passed(lambda w, k=k: k.sums.aggregate_stored(block, stored, w.unsqueeze(1), None)[0], weight) for k in both()
    )
    assert near(triton, numba)


@given(blocks(), st.sampled_from([1, 16, 21]), st.booleans(), st.sampled_from([0.0, 0.37]))
@settings(max_examples=8)
def test_rows_between_layers_in_bfloat16_have_the_bits_of_rounded_rows(
    block: Block, width: int, at_places: bool, p: float
) -> None:
    """Forward and backward, from the rows before ReLU and dropout to sums and own rows."""
    if at_places:
        block = replace(block, dst_positions=torch.arange(block.num_dst).flip(0) + 1)
    before, drop = normal(torch.float32, block.num_src, width), Drop(p, DROP.key)
    weight, scale = normal(torch.float32, block.num_edges, 1), normal(torch.float32, block.num_src)

    def run(kernels: Backend, x: Tensor, *factors: Tensor | None) -> Tensor:
        values = kernels.rows.relu_dropout_rounded(x, block.src_ids, drop)
        assert values.dtype == torch.bfloat16
        sums, own = kernels.sums.aggregate_stored(block, StoredRows(values, None, torch.float32), *factors)
        return torch.cat((sums, own * 1.5, sums * own), 1)

    for factors in ((None, None), (weight, None), (None, scale.abs())):
        numba, triton = (passed(lambda x, k=k, f=factors: run(k, x, *f), before) for k in both())
        assert equal(triton, numba) and triton[1].dtype == torch.float32


def test_rounding_to_bfloat16_is_that_of_torch() -> None:
    bits = torch.tensor(
        [
            0x3F808000,
            0x3F818000,
            0x3F808001,
            0x3F807FFF,
            0x7F7FFFFF,
            0x7F800000,
            0x7FC00001,
            0x00008000,
            0x00018000,
            0x00000001,
            0,
        ],
        dtype=torch.int32,
    )
    x = torch.cat((bits.view(torch.float32), normal(torch.float32, 500).exp())).unsqueeze(0)
    numba, triton = (k.rows.relu_dropout_rounded(x, torch.zeros(1, dtype=torch.int64), Drop(0.0, 1)) for k in both())
    assert torch.equal(triton.isnan(), numba.isnan()) and torch.equal(triton.nan_to_num(7), numba.nan_to_num(7))
    wide = normal(torch.float64, 3, 4)
    numba, triton = (k.rows.relu_dropout_rounded(wide, torch.arange(3), DROP) for k in both())
    assert torch.equal(triton, numba) and triton.dtype == torch.bfloat16


def test_either_result_of_stored_rows_may_be_unused() -> None:
    block = make_block(3, 5, 6, 1)
    for place in (0, 1):
        numba, triton = (
            passed(
                lambda x, k=k, i=place: k.sums.aggregate_stored(
                    block, StoredRows(x.bfloat16(), None, torch.float32), None, None
                )[i],
                normal(torch.float32, 5, 4),
            )
            for k in both()
        )
        assert equal(triton, numba)


@given(blocks(), st.sampled_from(KINDS), st.sampled_from([1, 3, 5]))
@settings(max_examples=6)
def test_sums_with_weights_of_heads_and_all_gradients(block: Block, kind: torch.dtype, heads: int) -> None:
    x, weight = normal(kind, block.num_src, 4 * heads), normal(kind, block.num_edges, heads)
    column = torch.arange(4 * heads) // 4
    numba, triton = (passed(lambda x, w, k=k: k.sums.aggregate(block, x, w, column), x, weight) for k in both())
    assert equal(triton[:2], numba[:2]) and near(triton, numba)
    numba, triton = (passed(lambda x, w, k=k: k.sums.aggregate_outer(block, x, w), x, weight) for k in both())
    assert equal(triton[:2], numba[:2]) and near(triton, numba)


@given(blocks(), st.sampled_from(KINDS), st.sampled_from([1, 4, 6]), st.sampled_from([0.0, 0.6, 1.0]))
@settings(max_examples=8)
def test_attention_with_dropout_and_all_gradients(block: Block, kind: torch.dtype, heads: int, p: float) -> None:
    keys = normal(kind, block.num_src, heads), normal(kind, block.num_dst, heads)
    drop = Drop(p, DROP.key) if p else None
    numba, triton = (passed(lambda s, d, k=k: k.edges.attention_weight(block, s, d, 0.2, drop), *keys) for k in both())
    assert near(triton, numba) and torch.equal(triton[0] == 0, numba[0] == 0)


@given(blocks(), st.sampled_from(KINDS), st.sampled_from([1, 4, 6]))
@settings(max_examples=6)
def test_masks_of_edges_have_the_bits_of_numba(block: Block, kind: torch.dtype, heads: int) -> None:
    weight = normal(kind, block.num_edges, heads)
    numba, triton = (passed(lambda w, k=k: k.edges.dropout(block, w, DROP), weight) for k in both())
    assert equal(triton, numba)


@given(
    st.integers(0, 9),
    st.integers(1, 40),
    st.integers(0, 9),
    st.sampled_from(KINDS),
    st.booleans(),
    st.sampled_from([0.0, 1e-4, 0.37, 1.0]),
)
@settings(max_examples=12)
def test_masks_of_rows_have_the_bits_of_numba(
    num_rows: int, width: int, start: int, kind: torch.dtype, long: bool, p: float
) -> None:
    wide, drop = normal(kind, num_rows, width + start), Drop(p, DROP.key)
    ids = torch.arange(num_rows, dtype=torch.int64 if long else torch.int32) * 7919 + (1 << 33 if long else 0)
    for name in ("dropout", "relu_dropout"):
        numba, triton = (
            passed(lambda x, k=k, name=name: getattr(k.rows, name)(x, ids, drop, width + start, start), wide[:, start:])
            for k in both()
        )
        assert equal(triton, numba)


@each_kind
def test_masks_of_sparse_rows_have_the_bits_of_numba(kind: torch.dtype) -> None:
    values = normal(kind, 150)
    rows = SparseRows(torch.tensor([0, 0, 140, 150]), torch.arange(150, dtype=torch.int32) % 140, values, 141)
    numba, triton = (k.rows.sparse_dropout(rows, torch.tensor([5, 6, 1 << 40]), DROP).values for k in both())
    assert torch.equal(triton, numba) and 0 < int((triton == 0).sum()) < 150


@each_kind
def test_long_rows_are_sums_of_segments_in_order(kind: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    from gnnexp.kernels.cuda import aggregate

    monkeypatch.setattr(aggregate, "LONG", 4)
    block = Block(torch.tensor([0, 3, 3, 17, 21, 34]), torch.arange(34, dtype=torch.int32) % 5, torch.arange(5), 5)
    x, weight = normal(kind, 5, 3), normal(kind, 34, 1)
    stored = StoredRows(x.flip(0), torch.arange(5).flip(0), kind)
    out, *_ = passed(lambda x: make_backend("triton", CPU).sums.aggregate(block, x, None, None), x)
    assert torch.equal(make_backend("triton", CPU).sums.aggregate_stored(block, stored, None, None)[0], out)
    for row in range(5):
        begin, end = block.indptr[row : row + 2].tolist()
        cuts = [begin, *(e for e in range(begin + 1, end) if e % 4 == 0 and end - begin > 4), end]
        parts = [
            sum((x[int(block.sources[e])] for e in range(first, last)), torch.zeros(3, dtype=kind))
            for first, last in pairwise(cuts)
        ]
        assert torch.equal(out[row], sum(parts[1:], parts[0]))
    numba, triton = (passed(lambda x, w, k=k: k.sums.aggregate(block, x, w, None), x, weight) for k in both())
    assert near(triton, numba)


def test_inner_products_of_rows_wider_than_a_tile_add_up() -> None:
    block, column = make_block(3, 5, 6, 1), torch.tensor([0] * 300 + [1] * 7 + [0] * 2)
    x, weight = normal(torch.float64, 5, 309), normal(torch.float64, 6, 2)
    numba, triton = (passed(lambda x, w, k=k: k.sums.aggregate(block, x, w, column), x, weight) for k in both())
    assert equal(triton[:2], numba[:2]) and near(triton, numba)
    assert near(*(passed(lambda w, k=k: k.sums.aggregate(block, x, w, column), weight) for k in both()))


def test_offsets_beyond_2_to_31(tmp_path: Path) -> None:
    """Rows and weights that lie more than 2^31 elements after the first, in sparse files."""
    from gnnexp.kernels.cuda.aggregate import Edges, Heads, sum_rows

    far = (1 << 31) + 8
    table = torch.from_numpy(np.memmap(tmp_path / "rows", np.float32, "w+", shape=(far + 8,)))
    weight = torch.from_numpy(np.memmap(tmp_path / "weights", np.float32, "w+", shape=(far, 1)))
    x = table.as_strided((3, 4), (far // 2, 1))
    x.copy_(normal(torch.float32, 3, 4))
    weight[far - 3 :] = normal(torch.float32, 3, 1)
    indptr, index = torch.tensor([0, 3]), torch.tensor([2, 0, 2], dtype=torch.int32)
    expected = sum_rows(Edges(indptr, index), x.clone(), [Heads(0, 4)], weight[far - 3 :].clone())
    at = torch.tensor([far - 3, far - 2, far - 1])
    for last, ids in (([5, 0, 5], [0, 0, 0, 0, 0, 2]), ([1, 0, 1], [0, 2])):
        through = Edges(indptr, torch.tensor(last, dtype=torch.int32), at, torch.tensor(ids, dtype=torch.int32))
        assert torch.equal(sum_rows(through, x, [Heads(0, 4)], weight), expected)
    assert torch.equal(sum_rows(Edges(indptr, index, at), x, [Heads(0, 4)], weight), expected)
    numba, triton = both()
    ids = torch.arange(3)
    assert torch.equal(triton.rows.dropout(x, ids, DROP, 4), numba.rows.dropout(x.clone(), ids, DROP, 4))
    stored = StoredRows(x, torch.tensor([2, 0]), torch.float32)
    assert torch.equal(
        triton.rows.dropout_stored(stored, ids[:2], DROP), numba.rows.dropout(x[[2, 0]], ids[:2], DROP, 4)
    )


def test_a_missing_number_stays_missing() -> None:
    x = torch.tensor([[float("nan"), -1.0, 2.0]])
    for backend in both():
        assert backend.rows.relu_dropout(x, torch.zeros(1, dtype=torch.int64), Drop(0.0, 1), 3).tolist()[0][1:] == [
            0,
            2,
        ]
        assert backend.rows.relu_dropout(x, torch.zeros(1, dtype=torch.int64), Drop(0.0, 1), 3).isnan().sum() == 1
