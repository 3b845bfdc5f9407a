"""Differentiable functions of our own: once, not twice."""

from __future__ import annotations

from typing import Any

from torch.autograd import Function
from torch.autograd.function import once_differentiable


class FirstOrderFunction(Function):
    """A function of autograd whose backward pass is not differentiable itself.

    Backward passes here call kernels and exchange rows, which autograd does not see. With plain `Function` a gradient
    of a gradient (`create_graph=True`) would come out as a constant, without a word; here it is a RuntimeError.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init_subclass__(**kwargs)
        cls.backward = staticmethod(once_differentiable(cls.backward))  # type: ignore[method-assign,assignment]
