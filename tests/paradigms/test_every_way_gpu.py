"""Every exact way of training on CUDA, with 1 to 4 ranks and the models of the papers, against one CPU worker.

`make gpu-proof` trains those of 1, 2 and 4 ranks, with more models, on a real device.
"""

from __future__ import annotations

import pytest
import torch

from gnnexp.testing.on_gpu import GpuCase, cases, train_on_gpu
from gnnexp.testing.ranks import RankPools

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible"),
]

CASES = list(cases((1, 2, 3, 4), ("gcn", "sage", "gin", "gat", "rgcn")))


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_losses_gradients_and_counts_are_those_of_the_cpu(ranks: RankPools, case: GpuCase) -> None:
    found = train_on_gpu(ranks, case, steps=6)
    assert not found.problems
