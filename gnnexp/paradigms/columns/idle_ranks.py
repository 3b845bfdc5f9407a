"""Ranks without columns, if there are fewer columns than ranks. They aggregate nothing, and exchange as all others do.

A backward exchange needs all ranks, but autograd runs it only where a result depends on what was exchanged. An empty
result may depend on nothing: kernels and layers return new empty tensors. So the dependence is made here, on all ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gnnexp.comm.tensor_split import ColumnLayout
from gnnexp.ops.first_order import FirstOrderFunction, applied


def own_columns(compute: Callable[[], Tensor], layout: ColumnLayout, x: Tensor, *more: Tensor | None) -> Tensor:
    """`[V, d]`: the results of `compute` on a rank with columns, and `[V, 0]` on a rank without.

    If every rank has columns, this is `compute()`. If not, the results on all ranks also depend on `x` and `more`.

    Args:
        compute: function that returns `[V, d]`, the columns of this rank. It sends nothing.
        layout: columns of all ranks in the results.
        x: `[V, .]` rows from which it computes them.
        more: other tensors from which it computes them; None is left out.
    """
    if all(layout.widths):
        return compute()
    own = compute() if layout.width else x.new_empty(x.shape[0], 0)
    return applied(_Dependent, own, x, *(tensor for tensor in more if tensor is not None))


def any_parameter() -> Tensor:
    """A scalar that takes a gradient, in place of parameters of a layer."""
    return torch.zeros((), requires_grad=torch.is_grad_enabled())


class _Dependent(FirstOrderFunction):
    """The first tensor, as a function of all of them. The others get no gradient from here."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, *others: Tensor) -> Tensor:  # noqa: ANN401
        ctx.num_others = len(others)
        return own.view_as(own)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        return gradient, *[None] * ctx.num_others
