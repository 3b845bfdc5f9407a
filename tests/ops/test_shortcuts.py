"""Shortcuts of the backward pass give autograd's own gradients, whoever else uses a gradient."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gnnexp.ops.shortcuts import SplitDestinations, SumOfLinears

USES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "an addition, which gives both inputs one gradient": lambda whole, own, z: (whole + z).cos().sum() + own.sum(),
    "the same, and the addition comes last": lambda whole, own, z: (own * own).sum() + (z + whole).cos().sum(),
    "a sum, whose gradient is expanded": lambda whole, own, z: whole.sum() + (own * own).sum(),
    "a concatenation, whose gradients are views": lambda whole, own, z: torch.cat([whole, z]).cos().sum() + own.sum(),
    "the whole alone": lambda whole, own, z: (whole * z).sum(),
    "the destinations alone": lambda whole, own, z: own.cos().sum(),
    "transposed": lambda whole, own, z: (whole.T.contiguous().T * z).sum() + own.cos().sum(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("places", [slice(2), torch.tensor([3, 0]), torch.tensor([], dtype=torch.int64)], ids=str)
def test_gradients_are_those_of_plain_slicing(use, places) -> None:
    rows = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = []
    for split in (True, False):
        leaf = rows.clone().requires_grad_()
        z, h = leaf * 2, leaf * 1
        whole, own = SplitDestinations.run(h, places) if split else (h, h[places])
        use(whole, own, z).backward()
        found.append(leaf.grad)
    torch.testing.assert_close(*found)


def test_a_gradient_that_a_hook_has_kept_stays_as_it_was() -> None:
    kept: list[Tensor] = []
    h = torch.ones(4, 3, requires_grad=True) * 1
    whole, own = SplitDestinations.run(h, slice(2))
    whole.register_hook(kept.append)
    (whole.sum() * 2 + own.sum()).backward()
    assert torch.equal(kept[0], torch.full((4, 3), 2.0))


@pytest.mark.parametrize(
    "made",
    [
        lambda x: SplitDestinations.run(x, slice(2))[0].sum() + SplitDestinations.run(x, slice(2))[1].pow(2).sum(),
        lambda x: SumOfLinears.run(x, torch.ones(2, 3), x, torch.ones(2, 3), None).pow(3).sum(),
    ],
)
def test_a_gradient_of_a_gradient_is_refused(made) -> None:
    """It would be wrong: what kernels and exchanges do in a backward pass is not seen by autograd."""
    x = torch.ones(4, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(made(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.pow(2).sum().backward()
