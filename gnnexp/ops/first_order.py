"""Autograd functions that can be differentiated once."""

from __future__ import annotations

from typing import Any, ParamSpec, Protocol, TypeVar

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

Arguments = ParamSpec("Arguments")
Result_co = TypeVar("Result_co", covariant=True)


class FirstOrderFunction(Function):
    """An autograd function whose backward pass is not differentiable.

    The backward passes call kernels and exchange rows, which autograd does not record. With plain `Function` a gradient
    of a gradient (`create_graph=True`) would silently be wrong; with this class it raises RuntimeError.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init_subclass__(**kwargs)
        plain, once = cls.backward, once_differentiable(cls.backward)

        def backward(ctx: Any, *gradients: Any) -> Any:  # noqa: ANN401
            # Without `create_graph=True` autograd records nothing, and the check takes 6 µs for each function.
            return (once if torch.is_grad_enabled() else plain)(ctx, *gradients)

        cls.backward = staticmethod(backward)  # type: ignore[method-assign]


class _HasForward(Protocol[Arguments, Result_co]):
    @staticmethod
    def forward(ctx: Any, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result_co: ...  # noqa: ANN401


def applied(
    function: type[_HasForward[Arguments, Result_co]], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result_co:
    """`function.apply(*args)`, with the argument and result types of `function.forward`."""
    return function.apply(*args)  # type: ignore[attr-defined, no-any-return]
