"""The same maths in fewer passes over memory, for where everything of a layer is local.

A hidden layer is far larger than the caches, so each elementwise pass over `[D, C]` costs as much as a good part of a
matrix product. In the backward of products-like batches the slice of the destinations alone filled, copied and added
`[S, C]`; bias, self part and mean took three passes more.
"""

# ruff: noqa: ANN401  autograd's contexts have no types
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnexp.kernels.rows.gather import add_rows
from gnnexp.ops.first_order import FirstOrderFunction


class SplitDestinations(FirstOrderFunction):
    """`(h, h[places])` whose backward adds the second gradient to the first instead of padding it with zeros."""

    @staticmethod
    def run(h: Tensor, places: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Typed `apply`: `[S, d]` to `([S, d], [n, d])`; `places` `[n]` are distinct."""
        if not h.requires_grad:
            return h, h[places]
        both: tuple[Tensor, Tensor] = SplitDestinations.apply(h, places)  # type: ignore[no-untyped-call]
        return both

    @staticmethod
    def forward(ctx: Any, h: Tensor, places: slice | Tensor) -> tuple[Tensor, Tensor]:
        """A view, and a view or a copy."""
        ctx.places = places
        ctx.set_materialize_grads(False)
        ctx.shape, ctx.like = h.shape, h.detach()[:0]
        return h.view_as(h), h[places]

    @staticmethod
    def backward(ctx: Any, whole: Tensor | None, own: Tensor | None) -> tuple[Tensor | None, None]:
        """Their sum, in a buffer of its own: whoever made the gradient of the whole may use it again.

        `h + z` gives one gradient to both of its inputs, a sum of all entries one that is expanded.
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
    elif rows.is_cuda:
        rows.index_add_(0, places, values)
    else:
        add_rows(rows, places, values)


class SumOfLinears(FirstOrderFunction):
    """`x A^T + y B^T + bias`: the second product accumulates onto the first, one buffer, no passes between."""

    @staticmethod
    def run(x: Tensor, a: Tensor, y: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
        """Typed `apply`: `[N, i]`, `[C, i]`, `[N, j]`, `[C, j]`, `[C]` to `[N, C]`."""
        out: Tensor = SumOfLinears.apply(x, a, y, b, bias)  # type: ignore[no-untyped-call]
        return out

    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor, y: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
        """Two products into one buffer."""
        ctx.save_for_backward(x, a, y, b)
        ctx.has_bias = bias is not None
        out = torch.mm(x, a.T) if bias is None else torch.addmm(bias, x, a.T)
        return out.addmm_(y, b.T)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Only the products that are asked for."""
        x, a, y, b = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        return (
            grad @ a if wanted[0] else None,
            grad.T @ x if wanted[1] else None,
            grad @ b if wanted[2] else None,
            grad.T @ y if wanted[3] else None,
            grad.sum(0) if wanted[4] and ctx.has_bias else None,
        )
