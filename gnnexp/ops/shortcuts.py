"""The same maths in fewer passes over memory, for layers whose rows are all local.

A hidden layer is far larger than the caches, so an elementwise pass over `[D, C]` takes a large part of the time of a
matrix product. Without this module, the backward pass of products-like batches filled, copied and added `[S, C]` only
for the slice of the destinations. Bias, self part and mean took three more passes.
"""

# ruff: noqa: ANN401  autograd's contexts have no types
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnexp.components.schema import Matmul
from gnnexp.kernels.rows.gather import add_rows
from gnnexp.ops.first_order import FirstOrderFunction, applied
from gnnexp.ops.products import linear


class SplitDestinations(FirstOrderFunction):
    """`(h, h[places])` whose backward adds the second gradient to the first instead of padding it with zeros."""

    @staticmethod
    def run(h: Tensor, places: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Both results, `([S, d], [n, d])`, from `h` `[S, d]` and the distinct `places` `[n]`."""
        if not h.requires_grad:
            return h, h[places]
        return applied(SplitDestinations, h, places)

    @staticmethod
    def forward(ctx: Any, h: Tensor, places: slice | Tensor) -> tuple[Tensor, Tensor]:
        """A view of `h`, and a view or a copy of its rows."""
        ctx.places = places
        ctx.set_materialize_grads(False)
        ctx.shape, ctx.like = h.shape, h.detach()[:0]
        return h.view_as(h), h[places]

    @staticmethod
    def backward(ctx: Any, whole: Tensor | None, own: Tensor | None) -> tuple[Tensor | None, None]:
        """The sum of both gradients in a new buffer, because the gradient of the whole may be in use elsewhere.

        For example, `h + z` gives the same gradient to both inputs, and a sum of all entries gives an expanded one.
        """
        if own is None:
            return whole, None
        total = ctx.like.new_zeros(ctx.shape) if whole is None else whole.clone(memory_format=torch.contiguous_format)
        add_at(total, ctx.places, own)
        return total, None


def add_at(rows: Tensor, places: slice | Tensor, values: Tensor) -> None:
    """`rows[places] += values`, in place; `places` are distinct."""
    if isinstance(places, slice):
        rows[places] += values
    else:
        add_rows(rows, places, values)


def sum_of_linears(x: Tensor, a: Tensor, y: Tensor, b: Tensor, bias: Tensor | None, matmul: Matmul) -> Tensor:
    """`x A^T + y B^T + bias`: in one buffer, unless factors are rounded. Shapes are those of `SumOfLinears.run`."""
    if matmul == "float32":
        return SumOfLinears.run(x, a, y, b, bias)
    both = linear(x, a, matmul) + linear(y, b, matmul)
    return both if bias is None else both + bias


class SumOfLinears(FirstOrderFunction):
    """`x A^T + y B^T + bias` in one buffer: the second product adds to the first."""

    @staticmethod
    def run(x: Tensor, a: Tensor, y: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
        """`[N, C]` from `x` `[N, i]`, `a` `[C, i]`, `y` `[N, j]`, `b` `[C, j]` and `bias` `[C]`."""
        return applied(SumOfLinears, x, a, y, b, bias)

    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor, y: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
        """Two products into one buffer."""
        ctx.save_for_backward(x, a, y, b)
        ctx.has_bias = bias is not None
        out = torch.mm(x, a.T) if bias is None else torch.addmm(bias, x, a.T)
        return out.addmm_(y, b.T)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Only the gradients that autograd needs."""
        x, a, y, b = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        return (
            grad @ a if wanted[0] else None,
            grad.T @ x if wanted[1] else None,
            grad @ b if wanted[2] else None,
            grad.T @ y if wanted[3] else None,
            grad.sum(0) if wanted[4] and ctx.has_bias else None,
        )
