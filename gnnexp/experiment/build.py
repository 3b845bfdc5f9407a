"""From `_target_` to objects, and the same checked without building: no Hydra, so that every rank can do it.

A configuration chooses what is called, so nothing is called before its kind is known: a class must inherit from the
class that the caller expects, a function must say that it returns one. What a key of a component may hold follows from
the annotation of that key. Importing a module executes it, and happens before that check: the names in a configuration
are trusted as far as that, and nobody resolves the names of a record (SECURITY.md).
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from types import FunctionType
from typing import Any, TypeGuard, TypeVar, cast

from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.packages import known, missing_package
from gnnexp.experiment.signature import (
    TARGET,
    Parameter,
    check_keys,
    component_kinds,
    nearest,
    parameters_of,
    parameters_of_dataclass,
    returned_class,
)
from gnnexp.provenance.moved import name_today

T = TypeVar("T")

Component = type[Any] | FunctionType


def build(node: Mapping[str, Any], expected: Callable[..., T]) -> T:
    """Import `node["_target_"]` and call it with the other keys; nested mappings with `_target_` are built first.

    Args:
        node: plain mapping of a resolved config.
        expected: class, abstract or not, that the target must inherit from or, if it is a function, declare to return.
            (mypy takes no abstract class for a `type[T]`.)

    Raises:
        ConfigError: the target cannot be imported or is no `expected`, or its keys or types are wrong. Nothing has been
            called then.
    """
    assert isinstance(expected, type)
    kind: type[Any] = expected
    problems = check_node(kind.__name__, node, kind)
    if problems:
        raise ConfigError(problems)
    built: Any = _built(node, (kind,))
    if not isinstance(built, kind):  # a function may return something else than it says
        raise ConfigError(_not_of_kind(TARGET, node[TARGET], (kind,)))
    return cast("T", built)


def _built(value: object, kinds: tuple[type, ...]) -> object:
    """A value of a checked node: the component, if it is to be one of `kinds`."""
    if not _is_node(value) or not kinds:
        return list(value) if isinstance(value, tuple) else value
    target = _component(TARGET, value[TARGET], kinds)
    assert not isinstance(target, Problem), target
    allowed = parameters_of(target)
    return target(**{key: _built(inner, _kinds_of(allowed, key)) for key, inner in value.items() if key != TARGET})


def _is_node(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping) and TARGET in value


def _kinds_of(allowed: Mapping[str, Parameter] | None, key: object) -> tuple[type, ...]:
    """What a component under this key must inherit from; empty where the annotation names no class."""
    parameter = (allowed or {}).get(str(key))
    return () if parameter is None else component_kinds(parameter.hint)


def locate(name: str) -> Component:
    """The class or function of a dotted name, also of one that it had before; importing its module executes it.

    Raises:
        ImportError: as Python raised it, or if the module lacks the name, or is one of Python's own, where no component
            can be.
    """
    module, _, attribute = name_today(name).rpartition(".")
    if _is_pythons(module):
        raise ImportError(f"{name} is part of Python's standard library, not a component", name=name)
    found = getattr(importlib.import_module(module), attribute, None)
    # `type(found)`: a proxy object of some library may claim to be of any class, or raise when it is asked.
    if not issubclass(type(found), (type, FunctionType)):
        raise ImportError(f"{module} has no class or function {attribute}", name=name)
    return found  # type: ignore[return-value]


def check_node(path: str, node: object, *kinds: type) -> list[Problem]:
    """Everything wrong with a component's mapping: target, unknown, missing and mistyped keys, nested ones too.

    Args:
        path: config key of the mapping (`sampler`), for the messages.
        node: what the config has there.
        kinds: classes of which the component must be one. What is of another kind has that problem only.
    """
    if not isinstance(node, Mapping) or not isinstance(node.get(TARGET), str):
        mend = f"set {path}.{TARGET}=package.module.Class" if "." in path else f"choose one: {path}=<name>"
        return [Problem(path, node, f"must be a mapping with {TARGET}", mend)]
    found = _component(f"{path}.{TARGET}", node[TARGET], kinds)
    if isinstance(found, Problem):
        return [found]
    allowed = parameters_of(found)
    keys = {key: value for key, value in node.items() if key != TARGET}
    problems = [] if allowed is None else check_keys(path, keys, allowed)
    wrong = {problem.key for problem in problems}
    nested = [problem for key, value in keys.items() if f"{path}.{key}" not in wrong
              for problem in _check_value(f"{path}.{key}", value, _kinds_of(allowed, key))]
    return [*problems, *nested]


def _check_value(path: str, value: object, kinds: tuple[type, ...]) -> list[Problem]:
    """What is wrong with the component at a key, or with components where the annotation names no class of them."""
    if kinds and _is_node(value):
        return check_node(path, value, *kinds)
    return [
        Problem(f"{place}.{TARGET}", target, "no component can stand here: no annotation names its class",
                "leave it out, or annotate the parameter with the class of the component")
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


def _component(key: str, name: str, kinds: tuple[type, ...]) -> Component | Problem:
    """The class or function of a dotted name, if it makes one of `kinds`; it has not been called."""
    found = _located(key, name)
    if isinstance(found, Problem):
        return found
    made = found if isinstance(found, type) else returned_class(found)
    # Inherited in fact: `issubclass` asks the expected class, which may take anything that has some methods.
    if made is None or not any(one is kind for one in made.__mro__ for kind in kinds):
        return _not_of_kind(key, name, kinds)
    if inspect.isabstract(found):
        left = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
        return Problem(key, name, f"leaves {left} to classes that inherit from it", "name one of these")
    return found


def _not_of_kind(key: str, name: str, kinds: tuple[type, ...]) -> Problem:
    wanted = " or ".join(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)
    return Problem(key, name, f"must be a {wanted}",
                   "name a class that inherits from it, or a function whose return annotation says so")


def _located(key: str, name: str) -> Component | Problem:
    module, _, attribute = name.rpartition(".")
    try:
        return locate(name)
    except ModuleNotFoundError as error:
        return missing_module(key, name, error)
    except ValueError:
        return Problem(key, name, "must be package.module.Class", "write the full dotted name")
    except ImportError as error:
        return Problem(key, name, str(error), _nearest_name(module, attribute))
    except (Exception, SystemExit) as error:  # a user's own module may fail in any way while it is imported
        return Problem(key, name, f"importing it raised {error!r}", f"python -c 'import {module}'")


def _is_pythons(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _nearest_name(module: str, attribute: str) -> str:
    if _is_pythons(module):
        return "name a class or function of gnnexp, or of a package of yours"
    close = nearest(attribute, dir(sys.modules[module])) if module in sys.modules else None
    return f"did you mean {module}.{close}?" if close else f"python -c 'import {module}'"


def missing_module(key: str, value: object, error: ModuleNotFoundError) -> Problem:
    """The problem of a package that is not installed, with the command that installs it if gnnexp requires it."""
    package = (error.name or "").partition(".")[0]
    if known(package):
        return missing_package(key, value, package)
    return Problem(key, value, f"module {error.name} does not exist", "correct the name, or put it on PYTHONPATH")


def check_fields(path: str, cls: type, node: object) -> list[Problem]:
    """Everything wrong with a mapping that becomes the dataclass `cls` (nested dataclasses too)."""
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
            problems += check_fields(f"{path}.{name}", inner, node[name])
    return [*check_keys(path, node, allowed), *problems]


def _dataclass_in(hint: object) -> type | None:
    options = getattr(hint, "__args__", (hint,))
    return next((option for option in options if isinstance(option, type) and is_dataclass(option)), None)


def keys_of(node: Mapping[str, Any]) -> tuple[str, ...]:
    """Keys that a component's constructor takes, () when the target cannot be imported."""
    if not isinstance(node.get(TARGET), str):
        return ()
    found = _located("", node[TARGET])
    return () if isinstance(found, Problem) else tuple(parameters_of(found) or ())
