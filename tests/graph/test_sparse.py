"""Sparse rows stand in for a dense matrix."""

from __future__ import annotations

from itertools import pairwise

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


def dense_rows(num_rows: int, num_columns: int, seed: int) -> torch.Tensor:
    """Rows of which `sparse_rows` keeps all entries above 0; about half are 0, some rows are empty."""
    draws = torch.rand(num_rows, num_columns, generator=torch.Generator().manual_seed(seed))
    return torch.where(draws > 0.5, draws, 0)


def well_formed(rows: SparseRows) -> None:
    """Offsets and columns are as `SparseRows` promises, in the promised dtypes."""
    assert (rows.indptr.dtype, rows.columns.dtype) == (torch.int64, torch.int32)
    assert int(rows.indptr[0]) == 0 and int(rows.indptr[-1]) == rows.columns.numel() == rows.values.numel()
    for first, last in pairwise(rows.indptr.tolist()):
        columns = rows.columns[first:last].tolist()
        assert columns == sorted(set(columns))
        assert all(0 <= column < rows.num_columns for column in columns)


@settings(max_examples=80)
@given(st.integers(0, 9), st.integers(0, 9), st.lists(st.integers(0, 9), max_size=4), st.integers(0, 99))
def test_slices_of_columns_side_by_side_are_the_rows(
    num_rows: int, num_columns: int, cuts: list[int], seed: int
) -> None:
    dense = dense_rows(num_rows, num_columns, seed)
    rows = sparse_rows(dense)
    bounds = [0, *sorted(min(cut, num_columns) for cut in cuts), num_columns]
    parts = [rows.columns_between(start, stop) for start, stop in pairwise(bounds)]
    for part, (start, stop) in zip(parts, pairwise(bounds), strict=True):
        well_formed(part)
        assert part.shape == (num_rows, stop - start)
        assert torch.equal(part.to_dense(), dense[:, start:stop])
    assert torch.equal(torch.cat([part.to_dense() for part in parts], 1), dense)
    assert sum(part.values.numel() for part in parts) == rows.values.numel()


@settings(max_examples=80)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=5), st.integers(0, 6), st.integers(0, 99))
def test_rows_cut_apart_and_put_together_are_the_same_rows(sizes: list[int], num_columns: int, seed: int) -> None:
    dense = dense_rows(sum(sizes), num_columns, seed)
    rows = sparse_rows(dense)
    places = torch.split(torch.arange(sum(sizes)), sizes)
    parts = [rows.rows(ids) for ids in places]
    whole = SparseRows.concatenated(parts)
    well_formed(whole)
    for name in ("indptr", "columns", "values"):
        assert torch.equal(getattr(whole, name), getattr(rows, name))
    assert whole.shape == (sum(sizes), num_columns)
    backwards = SparseRows.concatenated(parts[::-1])
    assert torch.equal(backwards.to_dense(), torch.cat([dense[ids] for ids in places[::-1]]))
    if len(parts) > 1:
        joined = SparseRows.concatenated(parts[:2])
        assert torch.equal(joined.to_dense(), torch.cat([dense[ids] for ids in places[:2]]))


def test_putting_together_changes_no_part() -> None:
    parts = [sparse_rows(dense_rows(3, 4, seed)) for seed in range(3)]
    before = [part.indptr.clone() for part in parts]
    SparseRows.concatenated(parts).values.zero_()
    assert all(torch.equal(part.indptr, indptr) for part, indptr in zip(parts, before, strict=True))
    assert any(float(part.values.sum()) for part in parts)


def test_dtype_and_bytes() -> None:
    rows = SparseRows(torch.tensor([0, 2, 2]), torch.tensor([0, 3], dtype=torch.int32), torch.tensor([1.0, 2.0]), 5)
    assert rows.dtype == torch.float32
    assert rows.nbytes == 3 * 8 + 2 * 4 + 2 * 4
    assert rows.to(torch.float64).dtype == torch.float64
    assert torch.equal(rows.to(torch.float64).to_dense(), rows.to_dense().double())
