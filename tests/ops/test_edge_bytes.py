"""What an edge of attention takes is what `TensorMeter` sees when a block of the same vertices has more edges."""

from __future__ import annotations

import pytest
import torch
from combinations import combinations

from gnnexp.graph.block import Block
from gnnexp.measure.memory import TensorMeter
from gnnexp.ops.backend import Backend, Drop
from gnnexp.ops.backend_numba import numba_backend
from gnnexp.ops.backend_torch import torch_backend
from gnnexp.ops.edge_bytes import EdgeKind, torch_attention_bytes

VERTICES, COLUMNS, SLOPE = 32, 3, 0.2
HEADS, ROWS = [1, 2, 3, 4, 5, 8, 16], ["raw", "projected"]


def regular_block(degree: int, *, identified: bool) -> Block:
    """`degree` edges into every vertex; `identified`: with types, and numbers of parallel edges."""
    num_edges = VERTICES * degree
    sources = torch.randint(VERTICES, (num_edges,), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    zeros = torch.zeros(num_edges, dtype=torch.int32) if identified else None
    indptr, ids = torch.arange(VERTICES + 1) * degree, torch.arange(VERTICES)
    return Block(indptr, sources, ids, VERTICES, edge_types=zeros, occurrence=zeros)


def peak_bytes(backend: Backend, block: Block, heads: int, dtype: torch.dtype, rows: str, *, dropped: bool) -> int:
    """Of attention on the block, forward and backward, without the block."""
    width = COLUMNS * (heads if rows == "projected" else 1)
    x, source, destination = (torch.rand(VERTICES, n, dtype=dtype, requires_grad=True) for n in (width, heads, heads))
    drop = Drop(0.3, 12345) if dropped else None
    attend = backend.attention if rows == "projected" else backend.attention_aggregate_first
    with TensorMeter((x, source, destination, *block.arrays(), *block.transpose.arrays())) as meter:
        attend(block, x, source, destination, SLOPE, drop).sum().backward()
    return meter.peak_bytes


def of_an_edge(backend: Backend, heads: int, dtype: torch.dtype, rows: str, *, dropped: bool, identified: bool) -> int:
    """Bytes that another edge takes."""
    few, many = 100, 200
    peaks = [
        peak_bytes(backend, regular_block(degree, identified=identified), heads, dtype, rows, dropped=dropped)
        for degree in (few, many)
    ]
    whole, rest = divmod(peaks[1] - peaks[0], VERTICES * (many - few))
    assert rest == 0, "every edge takes the same"
    return whole


@pytest.mark.parametrize(
    ("heads", "rows", "dropped", "identified"),
    combinations(
        HEADS,
        ROWS,
        [False, True],
        [False, True],
        quick=lambda heads, rows, dropped, identified: (
            heads in (1, 4, 8) and dropped == identified == (rows == "projected")
        ),
    ),
)
def test_an_edge_of_torchs_attention(heads, rows, dropped, identified):
    found = {
        dtype: of_an_edge(torch_backend(), heads, dtype, rows, dropped=dropped, identified=identified)
        for dtype in (torch.float32, torch.float64)
    }
    stated = {dtype: torch_attention_bytes(heads, dtype.itemsize, dropped=dropped) for dtype in found}
    assert found[torch.float64] == stated[torch.float64]
    lacking = stated[torch.float32] - found[torch.float32]
    assert 0 < lacking <= 8, "on the CPU, float32 sums keep no bag of an edge"


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("heads", [1, 4, 8])
def test_an_edge_of_numbas_attention(heads, rows):
    """Signed scores, weights, and the gradients of both: `ChunkCost.of` says so."""
    for dtype in (torch.float32, torch.float64):
        found = of_an_edge(numba_backend(), heads, dtype, rows, dropped=True, identified=True)
        assert found == 4 * heads * dtype.itemsize


def test_the_identity_of_an_edge_takes_memory_only_if_edges_are_dropped_by_it():
    dropped, kept = (EdgeKind.of("numba", weighted=False, drops=on, parallel=True, typed=True) for on in (True, False))
    assert (dropped.identity, kept.identity) == (8 + 4 + 4, 0)
    assert EdgeKind.of("numba", weighted=False, drops=True, parallel=False, typed=False).identity == 0
