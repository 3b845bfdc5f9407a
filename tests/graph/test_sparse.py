"""Sparse rows stand in for a dense matrix."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_graphs import sparse_rows

from gnnexp.graph.sparse import SparseRows


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 9), st.integers(1, 7), st.lists(st.integers(0, 8), max_size=20), st.integers(0, 99))
def test_rows_are_the_rows_of_the_dense_matrix(num_rows: int, num_columns: int, ids: list[int], seed: int) -> None:
    dense = torch.rand(num_rows, num_columns, generator=torch.Generator().manual_seed(seed))
    rows = sparse_rows(dense)
    kept = torch.where(dense > 0.5, dense, 0)
    chosen = torch.tensor([i for i in ids if i < num_rows], dtype=torch.int64)
    assert rows.shape == (num_rows, num_columns)
    assert torch.equal(rows.to_dense(), kept)
    assert torch.equal(rows.rows(chosen).to_dense(), kept[chosen])
    assert torch.equal(rows.rows(chosen.to(torch.int32)).to_dense(), kept[chosen])


def test_dtype_and_bytes() -> None:
    rows = SparseRows(torch.tensor([0, 2, 2]), torch.tensor([0, 3], dtype=torch.int32), torch.tensor([1.0, 2.0]), 5)
    assert rows.dtype == torch.float32
    assert rows.nbytes() == 3 * 8 + 2 * 4 + 2 * 4
    assert rows.to(torch.float64).dtype == torch.float64
    assert torch.equal(rows.to(torch.float64).to_dense(), rows.to_dense().double())
