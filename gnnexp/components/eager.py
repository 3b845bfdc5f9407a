"""torch's optimizers without torch's compiler.

torch decorates methods of its optimizers, so that `torch.compile` leaves them out. At the first call, a decorator
imports the compiler (`torch._dynamo`: more modules than torch itself), also in a process that compiles nothing. gnnexp
compiles no optimizer. So it makes optimizers of subclasses that have these methods without the decorators.

Two decorators are known, and only these are left out. One calls the method outside of the compiler. The other one sets
the mode of gradients for `step`, which is done here, too. If a version of torch has other decorators, they stay: the
results are the same, and the process imports the compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:  # `gnnexp report` reads this module without torch
    from torch.optim import Optimizer

Kind = TypeVar("Kind", bound="Optimizer")
# The functions in torch that a decorated method consists of. `__wrapped__` is the method itself.
_OUTSIDE = "_disable_dynamo.<locals>.inner"
_MODE = "_use_grad_for_differentiable.<locals>._use_grad"
# torch adds this one to `step` when it makes the first optimizer of a class, also of a subclass.
_HOOKS = "Optimizer.profile_hook_step.<locals>.wrapper"
_METHODS = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def eager(cls: type[Kind]) -> type[Kind]:
    """A subclass of a class of `torch.optim` that does not import the compiler; any other class as it is."""
    return cast("type[Kind]", _eager(cls))  # type: ignore[arg-type]  # mypy does not see that classes are hashable


@cache
def _eager(cls: type[Optimizer]) -> type[Optimizer]:
    if not cls.__module__.startswith("torch.optim."):
        return cls
    methods = {name: method.__wrapped__ for name in _METHODS if _made_by(method := getattr(cls, name)) == _OUTSIDE}
    step: Any = cls.step
    plain = step.__wrapped__ if _made_by(step) == _HOOKS else step
    if _made_by(plain) == _MODE:
        methods["step"] = _in_mode(plain.__wrapped__)
    return type(cls.__name__, (cls,), {**methods, "__module__": cls.__module__, "__doc__": cls.__doc__})


def class_of(optimizer: Optimizer) -> type[Optimizer]:
    """The class that a configuration names for this optimizer."""
    cls = type(optimizer)
    base = cls.__bases__[0]
    return base if eager(base) is cls else cls


def _made_by(method: Callable[..., Any]) -> str:
    """The name of the function that a method consists of. (`__qualname__` would be that of the decorated method.)"""
    code = getattr(method, "__code__", None)
    return "" if code is None else str(code.co_qualname)


def _in_mode(step: Callable[..., Any]) -> Callable[..., Any]:
    """`step` with gradients only if the optimizer is differentiable."""

    import torch

    @wraps(step)
    def stepped(self: Optimizer, closure: Callable[[], float] | None = None) -> float | None:
        with torch.set_grad_enabled(bool(self.defaults["differentiable"])):
            result: float | None = step(self, closure)
            return result

    return stepped
