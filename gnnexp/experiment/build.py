"""Makes an `Experiment` from a resolved configuration. This is the only module that reads the mapping.

It does not need Hydra: the launcher, all ranks, and tools that compare configurations read them here. A configuration
chooses the code that is called. The kind of each component is therefore checked before the call: a class must inherit
from the expected class, and a function must declare it as its return type. The annotation of a key decides the values
that it may have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from gnnexp.components.locate import component, located, not_of_kind
from gnnexp.components.schema import PREFLIGHT, HardwareConfig, Links, TrainConfig
from gnnexp.components.signature import TARGET, nearest, parameters_of, parameters_of_dataclass, unknown
from gnnexp.errors import ConfigError, DataError, Problem, ProblemsError, unique
from gnnexp.experiment.check import choice_problems, fanout_problems, range_problems
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.kinds import COMPONENTS, LAUNCHER, kind_of
from gnnexp.experiment.optimization import (
    DEFAULT,
    LATER,
    OPTIMIZER,
    PARTIAL,
    SCHEDULER,
    optimization_problems,
    optimizer_of,
    schedule_of,
)
from gnnexp.experiment.resolved import ResolvedConfig
from gnnexp.experiment.shape import field_problems, is_node, kinds_of, node_problems, options_in
from gnnexp.measure.marks import MEASURES
from gnnexp.provenance.code import remember_own
from gnnexp.provenance.older import as_today

if TYPE_CHECKING:
    from gnnexp.datasets.base import Dataset
    from gnnexp.launchers.base import Launcher
    from gnnexp.trackers.base import Tracker

T = TypeVar("T")

_SCALARS = ("seed", "system", "name", "preflight", "measure", "trace")
_TOP = (*COMPONENTS, OPTIMIZER, SCHEDULER, "hardware", "train", *_SCALARS)
# Keys of `hardware` and `train` that must be given, because reports read them.
_READ = {"hardware": ("nodes", "workers", "device"), "train": ("batch_size", "dtype", "eval_every")}
# A key of a user's own that is as similar to a key of gnnexp's is taken for a mistake.
_MISTAKEN = 0.7
# After a mistake in one of these groups, other components can still be checked: the defaults fit all of them.
_ALONE = {"dataset", "tracker", "name", "seed", "preflight", "measure", "trace", OPTIMIZER, SCHEDULER}


@dataclass(frozen=True, eq=False)
class Reading:
    """The content of a configuration, as far as it can be read.

    Attributes:
        problems: all problems of the configuration.
        wrong: groups that have a problem, or whose meaning is unclear.
        experiment: the experiment, with defaults in place of wrong values of `hardware` and `train`; None if some
            component cannot be made.
        dataset, launcher, tracker: these components; None if they have a problem.
        hardware: the hardware, with defaults in place of wrong values.
    """

    problems: tuple[Problem, ...]
    wrong: frozenset[str]
    experiment: Experiment | None
    dataset: Dataset | None
    launcher: Launcher | None
    tracker: Tracker | None
    hardware: HardwareConfig


def experiment_of(config: Mapping[str, Any]) -> Experiment:
    """The experiment of a resolved configuration that `read` has checked before.

    Raises:
        ConfigError: components cannot be made from their options; names all problems.
    """
    config = as_today(config)
    _remember(config)
    components, problems = _components_of(config, ())
    problems += optimization_problems(config[OPTIMIZER], config.get(SCHEDULER))
    ConfigError.raise_all(problems)
    return _composed(config, components, ())


def read(config: Mapping[str, Any], *, known: Iterable[Problem] = (), unsure: Collection[str] = ()) -> Reading:
    """All problems of a resolved configuration, and its content.

    Checks keys, types and value ranges, calls the constructors of components, and lets components check the other
    choices (`check(experiment)`). A check that depends on a wrong value is left out.

    Args:
        config: the resolved configuration.
        known: problems that were already found, in the overrides.
        unsure: groups whose content may not be what the user wanted.
    """
    config = as_today(config)
    _remember(config)
    known = list(known)
    wrong_shapes = _shape_problems(config, unsure)
    keys = {problem.key for problem in wrong_shapes}
    # A required value that is not given (`???`) is already a known problem, so its type is not checked.
    problems = _without(wrong_shapes, {problem.key for problem in known})
    bad = {_group_of(problem.key) for problem in [*known, *problems]} | set(unsure)
    train, hardware = train_of(config, wrong=keys), hardware_of(config, wrong=keys)
    problems += _without(range_problems(train, hardware), keys)
    named = [problem.key.lstrip("+~") for problem in [*known, *problems]]
    components, refused = _components_of(
        config,
        {
            node
            for node in _nodes_of(config)
            if _group_of(node) in unsure
            or any(node == key or node.startswith(f"{key}.") or key.startswith(f"{node}.") for key in named)
        },
    )
    problems += refused
    if {"sampler", "model"} <= set(components) and not {"train", "system"} & bad:
        problems += fanout_problems(components["sampler"], components["model"])
    experiment = _composed(config, components, keys) if len(components) == len(_nodes_of(config)) else None
    if experiment is not None and {_group_of(key) for key in keys} | set(unsure) <= _ALONE:
        # A mistyped key in a bad group may be the one that would have avoided the conflict.
        problems += [problem for problem in choice_problems(experiment) if _group_of(problem.key) not in bad]
    wrong = bad | {_group_of(problem.key) for problem in problems}
    return Reading(
        tuple(unique(problems)),
        frozenset(wrong),
        experiment,
        components.get("dataset"),
        components.get(LAUNCHER),
        components.get("tracker"),
        hardware,
    )


def _remember(config: Mapping[str, Any]) -> None:
    """Note the digests of the user's code before this process imports it. Unreadable code fails at the import."""
    with suppress(DataError):
        remember_own(config)


def train_of(config: Mapping[str, Any], *, wrong: Collection[str] = ()) -> TrainConfig:
    """`train` as written, also from a record of another version. `wrong` keys get defaults."""
    return TrainConfig(**_fields("train", TrainConfig, config.get("train"), wrong))


def hardware_of(config: Mapping[str, Any], *, wrong: Collection[str] = ()) -> HardwareConfig:
    """`hardware`, also from a record of another version. `wrong` keys get defaults."""
    values = _fields("hardware", HardwareConfig, config.get("hardware"), wrong)
    if any(key.startswith("hardware.links.") for key in wrong):
        values["links"] = None
    elif values.get("links") is not None:
        values["links"] = Links(**_fields("hardware.links", Links, values["links"], wrong))
    return HardwareConfig(**values)


def hardware_of_processes(config: Mapping[str, Any]) -> HardwareConfig:
    """Where the processes of a run are (`Experiment.processes`)."""
    hardware = hardware_of(config)
    return replace(hardware, nodes=1, workers=1) if train_of(config).count_only else hardware


def tracker_of(config: Mapping[str, Any]) -> Tracker:
    """The tracker of a configuration.

    Raises:
        ConfigError: the tracker cannot be made from its options.
    """
    tracker: Tracker = build(config["tracker"], kind_of("tracker"))
    return tracker


def global_batch_size(config: Mapping[str, Any]) -> int | None:
    """Targets of a global batch; None if one batch has all training targets."""
    return _global(train_of(config), hardware_of(config), _scale(config, ())).batch_size


def _fields(path: str, cls: type, node: object, wrong: Collection[str]) -> dict[str, Any]:
    """The values in a mapping that are fields of the dataclass `cls`, without `wrong` keys."""
    if not isinstance(node, Mapping) or path in wrong:
        return {}
    return {name: node[name] for name in parameters_of_dataclass(cls) if name in node and f"{path}.{name}" not in wrong}


def _scale(config: Mapping[str, Any], wrong: Collection[str]) -> float:
    """The fraction of its full size that the graph has (`dataset.scale`)."""
    dataset = config.get("dataset")
    if not isinstance(dataset, Mapping) or {"dataset", "dataset.scale"} & set(wrong):
        return 1.0
    scale = dataset.get("scale") or 1.0
    return scale if 0 < scale < math.inf else 1.0


def _global(train: TrainConfig, hardware: HardwareConfig, scale: float) -> TrainConfig:
    """`train` with the batch size of a global batch (`TrainConfig.batch_of`)."""
    if train.batch_size is None or train.batch_of == "run":
        return train
    if train.batch_of == "rank":
        return replace(train, batch_size=train.batch_size * hardware.num_ranks)
    return replace(train, batch_size=max(1, round(train.batch_size * scale)))


def _nodes_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping of each component, by group."""
    hardware = config.get("hardware")
    nodes = {group: config.get(group) for group in COMPONENTS}
    return {**nodes, LAUNCHER: hardware.get("launcher") if isinstance(hardware, Mapping) else None}


def _components_of(config: Mapping[str, Any], bad: Collection[str]) -> tuple[dict[str, Any], list[Problem]]:
    """The components by group, without `bad` groups, and the problems that their constructors raise."""
    components: dict[str, Any] = {}
    problems: list[Problem] = []
    for group, node in _nodes_of(config).items():
        if group in bad:
            continue
        try:
            components[group] = build(node, kind_of(group), group)
        except ProblemsError as error:
            problems += [_under(group, node, problem) for problem in error.problems]
    return components, problems


def _composed(config: Mapping[str, Any], components: Mapping[str, Any], wrong: Collection[str]) -> Experiment:
    """An experiment of `components`, by group. `wrong` keys of `hardware` and `train` get defaults."""
    hardware = hardware_of(config, wrong=wrong)
    train = _global(train_of(config, wrong=wrong), hardware, _scale(config, wrong))
    bad = {_group_of(key) for key in wrong}
    optimizer = optimizer_of(DEFAULT if OPTIMIZER in bad else config[OPTIMIZER])
    schedule = None if {OPTIMIZER, SCHEDULER} & bad else schedule_of(config.get(SCHEDULER))
    return Experiment(
        dataset=components["dataset"],
        partitioner=components["partitioner"],
        sampler=components["sampler"],
        feature_store=components["feature_store"],
        model=components["model"],
        task=components["task"],
        paradigm=components["paradigm"],
        optimizer=optimizer,
        schedule=schedule,
        train=train,
        hardware=hardware,
        launcher=components[LAUNCHER],
        tracker=components["tracker"],
        config=ResolvedConfig(config),
        seed=config.get("seed", 0),
        system=config.get("system"),
        name=config.get("name"),
        preflight=config.get("preflight", "refuse"),
        measure=config.get("measure", "exact"),
        trace=None if "trace" in bad else config.get("trace"),
    )


def _shape_problems(config: Mapping[str, Any], unsure: Collection[str]) -> list[Problem]:
    """Problems of unknown or missing keys, values of the wrong type, and components of the wrong kind."""
    problems = _extra_key_problems(config)
    for group in COMPONENTS:
        if group not in unsure:
            problems += node_problems(group, config.get(group), kind_of(group))
    if not {OPTIMIZER, SCHEDULER} & set(unsure):
        problems += optimization_problems(config.get(OPTIMIZER), config.get(SCHEDULER))
    problems += field_problems("train", TrainConfig, config.get("train"))
    hardware = dict(config.get("hardware") or {})
    launcher = hardware.pop("launcher", None)
    if "hardware" not in unsure:
        problems += node_problems(LAUNCHER, launcher, kind_of(LAUNCHER))
    problems += field_problems("hardware", HardwareConfig, hardware)
    problems += [
        Problem(f"{group}.{name}", None, "this key is required", f"add {group}.{name}=…")
        for group, names in _READ.items()
        if isinstance(config.get(group), Mapping)
        for name in names
        if name not in config[group]
    ]
    return [*problems, *(problem for problem in _scalar_problems(config) if problem.key not in unsure)]


def _extra_key_problems(config: Mapping[str, Any]) -> list[Problem]:
    """Problems of keys that gnnexp does not read. Interpolations may use such a key, if it cannot be a mistake."""
    names = {
        name: f"{group}.{name}" for group in _TOP if isinstance(config.get(group), Mapping) for name in config[group]
    } | {key: key for key in _TOP}
    close = {key: nearest(str(key), names, _MISTAKEN) for key in config if key not in _TOP}
    return [
        Problem(
            str(key),
            config[key],
            "gnnexp has no such key",
            f"did you mean {names[similar]}? A key of your own needs a name that differs more",
        )
        for key, similar in close.items()
        if similar is not None
    ]


def _scalar_problems(config: Mapping[str, Any]) -> list[Problem]:
    problems = []
    seed = config.get("seed")
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
        problems.append(Problem("seed", seed, "must be an integer, 0 <= seed < 2^63", "seed=0"))
    for key, allowed in (("preflight", PREFLIGHT), ("measure", MEASURES)):
        if (word := config.get(key, allowed[0])) not in allowed:
            problems.append(unknown(key, word, str(word), allowed, f"{key}="))
    trace = config.get("trace")
    if trace is not None and (type(trace) is not int or trace < 1):
        problems.append(
            Problem("trace", trace, "must be the number of an epoch after epoch 0, which warms up, or null", "trace=1")
        )
    for key in ("name", "system"):
        value = config.get(key)
        if value is not None and (not isinstance(value, str) or "/" in value or not value.isprintable()):
            problems.append(Problem(key, value, "must be a text without / (it names a folder), or null", f"{key}=null"))
    return problems


def _group_of(key: str) -> str:
    return key.partition(".")[0].lstrip("+~")


def _without(problems: list[Problem], keys: Collection[str]) -> list[Problem]:
    return [problem for problem in problems if problem.key not in keys]


def _under(group: str, node: Mapping[str, Any], problem: Problem) -> Problem:
    """The problem with its group before the key, if a constructor named only its argument."""
    own = problem.key in node and problem.key != TARGET
    return Problem(f"{group}.{problem.key}", problem.value, problem.allowed, problem.fix) if own else problem


def build(node: Mapping[str, Any], expected: Callable[..., T], path: str = "") -> T:
    """Import `node["_target_"]` and call it with the other keys. Nested mappings with `_target_` are built first.

    Args:
        node: plain mapping of a resolved config.
        expected: class, which may be abstract. The target must inherit from it or, if it is a function, declare it as
            return type. (The annotation is not `type[T]`, because mypy then refuses abstract classes.)
        path: config key of the mapping, for messages.

    Raises:
        ConfigError: the target cannot be imported or has another kind, or its keys or types are wrong. In these cases
            nothing was called. Or a function returned an object of another kind.
    """
    assert isinstance(expected, type)
    kind: type[Any] = expected
    ConfigError.raise_all(node_problems(path or kind.__name__, node, kind))
    built: Any = _built(node, (kind,))
    if not isinstance(built, kind):  # a function may return another type than its annotation
        raise ConfigError(not_of_kind(TARGET, node[TARGET], (kind,)))
    return cast("T", built)


def _built(value: object, kinds: tuple[type, ...]) -> object:
    """The value of a checked node: the component if the value is the mapping of one, else the plain value."""
    if (options := options_in(value, kinds)) is not None:
        assert isinstance(value, Mapping)
        return options(**value)
    if not is_node(value) or not kinds:
        return list(value) if isinstance(value, tuple) else value
    target = component(TARGET, value[TARGET], kinds)
    assert not isinstance(target, Problem), target
    allowed = parameters_of(target)
    return target(**{key: _built(inner, kinds_of(allowed, key)) for key, inner in value.items() if key != TARGET})


def keys_of(node: Mapping[str, Any]) -> tuple[str, ...]:
    """Keys that a component's constructor takes; empty if the target cannot be imported."""
    if not isinstance(node.get(TARGET), str):
        return ()
    target = located("", node[TARGET])
    keys = () if isinstance(target, Problem) else tuple(parameters_of(target) or ())
    return tuple(key for key in keys if key not in LATER) if PARTIAL in node else keys
