"""From a dotted name to a class or a function, whose kind is known before anybody calls it.

Importing a module executes it, and happens before that check: the names in a configuration are trusted as far as that,
and nobody resolves the names of a record (SECURITY.md).
"""

from __future__ import annotations

import importlib
import inspect
import sys
from types import FunctionType
from typing import Any

from gnnexp.errors import Problem
from gnnexp.experiment.packages import known, missing_package
from gnnexp.experiment.signature import nearest, returned_class
from gnnexp.provenance.moved import name_today

Component = type[Any] | FunctionType


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


def component(key: str, name: str, kinds: tuple[type, ...]) -> Component | Problem:
    """The class or function of a dotted name, if it makes one of `kinds`; it has not been called."""
    found = located(key, name)
    if isinstance(found, Problem):
        return found
    made = found if isinstance(found, type) else returned_class(found)
    # Inherited in fact: `issubclass` asks the expected class, which may take anything that has some methods.
    if made is None or not any(one is kind for one in made.__mro__ for kind in kinds):
        return not_of_kind(key, name, kinds)
    if inspect.isabstract(found):
        left = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
        return Problem(key, name, f"leaves {left} to classes that inherit from it", "name one of these")
    return found


def not_of_kind(key: str, name: str, kinds: tuple[type, ...]) -> Problem:
    """The problem of a component of another kind."""
    wanted = " or ".join(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)
    return Problem(key, name, f"must be a {wanted}",
                   "name a class that inherits from it, or a function whose return annotation says so")


def located(key: str, name: str) -> Component | Problem:
    """As `locate`; what goes wrong is a problem of `key`."""
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
