"""The groups `optimizer` and `scheduler`: any class of torch, checked before a run and made on the ranks.

Both are Hydra's partial components (`_partial_: true`): the parameters, or the optimizer, come later. A trial on one
small parameter shows before the run whether the class takes its options, and what an optimizer keeps of a parameter.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Choice, Schedule
from gnnexp.experiment.locate import component
from gnnexp.experiment.resolved import Resolved
from gnnexp.experiment.shape import check_value, is_node
from gnnexp.experiment.signature import TARGET, Parameter, check_keys, parameters_of

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

PARTIAL = "_partial_"
OPTIMIZER, SCHEDULER = "optimizer", "scheduler"
# What their classes work on: arguments that the run gives.
LATER = ("params", "optimizer")
DEFAULT = {TARGET: "torch.optim.Adam", PARTIAL: True, "lr": 0.003, "weight_decay": 0.0, "fused": True}
# Keys of `scheduler` that are not its class's.
_OWN = {"interval": Parameter("interval", Literal["epoch", "step"], required=False),
        "monitor": Parameter("monitor", str, required=False)}


def optimizer_of(node: Mapping[str, Any]) -> Choice[Optimizer]:
    """The optimizer of a checked mapping; its `options` are an optimizer of one small parameter."""
    cls = _class(OPTIMIZER, node, _optimizer())
    make = partial(cls, **_options(node))
    return Choice(str(node[TARGET]), make([_parameter()]), Resolved(node), make)


def schedule_of(node: Mapping[str, Any] | None) -> Schedule | None:
    """The scheduler of a checked mapping, None where learning rates stay as they are."""
    if node is None:
        return None
    rest = {key: value for key, value in node.items() if key not in _OWN}
    own = {key: node[key] for key in _OWN if key in node}
    return Schedule(partial(_scheduled, rest), **own)


def check_optimization(optimizer: object, scheduler: object) -> list[Problem]:
    """Everything that is wrong with the two groups."""
    problems = _check(OPTIMIZER, optimizer, _optimizer(), "params")
    if not problems:
        problems = _tried(OPTIMIZER, optimizer, lambda node: optimizer_of(node).make([_parameter()]))
    if not problems and _needs_closure(optimizer):
        target = cast("Any", optimizer)[TARGET]
        problems = [Problem(f"{OPTIMIZER}.{TARGET}", target, "its step computes the loss several times (a closure), "
                            "which a distributed step cannot do", "choose optimizer=adam or sgd")]
    if scheduler is None:
        return problems
    wrong = _check_schedule(SCHEDULER, scheduler)
    if not problems and not wrong:
        made = optimizer_of(cast("Mapping[str, Any]", optimizer)).options
        wrong = _tried(SCHEDULER, scheduler, lambda node: _stepped(cast("Schedule", schedule_of(node)).make(made)))
    return problems + wrong


def entries_of(choice: Choice[Optimizer]) -> int:
    """How many tensors of a parameter's size an optimizer keeps of each parameter: 2 for Adam, 0 for plain SGD."""
    import torch

    parameter = _parameter()
    parameter.grad = torch.ones_like(parameter)
    optimizer = choice.make([parameter])
    optimizer.step()
    kept = optimizer.state[parameter].values()
    return sum(isinstance(value, torch.Tensor) and value.shape == parameter.shape for value in kept)


def schedule_length(optimizer: Choice[Optimizer], schedule: Schedule) -> int | None:
    """After how many steps a schedule ends with an error, as `OneCycleLR` does; None: it never ends."""
    length: int | None = getattr(schedule.make(optimizer.make([_parameter()])), "total_steps", None)
    return length


def is_elementwise(choice: Choice[Optimizer]) -> bool:
    """Whether a step of a slice of a parameter is the slice of the whole parameter's step."""
    from torch import optim

    return type(choice.options) in (optim.Adam, optim.AdamW, optim.NAdam, optim.RAdam, optim.Adamax, optim.Adadelta,
                                    optim.Adagrad, optim.ASGD, optim.RMSprop, optim.Rprop, optim.SGD)


def _optimizer() -> type[Optimizer]:
    from torch.optim import Optimizer

    return Optimizer


def _scheduler() -> type[LRScheduler]:
    from torch.optim.lr_scheduler import LRScheduler

    return LRScheduler


def _parameter() -> Any:  # noqa: ANN401  torch is imported where it is used
    """Two dimensions: some optimizers take matrices only."""
    import torch

    return torch.nn.Parameter(torch.zeros(2, 2))


def _class(path: str, node: Mapping[str, Any], kind: type) -> Callable[..., Any]:
    found = component(f"{path}.{TARGET}", node[TARGET], (kind,))
    assert not isinstance(found, Problem), found
    return found


def _options(node: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value
            for key, value in node.items() if key not in (TARGET, PARTIAL)}


def _scheduled(node: Mapping[str, Any], optimizer: Optimizer) -> LRScheduler:
    """A scheduler of `optimizer`, with those that it is made of (`SequentialLR`, `ChainedScheduler`)."""
    options = {key: [_scheduled(inner, optimizer) if is_node(inner) else inner for inner in value]
               if isinstance(value, list) else value for key, value in node.items() if key not in (TARGET, PARTIAL)}
    made: LRScheduler = _class(SCHEDULER, node, _scheduler())(optimizer=optimizer, **options)
    return made


def _check_schedule(path: str, node: object) -> list[Problem]:
    problems = _check(path, node, _scheduler(), "optimizer", _OWN if path == SCHEDULER else {})
    if problems or not isinstance(node, Mapping):
        return problems
    return [problem for key, value in node.items() if _are_nodes(value) for number, inner in enumerate(value)
            for problem in _check_schedule(f"{path}.{key}.{number}", inner)]


def _check(
    path: str, node: object, kind: type, later: str, own: Mapping[str, Parameter] | None = None
) -> list[Problem]:
    """What is wrong with a partial component.

    Args:
        path: config key of its mapping.
        node: the mapping.
        kind: what its class must inherit from.
        later: the argument that the run gives.
        own: further keys of the mapping.
    """
    if not is_node(node) or not isinstance(node[TARGET], str):
        return [Problem(path, node, f"must be a mapping with {TARGET}", f"choose one: {path}=<name>")]
    found = component(f"{path}.{TARGET}", node[TARGET], (kind,))
    if isinstance(found, Problem):
        return [found]
    problems = []
    if node.get(PARTIAL) is not True:
        problems.append(Problem(f"{path}.{PARTIAL}", node.get(PARTIAL), f"must be true: {later} is given on the ranks",
                                f"set {path}.{PARTIAL}=true"))
    allowed = parameters_of(found)
    if allowed is None:
        return problems
    keys = {key: value for key, value in node.items() if key not in (TARGET, PARTIAL)}
    taken = {name: one for name, one in allowed.items() if name != later} | dict(own or {})
    strays = [problem for key, value in keys.items() if not _are_nodes(value)
              for problem in check_value(f"{path}.{key}", value, ())]
    return [*problems, *check_keys(path, keys, taken), *strays, *(
        Problem(f"{path}.{key}", value, "must be finite", f"set {path}.{key}=0.003") for key, value in keys.items()
        if isinstance(value, float) and not math.isfinite(value))]


def _tried(path: str, node: object, make: Callable[[Mapping[str, Any]], object]) -> list[Problem]:
    """What the class itself says against its options."""
    assert isinstance(node, Mapping)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            make(node)
    except Exception as error:  # a user's class may raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        named = next((key for key, value in node.items() if str(value) in reason and key != TARGET), "")
        return [Problem(f"{path}.{named}" if named else path, node.get(named, node[TARGET]), reason,
                        f"see the documentation of {node[TARGET]}")]
    return []


def _are_nodes(value: object) -> bool:
    """Whether it is a list of schedulers, which are checked one by one."""
    return isinstance(value, list) and bool(value) and all(map(is_node, value))


def _stepped(scheduler: LRScheduler) -> None:
    """Some options are looked at in a step only."""
    scheduler.step(*([0.0] if reads_metric(scheduler) else []))  # type: ignore[arg-type]


def reads_metric(scheduler: LRScheduler) -> bool:
    """Whether its step asks for a metric, as that of `ReduceLROnPlateau` does."""
    return "metrics" in inspect.signature(scheduler.step).parameters


def _needs_closure(node: object) -> bool:
    assert isinstance(node, Mapping)
    step = inspect.signature(_class(OPTIMIZER, node, _optimizer()).step)  # type: ignore[attr-defined]
    closure = step.parameters.get("closure")
    return closure is not None and closure.default is closure.empty
