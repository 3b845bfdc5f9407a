"""Scores that are sums of products of both ends' outputs, of all pairs of a batch at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gnnexp.kernels.rows.products import product_gradients, score_pairs
from gnnexp.ops.first_order import FirstOrderFunction

_NONE = np.empty(0, np.int64)


def products(outputs: Tensor, head: Tensor, relation: Tensor | None, tail: Tensor, weight: Tensor | None = None
             ) -> Tensor:
    """`[p]` sums over c of `outputs[head, c] * weight[relation, c] * outputs[tail, c]`, differentiable.

    On the CPU nothing of `[p, C]` is made.

    Args:
        outputs: `[m, C]`.
        head: `[p]` int64 rows of outputs, in main memory.
        relation: `[p]` int64 rows of weight, in main memory; None: all have its first.
        tail: `[p]`, as head.
        weight: `[R, C]`; None: without it.
    """
    if outputs.device.type == "cpu":
        return _Products.apply(outputs, weight, head, tail, relation)  # type: ignore[no-any-return, no-untyped-call]
    first, second = (outputs.index_select(0, ends.to(outputs.device)) for ends in (head, tail))
    if weight is not None:
        first = first * (weight if relation is None else weight.index_select(0, relation.to(outputs.device)))
    return (first * second).sum(1)


class _Products(FirstOrderFunction):
    @staticmethod
    def forward(ctx: Any, outputs: Tensor, weight: Tensor | None, head: Tensor, tail: Tensor,  # noqa: ANN401
                relation: Tensor | None) -> Tensor:
        ctx.save_for_backward(outputs, weight)
        ctx.pairs = pairs = _Ends(head.numpy(), tail.numpy(), _NONE if relation is None else relation.numpy())
        scores = score_pairs(_rows(outputs), pairs.head, pairs.tail, pairs.relation, _rows(weight, outputs))
        return torch.from_numpy(scores)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        outputs, weight = ctx.saved_tensors
        pairs: _Ends = ctx.pairs
        of_outputs, of_weight = product_gradients(
            _rows(outputs), pairs.head, pairs.tail, pairs.relation, _rows(weight, outputs),
            np.ascontiguousarray(gradient.numpy()),
        )
        return torch.from_numpy(of_outputs), None if weight is None else torch.from_numpy(of_weight), None, None, None


class _Ends(NamedTuple):
    head: np.ndarray
    tail: np.ndarray
    relation: np.ndarray


def _rows(values: Tensor | None, like: Tensor | None = None) -> np.ndarray:
    """`values` `[n, C]` as the kernels take them; none of `like`'s rows where there are none."""
    if values is None:
        assert like is not None
        return _rows(like[:0])
    found: np.ndarray = values.detach().contiguous().numpy()
    return found
