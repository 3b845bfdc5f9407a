"""Work in chunks gives what the whole gives; what crosses into the device tier is counted by its formula."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from sparse_graphs import mostly_zero
from torch import Tensor

from gnnexp.graph.shard import BlockNeeds
from gnnexp.graph.sparse import SparseRows
from gnnexp.ops.backends import make_backend
from gnnexp.paradigms.loops.in_chunks import in_chunks
from gnnexp.placement.chunks import Chunk, cut, even_ranges
from gnnexp.samplers.expansion import Expansion
from gnnexp.testing.graphs import nasty_graph
from gnnexp.tiers.tier import DeviceTier

CPU, WIDTH = torch.device("cpu"), 3


def _forward_bytes(chunk: Chunk) -> int:
    """Of a plain chunk: offsets, degrees, sources, ids."""
    ids = chunk.block.src_ids
    return 8 * (2 * chunk.block.num_dst + 1) + 4 * chunk.block.num_edges + ids.element_size() * ids.numel()


def _transposed_bytes(chunk: Chunk) -> int:
    """Offsets, destinations, positions."""
    return 8 * (chunk.block.num_src + 1) + (4 + 8) * chunk.block.num_edges


@pytest.mark.parametrize("count", [1, 3, 7])
@pytest.mark.parametrize("constant", [True, False], ids=["transposed", "again"])
@pytest.mark.parametrize("kernel", ["numba", "torch"])
def test_topology_and_rows_cross_as_passes_need_them(kernel: str, constant: bool, count: int) -> None:
    backend, graph = make_backend(kernel, CPU), nasty_graph()
    (block,) = Expansion(graph, BlockNeeds(), (-1,)).blocks(torch.arange(graph.num_nodes), (0,))
    chunks = cut(block, even_ranges(block, count))
    tier = DeviceTier(CPU, reads_transpose=backend.reads_transpose)

    def work(chunk: Chunk, x: Tensor, _: Tensor | None) -> Tensor:
        return backend.sums.aggregate(chunk.block, x, None, None)

    def back(chunk: Chunk, gradient: Tensor, _: Tensor | None) -> Tensor:
        return backend.sums.spread(chunk.block, gradient, None)

    x = torch.randn(block.num_src, WIDTH, dtype=torch.float64, requires_grad=True)
    out = in_chunks(work, x, None, chunks, tier, width=WIDTH, transposed=back if constant else None)
    whole = backend.sums.aggregate(block, x, None, None)
    assert torch.equal(out, whole)
    gradient = torch.randn_like(out)
    (found,) = torch.autograd.grad(out, x, gradient)
    (expected,) = torch.autograd.grad(whole, x, gradient)
    torch.testing.assert_close(found, expected)
    assert tier.take_counts() == _expected(chunks, numba=kernel == "numba", constant=constant)


def _expected(chunks: Sequence[Chunk], *, numba: bool, constant: bool) -> dict[str, int]:
    if len(chunks) == 1 and chunks[0].rows is None:  # all of it is there
        return {}
    row = 8 * WIDTH
    read, made = (
        row * sum(number)
        for number in zip(*((chunk.block.num_src, chunk.block.num_dst) for chunk in chunks), strict=True)
    )
    forward, turned = sum(map(_forward_bytes, chunks)), sum(map(_transposed_bytes, chunks))
    if not numba:
        topology = 2 * forward
    elif constant:  # degrees, to divide by
        topology = forward + turned + 8 * sum(chunk.block.num_dst for chunk in chunks)
    else:
        topology = 2 * forward + turned
    return {
        "tier/h2d_bytes": topology + read + made + (0 if constant else read),
        "tier/d2h_bytes": made + read,
        "tier/host_add_bytes": read,
    }


@pytest.mark.parametrize("kernel", ["numba", "torch"])
def test_sparse_rows_cross_with_their_three_arrays_in_both_passes(kernel: str) -> None:
    """Layer 1 of a model: they are projected in the chunk, and only parameters take a gradient."""
    backend, graph = make_backend(kernel, CPU), nasty_graph()
    (block,) = Expansion(graph, BlockNeeds(), (-1,)).blocks(torch.arange(graph.num_nodes), (0,))
    chunks = cut(block, even_ranges(block, 4))
    rows = mostly_zero().features
    assert isinstance(rows, SparseRows)
    rows = rows.rows(block.src_ids.long()).to(torch.float64)
    weight = torch.randn(5, rows.num_columns, dtype=torch.float64, requires_grad=True)

    def work(chunk: Chunk, x: SparseRows, _: Tensor | None) -> Tensor:
        return backend.sums.aggregate(chunk.block, backend.sparse_linear(x, weight), None, None)

    tier = DeviceTier(CPU, reads_transpose=backend.reads_transpose)
    out = in_chunks(work, rows, None, chunks, tier, width=5)
    dense = rows.to_dense()
    expected = backend.sums.aggregate(block, dense @ weight.T, None, None)
    torch.testing.assert_close(out, expected)
    gradient = torch.randn_like(out)
    (of_weight,) = torch.autograd.grad(expected, weight, gradient)
    out.backward(gradient)
    torch.testing.assert_close(weight.grad, of_weight)
    read = [rows.rows(chunk.rows) for chunk in chunks if chunk.rows is not None]
    crossing = sum(8 * (one.shape[0] + 1) + (4 + 8) * one.values.numel() for one in read)
    topology = sum(2 * _forward_bytes(chunk) + backend.reads_transpose * _transposed_bytes(chunk) for chunk in chunks)
    made = 8 * 5 * block.num_dst
    assert tier.take_counts() == {"tier/h2d_bytes": topology + 2 * crossing + made, "tier/d2h_bytes": made}
