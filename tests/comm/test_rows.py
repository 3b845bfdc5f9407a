"""Rows, dense and sparse: every one arrives, bytes and rounds by formula."""

from __future__ import annotations

import pytest
import torch
from exchanging import Sent, connect, counts, how_many, rows_for, traffic
from small_graphs import sparse_rows

from gnnexp.comm.rows import exchange_rows
from gnnexp.graph.sparse import SparseRows


def sparse_for(sender: int, receiver: int, width: int, dtype: torch.dtype) -> SparseRows:
    """About half of the entries are there; rows may be empty."""
    return sparse_rows(rows_for(sender, receiver, width, dtype))


def _sparse(width: int, dtype: torch.dtype) -> tuple[Sent, int, int]:
    comm = connect()
    sent, received = counts(comm)
    mine = [sparse_for(comm.rank, other, width, dtype) for other in range(comm.size)]
    theirs = [sparse_for(other, comm.rank, width, dtype) for other in range(comm.size)]
    found = exchange_rows(SparseRows.concatenated(mine), sent, received, comm, "features")
    assert isinstance(found, SparseRows)
    expected = SparseRows.concatenated(theirs)
    for name in ("indptr", "columns", "values"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
        assert getattr(found, name).dtype == getattr(expected, name).dtype, name
    assert found.shape == (sum(received), width)
    return traffic(comm), sum(sent), sum(rows.values.numel() for rows in mine)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("width", [1, 9])
def test_sparse_rows_travel_as_lengths_columns_and_values(ranks, size, width, dtype):
    for found, rows, entries in ranks(size).run(_sparse, width, dtype):
        assert found == {"sizes": ((size - 1) * 8, 1), "features": (4 * rows + entries * (4 + dtype.itemsize), 1)}


def _dense() -> Sent:
    comm = connect()
    sent, received = counts(comm)
    rows = torch.cat([rows_for(comm.rank, other) for other in range(comm.size)])
    found = exchange_rows(rows, sent, received, comm, "features")
    assert isinstance(found, torch.Tensor)
    assert torch.equal(found, torch.cat([rows_for(other, comm.rank) for other in range(comm.size)]))
    return traffic(comm)


def test_dense_rows_travel_as_they_are(ranks):
    for rank, found in enumerate(ranks(3).run(_dense)):
        assert found == {"features": (sum(how_many(rank, other) for other in range(3)) * 3 * 8, 1)}
