"""Finds the class or function of a dotted name, and checks its kind before it is called.

To find it, its module is imported and thereby executed, before any check. The names of a configuration are trusted for
this. The names of a record are not, and are never resolved (SECURITY.md).
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterable
from dataclasses import is_dataclass
from importlib.util import find_spec
from types import FunctionType
from typing import Any, get_type_hints

from gnnexp.components.packages import PLUGINS, is_requirement, missing_package
from gnnexp.components.replaced import replaced_members
from gnnexp.components.signature import nearest, returned_class
from gnnexp.errors import Problem
from gnnexp.provenance.names import name_of
from gnnexp.provenance.older import name_today

Component = type[Any] | FunctionType
# How a component of 0.1 becomes options and the object of a rank.
SPLIT = "docs/howto/split.md"


def locate(name: str) -> Component:
    """The class or function of a dotted name, or of a name that it had in an earlier version. Imports its module.

    Raises:
        ImportError: Python cannot import the module, the module does not have the name, or it is a module of Python's
            standard library, which has no components.
    """
    module, _, attribute = name_today(name).rpartition(".")
    if _is_standard_library(module):
        raise ImportError(f"{name} is part of Python's standard library, not a component", name=name)
    attribute_value = getattr(importlib.import_module(module), attribute, None)
    # `type(…)`, not `isinstance`: proxy objects of some libraries claim any class, or raise an error.
    if not issubclass(type(attribute_value), (type, FunctionType)):
        raise ImportError(f"{module} has no class or function {attribute}", name=name)
    return attribute_value  # type: ignore[return-value]


def component(key: str, name: str, kinds: tuple[type, ...]) -> Component | Problem:
    """The class or function of a dotted name, if it makes one of `kinds`. It is not called.

    A kind with `make` is a base class of options: `make` makes the object of a rank. Options are a frozen dataclass.
    """
    target = located(key, name)
    if isinstance(target, Problem):
        return target
    kind_of_target = target if isinstance(target, type) else returned_class(target)
    # Look for real inheritance: `issubclass` may accept any class that has certain methods.
    if kind_of_target is None or not any(base is kind for base in kind_of_target.__mro__ for kind in kinds):
        return (None if kind_of_target is None else missing_options(key, name, kind_of_target, kinds)) or not_of_kind(
            key, name, kinds
        )
    if any(hasattr(kind, "make") for kind in kinds) and not is_dataclass(kind_of_target):
        return Problem(key, name, "must be a frozen dataclass: its fields are its options", f"see {SPLIT}")
    if outdated := outdated_members(key, name, kind_of_target):
        return outdated
    if inspect.isabstract(target):
        left = ", ".join(sorted(getattr(target, "__abstractmethods__", ())))
        return Problem(key, name, f"is abstract: it does not define {left}", "name a class that inherits from it")
    return target


def missing_options(key: str, name: str, options_class: type[Any], kinds: tuple[type, ...]) -> Problem | None:
    """The problem of a rank's class where options are wanted: components before 0.2.0 were both in one class."""
    for kind in kinds:
        rank_class = get_type_hints(kind.make).get("return") if hasattr(kind, "make") else None
        if rank_class in options_class.__mro__:
            return Problem(
                key,
                name,
                f"is a {rank_class.__name__} of a rank, and lacks a frozen dataclass of its options, which inherits "
                f"from {kind.__module__}.{kind.__qualname__} and makes it",
                f"see {SPLIT}, which has before and after side by side",
            )
    return None


def outdated_members(key: str, name: str, component_class: type[Any]) -> Problem | None:
    """The problem of earlier members in a class, or in the class of a rank that the class says it makes."""
    makers = (getattr(component_class, maker, None) for maker in ("make", "trainer"))
    of_ranks = (returned_class(maker) for maker in makers if maker is not None)
    members = [member for kind in (component_class, *of_ranks) if kind is not None for member in replaced_members(kind)]
    if not members:
        return None
    return Problem(
        key,
        name,
        f"has members that nothing calls since 0.2.0 (now): {', '.join(members)}",
        f"see {SPLIT}, which has before and after side by side",
    )


def not_of_kind(key: str, name: str, kinds: tuple[type, ...]) -> Problem:
    """The problem of a component that inherits from none of `kinds`."""
    wanted = " or ".join(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)
    return Problem(
        key,
        name,
        f"must be a {wanted}",
        "name a class that inherits from it, or a function whose return annotation says so",
    )


def located(key: str, name: str) -> Component | Problem:
    """As `locate`, but returns a problem of `key` instead of raising."""
    module, _, attribute = name.rpartition(".")
    try:
        return locate(name)
    except ModuleNotFoundError as error:
        return missing_module(key, name, error)
    except ValueError:
        return Problem(key, name, "must be package.module.Class", "write the full dotted name")
    except ImportError as error:
        return _earlier_import(key, name, error) or Problem(key, name, str(error), _nearest_name(module, attribute))
    except (Exception, SystemExit) as error:  # a user's own module may fail in any way while it is imported
        return Problem(key, name, f"importing it raised {error!r}", f"python -c 'import {module}'")


def _earlier_import(key: str, name: str, error: ImportError) -> Problem | None:
    """The problem of a user's module that imports a class of gnnexp by an earlier name."""
    names = re.search(r"cannot import name '(\w+)' from '([\w.]+)'", str(error))
    earlier = "" if names is None else f"{names[2]}.{names[1]}"
    if name_today(earlier) == earlier:
        return None
    return Problem(key, name, f"imports {earlier}, which is {name_today(earlier)} since 0.2.0", f"see {SPLIT}")


def _is_standard_library(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _nearest_name(module: str, attribute: str) -> str:
    if _is_standard_library(module):
        return "name a class or function of gnnexp, or of your own package"
    close = nearest(attribute, dir(sys.modules[module])) if module in sys.modules else None
    return f"did you mean {module}.{close}?" if close else f"python -c 'import {module}'"


def missing_module(key: str, value: object, error: ModuleNotFoundError) -> Problem:
    """The problem of a missing package. If gnnexp requires the package, the fix is the command that installs it."""
    package = (error.name or "").partition(".")[0]
    if is_requirement(package) or package in PLUGINS:
        return missing_package(key, value, package)
    repair = "correct the name, or put it on PYTHONPATH"
    if missing_packages([package]):  # for example a plug-in that was uninstalled
        repair = f"install the package that has {package}, put it on PYTHONPATH, or correct the name"
    return Problem(key, value, f"module {error.name} does not exist", repair)


def missing_packages(names: Iterable[str]) -> list[str]:
    """The topmost packages of dotted names that Python does not find. Nothing is imported."""
    packages = {name.partition(".")[0] for name in names} - set(sys.modules)
    return sorted(package for package in packages if package and find_spec(package) is None)


def choice_of(component: object) -> str:
    """A component as a user chooses it, for sentences: `model=gat`; the dotted name of a class that `conf/` lacks."""
    return name_of(target_of(component)).replace("/", "=")


def target_of(component: object) -> str:
    """The dotted name of a component's class, for messages."""
    return f"{type(component).__module__}.{type(component).__qualname__}"
