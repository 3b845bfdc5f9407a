"""What docstrings say of constructor arguments and fields, by name: one text, in the code and on the site."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from gnnexp.components.locate import locate

ELSEWHERE = re.compile(r"^as in `(?P<target>gnnexp[\w.]+)`\.?$")
ENTRY = re.compile(r"^ {4}(?P<names>[\w*]+(?:, *[\w*]+)*): (?P<text>.*)$")


def meanings(target: Callable[..., Any]) -> dict[str, str]:
    """Of a class, its own docstring before those of the classes that it inherits from."""
    found: dict[str, str] = {}
    for cls in reversed(inspect.getmro(target) if isinstance(target, type) else [target]):
        for text in (vars(cls).get("__doc__"), getattr(vars(cls).get("__init__"), "__doc__", None)):
            found.update(entries(inspect.cleandoc(text or "")))
    return {name: _followed(name, text) for name, text in found.items()}


def _followed(name: str, text: str) -> str:
    """What another class says of the argument, where this one only names that class."""
    elsewhere = ELSEWHERE.match(text)
    return text if elsewhere is None else meanings(locate(elsewhere["target"]))[name]


def entries(docstring: str) -> dict[str, str]:
    """Names and texts of its sections `Args` and `Attributes`; several names before one colon have it all."""
    found: dict[str, str] = {}
    current: list[str] = []
    inside = False
    for line in docstring.splitlines():
        if line and not line.startswith(" "):
            inside, current = line in ("Args:", "Attributes:"), []
        elif inside and (entry := ENTRY.match(line)):
            current = [name.strip() for name in entry["names"].split(",")]
            found.update(dict.fromkeys(current, entry["text"]))
        elif inside and line.strip():
            for name in current:
                found[name] += " " + line.strip()
    return found


def summary(target: Callable[..., Any]) -> str:
    """The first paragraph of a docstring."""
    return " ".join(inspect.cleandoc(target.__doc__ or "").split("\n\n")[0].split())
