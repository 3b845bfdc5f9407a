"""Sizes of a GPU's measurements, and tables that are larger than what is drawn."""

from __future__ import annotations

import torch

from gnnexp.planning.probes import GPU_TABLE_BYTES, Extent, on_gpu, random_rows, timed


def test_tables_are_4_gib_where_memory_allows() -> None:
    large, small = on_gpu(Extent(), 140 << 30), on_gpu(Extent(), 8 << 30)
    assert large.table_bytes == GPU_TABLE_BYTES and large.host_bytes == 1 << 30 and large.rows == 1 << 19
    assert small.table_bytes == 1 << 30 and small.rows == 1 << 17
    assert (small.repetitions, small.edges) == (Extent().repetitions, Extent().edges)
    # Rows of dense products, their gradients and outputs: 1,216 columns of inputs, at most 512 of one product's output.
    assert 4 * large.rows * (1216 + 512) < 8 * large.table_bytes


def test_rows_are_drawn_once_and_repeated() -> None:
    cpu = torch.device("cpu")
    few, many = random_rows(10, 3, cpu), random_rows(10_000, 3, cpu)
    assert few.shape == (10, 3) and many.shape == (10_000, 3) and torch.equal(many[:10], random_rows(4096, 3, cpu)[:10])
    assert torch.equal(many[4096:8192], many[:4096]) and many.unique().numel() > 10_000


def test_work_is_done_once_each_time_that_it_is_timed() -> None:
    done: list[int] = []
    assert timed(lambda: done.append(1), torch.device("cpu")) > 0 and done == [1]
