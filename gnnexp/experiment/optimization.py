"""The groups `optimizer` and `scheduler`: any class of torch. They are checked before a run, and made on the ranks.

Both are Hydra's partial components (`_partial_: true`): their first argument, parameters or an optimizer, comes later.
Before the run, a trial with one small parameter shows whether the class accepts its options, and how much state an
optimizer has per parameter.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

from gnnexp.components.eager import class_of, eager
from gnnexp.components.locate import component
from gnnexp.components.optimizer import OptimizerChoice
from gnnexp.components.signature import TARGET, Parameter, key_problems, parameters_of
from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Schedule
from gnnexp.experiment.shape import is_node, value_problems

if TYPE_CHECKING:  # commands that only read records import this module: they do not wait for torch
    import torch
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

PARTIAL = "_partial_"
OPTIMIZER, SCHEDULER = "optimizer", "scheduler"
# Arguments that are not in the configuration: ranks pass them.
LATER = ("params", "optimizer")
DEFAULT = {TARGET: "torch.optim.Adam", PARTIAL: True, "lr": 0.003, "weight_decay": 0.0, "fused": True}
# Keys of `scheduler` that gnnexp reads; its class does not get them.
_OWN = {
    "interval": Parameter("interval", Literal["epoch", "step"], required=False),
    "monitor": Parameter("monitor", str, required=False),
}


def optimizer_of(node: Mapping[str, Any]) -> OptimizerChoice:
    """The choice of optimizer in a checked mapping. Its `trial` is an optimizer of one small parameter."""
    make = partial(_made_eager(node), **_options(node))
    return OptimizerChoice(str(node[TARGET]), make([_parameter()]), make)


def schedule_of(node: Mapping[str, Any] | None) -> Schedule | None:
    """The schedule of a checked mapping, or None for constant learning rates."""
    if node is None:
        return None
    rest = {key: value for key, value in node.items() if key not in _OWN}
    own = {key: node[key] for key in _OWN if key in node}
    return Schedule(partial(_scheduled, rest), **own)


def optimization_problems(optimizer: object, scheduler: object) -> list[Problem]:
    """All problems of the two groups."""
    from torch.optim import Optimizer

    problems = _component_problems(OPTIMIZER, optimizer, Optimizer, "params")
    if not problems:
        problems = _trial_problems(OPTIMIZER, optimizer, lambda node: optimizer_of(node).make([_parameter()]))
    if not problems and _needs_closure(optimizer):
        target = cast("Any", optimizer)[TARGET]
        problems = [
            Problem(
                f"{OPTIMIZER}.{TARGET}",
                target,
                "its step computes the loss several times (a closure), which a distributed step cannot do",
                "choose optimizer=adam or sgd",
            )
        ]
    if scheduler is None:
        return problems
    wrong = _scheduler_problems(SCHEDULER, scheduler)
    if not problems and not wrong:
        trial = optimizer_of(cast("Mapping[str, Any]", optimizer)).trial
        wrong = _trial_problems(
            SCHEDULER, scheduler, lambda node: _stepped(cast("Schedule", schedule_of(node)).make(trial))
        )
    return problems + wrong


def entries_of(choice: OptimizerChoice) -> int:
    """Number of state tensors of a parameter's size that an optimizer has per parameter: Adam 2, plain SGD 0."""
    import torch

    parameter = _parameter()
    parameter.grad = torch.ones_like(parameter)
    optimizer = choice.make([parameter])
    optimizer.step()
    kept = optimizer.state[parameter].values()
    return sum(isinstance(value, torch.Tensor) and value.shape == parameter.shape for value in kept)


def schedule_length(optimizer: OptimizerChoice, schedule: Schedule) -> int | None:
    """After how many steps a schedule ends with an error, as `OneCycleLR` does; None: it never ends."""
    length: int | None = getattr(schedule.make(optimizer.make([_parameter()])), "total_steps", None)
    return length


def is_elementwise(choice: OptimizerChoice) -> bool:
    """Whether an optimizer treats each element separately, so that a slice of a parameter can be stepped alone."""
    from torch import optim

    return class_of(choice.trial) in (
        optim.Adam,
        optim.AdamW,
        optim.NAdam,
        optim.RAdam,
        optim.Adamax,
        optim.Adadelta,
        optim.Adagrad,
        optim.ASGD,
        optim.RMSprop,
        optim.Rprop,
        optim.SGD,
    )


def _parameter() -> torch.nn.Parameter:
    """A small parameter for trials. It has two dimensions, because some optimizers only accept matrices."""
    import torch

    return torch.nn.Parameter(torch.zeros(2, 2))


def _class(path: str, node: Mapping[str, Any], kind: type) -> Callable[..., Any]:
    target = component(f"{path}.{TARGET}", node[TARGET], (kind,))
    assert not isinstance(target, Problem), target
    return target


def _made_eager(node: Mapping[str, Any]) -> Callable[..., Optimizer]:
    """The class of an optimizer, without torch's compiler; a function that returns an optimizer as it is."""
    from torch.optim import Optimizer

    target = _class(OPTIMIZER, node, Optimizer)
    return eager(target) if isinstance(target, type) else target


def _options(node: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in node.items()
        if key not in (TARGET, PARTIAL)
    }


def _scheduled(node: Mapping[str, Any], optimizer: Optimizer) -> LRScheduler:
    """A scheduler of `optimizer`. Its inner schedulers are made first (`SequentialLR`, `ChainedScheduler`)."""
    from torch.optim.lr_scheduler import LRScheduler

    options = {
        key: [_scheduled(inner, optimizer) if is_node(inner) else inner for inner in value]
        if isinstance(value, list)
        else value
        for key, value in node.items()
        if key not in (TARGET, PARTIAL)
    }
    scheduler: LRScheduler = _class(SCHEDULER, node, LRScheduler)(optimizer=optimizer, **options)
    return scheduler


def _scheduler_problems(path: str, node: object) -> list[Problem]:
    from torch.optim.lr_scheduler import LRScheduler

    problems = _component_problems(path, node, LRScheduler, "optimizer", _OWN if path == SCHEDULER else {})
    if problems or not isinstance(node, Mapping):
        return problems
    return [
        problem
        for key, value in node.items()
        if _are_nodes(value)
        for number, inner in enumerate(value)
        for problem in _scheduler_problems(f"{path}.{key}.{number}", inner)
    ]


def _component_problems(
    path: str, node: object, kind: type, later: str, own: Mapping[str, Parameter] | None = None
) -> list[Problem]:
    """Problems of a partial component.

    Args:
        path: config key of the mapping.
        node: the mapping.
        kind: the class that the component must inherit from.
        later: the argument that ranks pass.
        own: additional allowed keys of the mapping.
    """
    if not is_node(node) or not isinstance(node[TARGET], str):
        return [Problem(path, node, f"must be a mapping with {TARGET}", f"choose one: {path}=<name>")]
    target = component(f"{path}.{TARGET}", node[TARGET], (kind,))
    if isinstance(target, Problem):
        return [target]
    problems = []
    if node.get(PARTIAL) is not True:
        problems.append(
            Problem(
                f"{path}.{PARTIAL}",
                node.get(PARTIAL),
                f"must be true: ranks pass {later} later",
                f"set {path}.{PARTIAL}=true",
            )
        )
    allowed = parameters_of(target)
    if allowed is None:
        return problems
    keys = {key: value for key, value in node.items() if key not in (TARGET, PARTIAL)}
    taken = {name: parameter for name, parameter in allowed.items() if name != later} | dict(own or {})
    strays = [
        problem
        for key, value in keys.items()
        if not _are_nodes(value)
        for problem in value_problems(f"{path}.{key}", value, ())
    ]
    return [
        *problems,
        *key_problems(path, keys, taken),
        *strays,
        *(
            Problem(f"{path}.{key}", value, "must be finite", f"set {path}.{key}=0.003")
            for key, value in keys.items()
            if isinstance(value, float) and not math.isfinite(value)
        ),
    ]


def _trial_problems(path: str, node: object, make: Callable[[Mapping[str, Any]], object]) -> list[Problem]:
    """The problem that the class raises for its options, if it raises."""
    assert isinstance(node, Mapping)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            make(node)
    except Exception as error:  # a user's class may raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        named = next((key for key, value in node.items() if str(value) in reason and key != TARGET), "")
        return [
            Problem(
                f"{path}.{named}" if named else path,
                node.get(named, node[TARGET]),
                reason,
                f"see the documentation of {node[TARGET]}",
            )
        ]
    return []


def _are_nodes(value: object) -> bool:
    """Whether a value is a list of component mappings (inner schedulers), which are checked one by one."""
    return isinstance(value, list) and bool(value) and all(map(is_node, value))


def _stepped(scheduler: LRScheduler) -> None:
    """Make one step, because some classes check their options only there."""
    scheduler.step(*([0.0] if reads_metric(scheduler) else []))  # type: ignore[arg-type]


def reads_metric(scheduler: LRScheduler) -> bool:
    """Whether the scheduler's step takes a metric, like `ReduceLROnPlateau`."""
    return "metrics" in inspect.signature(scheduler.step).parameters


def _needs_closure(node: object) -> bool:
    from torch.optim import Optimizer

    assert isinstance(node, Mapping)
    step = inspect.signature(_class(OPTIMIZER, node, Optimizer).step)  # type: ignore[attr-defined]
    closure = step.parameters.get("closure")
    return closure is not None and closure.default is closure.empty
