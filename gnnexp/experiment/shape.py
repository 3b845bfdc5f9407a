"""Checks keys, types and kinds of components in a configuration by their annotations. Nothing is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any, TypeGuard

from gnnexp.components.locate import component
from gnnexp.components.signature import (
    TARGET,
    Parameter,
    component_kinds,
    key_problems,
    parameters_of,
    parameters_of_dataclass,
)
from gnnexp.errors import Problem


def options_in(value: object, kinds: tuple[type, ...]) -> type | None:
    """The dataclass that a mapping without `_target_` becomes, for components that group their options; else None."""
    if not isinstance(value, Mapping) or is_node(value):
        return None
    return next((kind for kind in kinds if is_dataclass(kind)), None)


def is_node(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value is the mapping of a component."""
    return isinstance(value, Mapping) and TARGET in value


def kinds_of(allowed: Mapping[str, Parameter] | None, key: object) -> tuple[type, ...]:
    """Classes that a component at this key may inherit from; empty if the annotation names no class."""
    parameter = (allowed or {}).get(str(key))
    return () if parameter is None else component_kinds(parameter.hint)


def node_problems(path: str, node: object, *kinds: type) -> list[Problem]:
    """All problems of a component's mapping and its nested mappings: target, unknown, missing and mistyped keys.

    Args:
        path: config key of the mapping (`sampler`), for messages.
        node: value of the config at this key.
        kinds: the component must inherit from one of these classes. If it does not, this is the only problem.
    """
    if not isinstance(node, Mapping) or not isinstance(node.get(TARGET), str):
        fix = f"set {path}.{TARGET}=package.module.Class" if "." in path else f"choose one: {path}=<name>"
        return [Problem(path, node, f"must be a mapping with {TARGET}", fix)]
    target = component(f"{path}.{TARGET}", node[TARGET], kinds)
    if isinstance(target, Problem):
        return [target]
    allowed = parameters_of(target)
    keys = {key: value for key, value in node.items() if key != TARGET}
    problems = [] if allowed is None else key_problems(path, keys, allowed)
    wrong = {problem.key for problem in problems}
    nested = [
        problem
        for key, value in keys.items()
        if f"{path}.{key}" not in wrong
        for problem in value_problems(f"{path}.{key}", value, kinds_of(allowed, key))
    ]
    return [*problems, *nested]


def value_problems(path: str, value: object, kinds: tuple[type, ...]) -> list[Problem]:
    """Problems of the component at a key, or of components at a key whose annotation names no class."""
    if kinds and is_node(value):
        return node_problems(path, value, *kinds)
    if (options := options_in(value, kinds)) is not None:
        return field_problems(path, options, value)
    return [
        Problem(
            f"{place}.{TARGET}",
            target,
            "no component is allowed here: no annotation names its class",
            "remove it, or annotate the parameter with the class of the component",
        )
        for place, target in _targets_in(path, value)
    ]


def _targets_in(path: str, value: object) -> Iterator[tuple[str, object]]:
    """Every `_target_` below a value, with the key of its mapping."""
    waiting = [(path, value)]
    while waiting:
        place, inner = waiting.pop()
        if isinstance(inner, Mapping):
            if TARGET in inner:
                yield place, inner[TARGET]
            waiting += [(f"{place}.{key}", below) for key, below in inner.items()]
        elif isinstance(inner, (list, tuple)):
            waiting += [(f"{place}.{number}", below) for number, below in enumerate(inner)]


def field_problems(path: str, cls: type, node: object) -> list[Problem]:
    """All problems of a mapping that becomes the dataclass `cls`, nested dataclasses included."""
    if not isinstance(node, Mapping):
        return [Problem(path, node, "must be a mapping", f"see the fields of {cls.__name__}")]
    allowed: dict[str, Parameter] = {}
    problems: list[Problem] = []
    for name, parameter in parameters_of_dataclass(cls).items():
        inner = _dataclass_in(parameter.hint)
        if inner is None or not isinstance(node.get(name), Mapping):
            allowed[name] = parameter
        else:
            allowed[name] = Parameter(name, Any, required=False)
            problems += field_problems(f"{path}.{name}", inner, node[name])
    return [*key_problems(path, node, allowed), *problems]


def _dataclass_in(hint: object) -> type | None:
    options = getattr(hint, "__args__", (hint,))
    return next((option for option in options if isinstance(option, type) and is_dataclass(option)), None)
