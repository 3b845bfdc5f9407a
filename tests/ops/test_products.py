"""Dense products with rounded factors: bit-equal to a reference that rounds by hand, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gnnexp.ops import products
from gnnexp.ops.shortcuts import sum_of_linears

CPU = torch.device("cpu")


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).requires_grad_()


def by_hand(x: torch.Tensor) -> torch.Tensor:
    """Round to 8 significant bits, ties to even, by arithmetic in float64."""
    exact = x.detach().double()
    unit = torch.exp2(torch.floor(torch.log2(exact.abs())) - 7)
    return torch.where(exact == 0, exact, torch.round(exact / unit) * unit).float()


def test_the_reference_rounds_as_torch_does():
    x = torch.cat((drawn(1000).detach(), torch.tensor([0.0, 1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-8), 2**-40])))
    assert torch.equal(by_hand(x), x.bfloat16().float())


@pytest.mark.parametrize(("a", "b"), [((5, 7), (7, 3)), ((2, 5, 7), (2, 7, 3)), ((0, 7), (7, 3)), ((5, 0), (0, 3))])
def test_products_in_bf16_round_factors_and_gradients_and_nothing_else(a, b):
    a, b = drawn(*a), drawn(*b, seed=1)
    out = products.product(a, b, "bf16")
    grad = drawn(*out.shape, seed=2).detach()
    out.backward(grad)
    rounded_a, rounded_b, rounded = by_hand(a), by_hand(b), by_hand(grad)
    assert out.dtype == torch.float32 and torch.equal(out, rounded_a @ rounded_b)
    assert torch.equal(a.grad, rounded @ rounded_b.mT) and torch.equal(b.grad, rounded_a.mT @ rounded)


def test_bf16_keeps_half_of_the_bytes_for_the_backward_pass():
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        products.product(drawn(5, 7), drawn(7, 3), "bf16")
    assert [x.dtype for x in kept] == [torch.bfloat16] * 2


def test_linears_and_their_sum_are_products():
    x, y, a, b, bias = drawn(5, 7), drawn(5, 6), drawn(3, 7), drawn(3, 6), drawn(3)
    one, other = by_hand(x) @ by_hand(a).T, by_hand(y) @ by_hand(b).T
    assert torch.equal(products.linear(x, a, "bf16"), one)
    assert torch.equal(sum_of_linears(x, a, y, b, bias, "bf16"), one + other + bias)
    heads, weight = drawn(5, 2, 7), drawn(2, 3, 7)
    by_head = torch.stack([by_hand(heads)[:, k] @ by_hand(weight)[k].T for k in range(2)], 1)
    torch.testing.assert_close(products.linear_by_head(heads, weight, "bf16"), by_head, rtol=1e-6, atol=1e-6)


def test_float32_products_are_torchs():
    x, weight = drawn(5, 7), drawn(3, 7)
    assert torch.equal(products.linear(x, weight, "float32"), torch.nn.functional.linear(x, weight))
    x, weight = drawn(5, 2, 7), drawn(2, 3, 7)
    assert torch.equal(products.linear_by_head(x, weight, "float32"), torch.einsum("nkd,kfd->nkf", x, weight))


class _Flags(TorchDispatchMode):
    """Whether TF32 is on in each product."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bool] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.name().startswith(("aten::mm", "aten::bmm", "aten::addmm")):
            self.seen.append(torch.backends.cuda.matmul.allow_tf32)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("matmul", "on"), [("tf32", True), ("float32", False), ("bf16", False)])
def test_tf32_is_on_in_the_three_products_of_tf32_only(matmul, on):
    products.full_precision()
    with _Flags() as flags:
        products.linear(drawn(5, 7), drawn(3, 7), matmul).sum().backward()
        drawn(5, 7) @ drawn(7, 3)
    assert flags.seen == [on, on, on, False]
    assert not torch.backends.cuda.matmul.allow_tf32


def test_a_rank_forgets_the_precision_that_its_process_had():
    torch.set_float32_matmul_precision("medium")
    products.full_precision()
    assert torch.get_float32_matmul_precision() == "highest" and not torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"


def test_tf32_needs_an_nvidia_gpu_and_bf16_does_not():
    (problem,) = products.matmul_problems("tf32", "cpu")
    assert problem.key == "train.matmul" and "bf16" in problem.fix
    assert products.matmul_problems("tf32", "auto") if torch.version.cuda is None else True
    assert not products.matmul_problems("bf16", "cpu") and not products.gpu_problems("bf16", CPU)
    assert products.matmul_elsewhere("tf32", CPU) == "float32" and products.matmul_elsewhere("bf16", CPU) == "bf16"
