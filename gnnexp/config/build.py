"""From `_target_` to objects, and the same checked without building: no Hydra, so that every rank can do it."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from typing import Any, TypeVar, overload

from gnnexp.config.packages import known, missing_package
from gnnexp.config.signature import (
    TARGET,
    Parameter,
    check_keys,
    nearest,
    parameters_of,
    parameters_of_dataclass,
)
from gnnexp.errors import ConfigError, Problem

T = TypeVar("T")


@overload
def build(node: Mapping[str, Any], expected: Callable[..., T]) -> T: ...
@overload
def build(node: Mapping[str, Any], expected: None = None) -> object: ...
def build(node: Mapping[str, Any], expected: Callable[..., T] | None = None) -> T | object:
    """Import `node["_target_"]` and call it with the other keys; nested mappings with `_target_` are built first.

    Args:
        node: plain mapping of a resolved config.
        expected: class, abstract or not, that the result must be an instance of, None for any.

    Raises:
        ConfigError: if the target cannot be imported, its keys or types are wrong, or it is not an `expected`.
    """
    name = str(node.get(TARGET))
    problems = check_node(name.rpartition(".")[2], node)
    if problems:
        raise ConfigError(problems)
    target = locate(name)
    built: object = target(**{key: _built(value) for key, value in node.items() if key != TARGET})
    if isinstance(expected, type) and not isinstance(built, expected):
        raise ConfigError(Problem(TARGET, name, f"must be a {expected.__module__}.{expected.__qualname__}",
                                  "name a class that inherits from it"))
    return built


def _built(value: object) -> object:
    if isinstance(value, Mapping) and TARGET in value:
        return build(value)
    return list(value) if isinstance(value, tuple) else value


def locate(name: str) -> Callable[..., Any]:
    """The class or function of a dotted name.

    Raises:
        ImportError: as Python raised it, or if the module lacks the name, or is one of Python's own: a target is called
            with keys of a file, and `os.system` would do whatever that file says.
    """
    module, _, attribute = name.rpartition(".")
    if _is_pythons(module):
        raise ImportError(f"{name} is part of Python's standard library, not a component", name=name)
    found = getattr(importlib.import_module(module), attribute, None)
    if not callable(found):
        raise ImportError(f"{module} has no class or function {attribute}", name=name)
    return found  # type: ignore[no-any-return]


def check_node(path: str, node: object) -> list[Problem]:
    """Everything wrong with a component's mapping: target, unknown, missing and mistyped keys, nested ones too.

    Args:
        path: config key of the mapping (`sampler`), for the messages.
        node: what the config has there.
    """
    if not isinstance(node, Mapping) or not isinstance(node.get(TARGET), str):
        mend = f"set {path}.{TARGET}=package.module.Class" if "." in path else f"choose one: {path}=<name>"
        return [Problem(path, node, f"must be a mapping with {TARGET}", mend)]
    nested = [
        problem
        for key, value in node.items()
        if isinstance(value, Mapping) and TARGET in value
        for problem in check_node(f"{path}.{key}", value)
    ]
    found = _locate_or_problem(path, node[TARGET])
    if isinstance(found, Problem):
        return [found, *nested]
    allowed = parameters_of(found)
    return nested if allowed is None else [*check_keys(path, node, allowed), *nested]


def _locate_or_problem(path: str, name: str) -> Callable[..., Any] | Problem:
    module, _, attribute = name.rpartition(".")
    try:
        found = locate(name)
        if inspect.isabstract(found):
            left = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
            return Problem(f"{path}.{TARGET}", name, f"leaves {left} to classes that inherit from it",
                           "name one of these")
        return found
    except ModuleNotFoundError as error:
        return missing_module(f"{path}.{TARGET}", name, error)
    except ValueError:
        return Problem(f"{path}.{TARGET}", name, "must be package.module.Class", "write the full dotted name")
    except ImportError as error:
        return Problem(f"{path}.{TARGET}", name, str(error), _nearest_name(module, attribute))
    except Exception as error:  # a user's own module may fail in any way while it is imported
        return Problem(f"{path}.{TARGET}", name, f"importing it raised {error!r}", f"python -c 'import {module}'")


def wrong_kind(path: str, name: str, expected: type) -> Problem | None:
    """The problem of a class that is not an `expected`; None for a function, or what cannot be imported."""
    found = _locate_or_problem(path, name)
    if not isinstance(found, type) or issubclass(found, expected):
        return None
    return Problem(f"{path}.{TARGET}", name, f"must be a {expected.__module__}.{expected.__qualname__}",
                   "name a class that inherits from it")


def _is_pythons(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _nearest_name(module: str, attribute: str) -> str:
    if _is_pythons(module):
        return "name a class or function of gnnexp, or of a package of yours"
    try:
        close = nearest(attribute, dir(importlib.import_module(module)))
    except ImportError:
        close = None
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
    found = _locate_or_problem("", node[TARGET])
    return () if isinstance(found, Problem) else tuple(parameters_of(found) or ())
