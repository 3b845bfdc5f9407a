"""Gathering rows equals indexing, whatever the id type, and refuses ids outside."""

import numpy as np
import pytest
import torch

from gnnexp.kernels.pool import Pool
from gnnexp.kernels.rows.gather import gather_rows


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
@pytest.mark.parametrize("pool", [None, Pool()])
@pytest.mark.parametrize(("num_rows", "width", "count"), [(7, 1, 0), (50, 17, 200), (3000, 100, 2000)])
def test_equals_indexing(kind: torch.dtype, pool: Pool | None, num_rows: int, width: int, count: int) -> None:
    x = torch.randn(num_rows, width)
    ids = torch.randint(0, num_rows, (count,), dtype=kind)
    assert torch.equal(gather_rows(x, ids, pool), x[ids.long()])


@pytest.mark.parametrize("bad", [-1, 10, 2**31])
def test_ids_outside_are_refused(bad: int) -> None:
    with pytest.raises(IndexError, match=r"0\.\.9"):
        gather_rows(torch.zeros(10, 2), torch.tensor([0, bad]))


def test_slices_and_mapped_rows(tmp_path) -> None:  # type: ignore[no-untyped-def]
    rows = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.float32, shape=(20, 6))
    rows[:] = np.arange(120).reshape(20, 6)
    ids = torch.tensor([19, 0, 3])
    assert torch.equal(gather_rows(torch.from_numpy(rows)[:, 2:5], ids), torch.from_numpy(rows[[19, 0, 3], 2:5]))
