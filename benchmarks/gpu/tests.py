"""Training on ranks that share the GPU against one CPU worker: every exact way and model, on 1, then 2 and 4 ranks."""

from __future__ import annotations

import time
from functools import partial

from benchmarks.gpu.report import ERROR, Row
from benchmarks.gpu.stage import Stage
from gnnexp.testing.on_gpu import GpuCase, cases, train_on_gpu
from gnnexp.testing.ranks import RankPools

SIZES, STEPS = (1, 2, 4), 6
QUICK_SIZES, QUICK_STEPS, QUICK_MODELS = (1, 2), 2, ("sage",)
QUICK_WAYS = ("data", "split", "coupled", "offload")


def run(stage: Stage) -> bool:
    """Every case that time allows, in order; whether that was all."""
    planned = list(cases(QUICK_SIZES, QUICK_MODELS, QUICK_WAYS) if stage.quick else cases(SIZES))
    steps, pools = QUICK_STEPS if stage.quick else STEPS, RankPools()
    try:
        for case in planned:
            if stage.left_s <= 0:
                return False
            stage.check(case.name, partial(_row, pools, case, steps))
    finally:
        pools.close()
    return True


def _row(pools: RankPools, case: GpuCase, steps: int) -> Row:
    start = time.perf_counter()
    found = train_on_gpu(pools, case, steps)
    words = "; ".join(found.problems) or f"{steps} steps in {time.perf_counter() - start:.1f} s"
    return Row(case.name, not found.problems, found.error, ERROR, words=words)
