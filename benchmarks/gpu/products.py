"""Dense products of large square matrices: what the device reaches in every precision."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from benchmarks.gpu.report import Row
from benchmarks.gpu.stage import Stage, rate


def product_rates(stage: Stage) -> Iterator[Row]:
    """One row for each precision; the target of none is known before a GPU was measured."""
    side, bench = 64 if stage.quick or stage.emulated else 8192, stage.bench()
    x = torch.rand(side, side, generator=torch.Generator().manual_seed(0)).to(stage.device)
    half = x.bfloat16()
    before = torch.get_float32_matmul_precision()
    try:
        for name, precision, factor, ceiling in (
            ("float32", "highest", x, stage.ceiling.float32), ("tf32", "high", x, stage.ceiling.tf32),
            ("bf16", "highest", half, stage.ceiling.bf16),
        ):
            torch.set_float32_matmul_precision(precision)
            found = bench.rates(2 * side**3, lambda factor=factor: factor @ factor)  # type: ignore[misc]
            yield rate(f"product, {name}", found, "operations/s", ceiling)
    finally:
        torch.set_float32_matmul_precision(before)
