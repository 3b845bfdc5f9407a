"""Members of base classes: `python benchmarks/members.py [MOST]` prints the classes with more, and what they have.

A base class is one of gnnexp's that another class of gnnexp extends, or whose methods are abstract. A member is what a
subclass may override or must provide: a method, property or annotated attribute without a leading underscore. Those of
gnnexp's classes above it count, and those that are `typing.final` do not.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Iterator, Mapping

import gnnexp

MOST = 14


def base_classes() -> Mapping[type, frozenset[str]]:
    """Each base class of gnnexp with the names of its members, but for modules whose packages are not installed."""
    classes = {kind for module in _modules() for kind in _classes(module)}
    above = {base for kind in classes for base in kind.__mro__[1:]}
    return {kind: members(kind) for kind in classes if kind in above or inspect.isabstract(kind)}


def members(kind: type) -> frozenset[str]:
    """What a subclass of it may override or must provide."""
    closed: set[str] = set()
    found: set[str] = set()
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] != "gnnexp":
            continue
        own = {name for name, value in vars(base).items() if _is_member(value)} | {*inspect.get_annotations(base)}
        final = {name for name in own if _is_final(base, name)}
        found |= own - closed - final
        closed |= final
    return frozenset(name for name in found - closed if not name.startswith("_"))


def _is_member(value: object) -> bool:
    return (
        isinstance(value, (property, classmethod, staticmethod))
        or inspect.isfunction(value)
        or hasattr(value, "attrname")
    )


def _is_final(base: type, name: str) -> bool:
    """`@final` stands below `@property`, which does not take the mark."""
    value = vars(base).get(name)
    inner = getattr(value, "fget", None) or getattr(value, "__func__", None) or getattr(value, "func", None) or value
    annotation = str(inspect.get_annotations(base).get(name, ""))
    return getattr(inner, "__final__", False) is True or annotation.startswith("Final")


def _modules() -> Iterator[object]:
    for entry in pkgutil.walk_packages(gnnexp.__path__, "gnnexp."):
        if entry.name.endswith("__main__"):
            continue
        try:
            yield importlib.import_module(entry.name)
        except ImportError as error:
            if (error.name or "").partition(".")[0] == "gnnexp":
                raise


def _classes(module: object) -> Iterator[type]:
    for kind in vars(module).values():
        if inspect.isclass(kind) and kind.__module__ == getattr(module, "__name__", ""):
            yield kind


def main() -> None:
    most = int(sys.argv[1]) if len(sys.argv) > 1 else MOST
    for kind, names in sorted(base_classes().items(), key=lambda pair: (-len(pair[1]), str(pair[0]))):
        if len(names) > most:
            print(f"{len(names):>3} {kind.__module__}.{kind.__qualname__}: {', '.join(sorted(names))}")


if __name__ == "__main__":
    main()
