"""Every model trains with Triton's kernels, interpreted, as it does with numba's."""

from __future__ import annotations

import pytest
from fused_interpreter import needs_fused_interpreter

from gnnexp.ops.backends import is_interpreted
from gnnexp.testing.on_gpu import ALL_MODELS, GpuCase
from gnnexp.testing.steps import global_losses, run_steps, worst_gradient_error, worst_loss_error

pytestmark = [
    needs_fused_interpreter,
    pytest.mark.skipif(not is_interpreted(), reason="run by tests/kernels/test_triton.py"),
]


@pytest.mark.parametrize("model", ALL_MODELS)
def test_losses_and_gradients_are_those_of_numba(model: str) -> None:
    case = GpuCase(1, model, "data")
    triton, numba = (run_steps(case.config("cpu", kernel), case.make(), 2) for kernel in ("triton", "numba"))
    assert worst_loss_error(global_losses([triton]), global_losses([numba])) <= 1e-14
    assert worst_gradient_error(triton, numba) <= 1e-13
    if model in ("gcn", "sage", "gin"):  # only sums in edge order and masks: the same bits
        assert triton.losses == numba.losses and worst_gradient_error(triton, numba) == 0
