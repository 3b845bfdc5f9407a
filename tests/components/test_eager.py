"""Optimizers without torch's compiler: the same class for a reader, the same bits, and no import."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn, optim

from gnnexp.components.eager import class_of, eager

OPTIONS = {
    "Adam": {"fused": True, "weight_decay": 0.1},
    "AdamW": {"amsgrad": True},
    "SGD": {"momentum": 0.9, "nesterov": True},
    "Adadelta": {},
    "Adagrad": {},
    "Adamax": {},
    "ASGD": {},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {},
    "Rprop": {},
    "SparseAdam": {},
}
SCRIPT = """
import sys, torch
from gnnexp.components.eager import eager
for name in sys.argv[1:]:
    parameter = torch.nn.Parameter(torch.ones(3, 2))
    optimizer = eager(getattr(torch.optim, name))([parameter])
    dense = torch.ones(3, 2)
    parameter.grad = dense.to_sparse() if name == "SparseAdam" else dense
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.zero_grad()
print("torch._dynamo" in sys.modules)
"""


def stepped(cls: type[optim.Optimizer], options: dict[str, object]) -> tuple[Tensor, dict[str, object]]:
    torch.manual_seed(0)
    table = nn.Parameter(torch.randn(5, 3))
    optimizer = cls([{"params": [table]}], lr=0.01, **options)
    for _ in range(3):
        optimizer.zero_grad()
        (table.pow(2) * torch.arange(3)).sum().backward()
        if cls.__name__ == "SparseAdam":
            table.grad = table.grad.to_sparse(1)
        optimizer.step()
    return table.detach(), optimizer.state_dict()


@pytest.mark.parametrize("name", OPTIONS)
def test_the_same_bits_and_state(name: str) -> None:
    cls = getattr(optim, name)
    (ours, state), (theirs, expected) = stepped(eager(cls), OPTIONS[name]), stepped(cls, OPTIONS[name])
    assert torch.equal(ours, theirs) and state.keys() == expected.keys()
    assert state["param_groups"] == expected["param_groups"]
    for key, value in expected["state"][0].items():
        assert torch.equal(torch.as_tensor(state["state"][0][key]), torch.as_tensor(value)), key


def test_a_differentiable_optimizer_steps_with_gradients() -> None:
    modes = []
    optimizer = eager(optim.SGD)([nn.Parameter(torch.ones(1))], lr=0.1, differentiable=True)
    optimizer.register_step_pre_hook(lambda *_: modes.append("hook"))
    assert optimizer.step(lambda: modes.append(torch.is_grad_enabled())) is None
    assert modes == ["hook", True]


def test_names_and_classes() -> None:
    own = type("Own", (optim.Adam,), {})
    assert eager(own) is own, "a class of the user stays"
    made = eager(optim.Adam)([nn.Parameter(torch.ones(1))])
    assert isinstance(made, optim.Adam) and repr(made).startswith("Adam (") and class_of(made) is optim.Adam
    assert class_of(optim.Adam([nn.Parameter(torch.ones(1))])) is optim.Adam
    assert class_of(own([nn.Parameter(torch.ones(1))])) is own
    assert eager(optim.Adam) is eager(optim.Adam)


@pytest.mark.interpreter
def test_the_compiler_is_not_imported() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, *OPTIONS], capture_output=True, text=True, check=False)
    assert done.stdout == "False\n", done.stderr
