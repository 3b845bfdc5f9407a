"""Triton's kernels on a GPU, compiled; on an emulated one, interpreted (`make test-emulated-gpu`)."""

from __future__ import annotations

import pytest
import torch

from emulated_gpu import counting, is_wanted
from gnnexp.ops.backend import Drop
from gnnexp.ops.backend_numba import numba_backend
from gnnexp.ops.backends import has_nvidia_gpu_build, has_triton, is_interpreted, make_backend
from gnnexp.testing.blocks import make_block
from gnnexp.testing.on_gpu import ALL_MODELS, GpuCase
from gnnexp.testing.steps import run_steps, worst_gradient_error
from gnnexp.testing.ways import placed

_RUNS = has_triton() and (has_nvidia_gpu_build() or is_interpreted())
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not _RUNS, reason="Triton is missing, or only interpreted")]


@pytest.mark.parametrize("model", ALL_MODELS)
@pytest.mark.parametrize("way", ["data", pytest.param("offload", marks=pytest.mark.slow)])
def test_gradients_are_those_of_numba_on_the_cpu(way: str, model: str) -> None:
    case = GpuCase(1, model, way)
    partition = placed(way, case.make(), 1)
    found, expected, torch_on_cpu = (
        run_steps(case.config(device, kernel), case.make(), 2, partition)
        for device, kernel in (("cuda", "triton"), ("cpu", "numba"), ("cpu", "torch"))
    )
    assert worst_gradient_error(found, expected) <= 1e-10
    assert found.work == torch_on_cpu.work  # numba's kernels also move the transposes of chunks


@pytest.mark.skipif(not is_wanted(), reason="only the emulated device counts launches")
def test_a_sum_is_one_launch_in_either_direction_and_waits_for_nothing() -> None:
    gpu = torch.device("cuda")
    block, backend = make_block(13, 29, 90), make_backend("triton", gpu)
    x, weight = torch.randn(29, 16), torch.rand(90, 1)
    there, leaves = block.to(gpu), [x.to(gpu).requires_grad_(), weight.to(gpu).requires_grad_()]
    with counting() as counts:
        out = backend.sums.aggregate(there, *leaves, None)
    assert counts.totals == {"launches": 1}
    upstream = torch.ones_like(out)
    with counting() as counts:
        assert there.transpose
    assert not counts.totals["waits"] and not counts.totals["h2d_copies"] and not counts.totals["d2h_copies"]
    with counting() as counts:
        gradients = torch.autograd.grad(out, leaves, upstream)
    assert counts.kernels["launches", "gnnexp_triton::edge_pass_kernel"] == counts.totals["launches"] == 1
    here = [x.requires_grad_(), weight.requires_grad_()]
    expected = numba_backend().sums.aggregate(block, *here, None)
    assert torch.equal(out.cpu(), expected)
    assert torch.equal(gradients[0].cpu(), torch.autograd.grad(expected, here, torch.ones_like(expected))[0])


@pytest.mark.skipif(not is_wanted(), reason="the emulated device finds a missing wait")
def test_a_kernel_must_not_read_what_another_stream_writes() -> None:
    gpu = torch.device("cuda")
    backend, ids = make_backend("triton", gpu), torch.arange(3, device=gpu)
    x, aside = torch.ones(3, 4, device=gpu), torch.cuda.Stream(gpu)
    with torch.cuda.stream(aside), pytest.raises(RuntimeError, match=r"drop_rows_kernel on stream .* reads memory"):
        backend.rows.dropout(x, ids, Drop(0.5, 1), 4)
    torch.cuda.synchronize()
