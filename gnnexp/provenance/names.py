"""Names of components in keys of runs and artifacts: their name in `conf/`, so that a class may move or be renamed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gnnexp.provenance.older import name_today

_CONF = Path(__file__).resolve().parent.parent / "conf"
# A class of a file, and a class of a component in it, with its key.
_TARGETS = (
    re.compile(r"^()_target_: *(gnnexp\.\S+)", re.MULTILINE),
    re.compile(r"^(\w+):[^\n]*\n +_target_: *(gnnexp\.\S+)", re.MULTILINE),
)


def name_of(target: str) -> str:
    """The name of a component in keys: `model/gat` for the class of `conf/model/gat.yaml`.

    If several files choose a class, the shortest name counts. A class inside of another one's file has the name of
    that file and its key (`feature_store/cached.cache`). A class of gnnexp that no file names has its own name: `Dot`.
    A class of somebody else has its dotted name.
    """
    target = name_today(target)
    return _names().get(target) or (target.rpartition(".")[2] if target.startswith("gnnexp.") else target)


def version_of(component: Callable[..., Any]) -> int:
    """The version of a class: the sum of `version` over the class and its bases; 0 for a function.

    So whoever raises the version of a base raises the versions of all its subclasses, a user's own included.
    """
    found = (vars(one).get("version") for one in getattr(component, "__mro__", ()))
    return sum(version for version in found if type(version) is int)


@cache
def _names() -> Mapping[str, str]:
    """`group/name` by dotted name of the class."""
    files = sorted(_CONF.glob("*/*.yaml"), key=lambda file: (len(file.stem), file.stem))
    texts = {
        f"{file.parent.name}/{file.stem}": file.read_text(encoding="utf-8")
        for file in files
        if file.parent.name != "hardware"
    }
    names: dict[str, str] = {}
    for pattern in _TARGETS:
        for name, text in texts.items():
            for key, target in pattern.findall(text):
                names.setdefault(target, f"{name}.{key}" if key else name)
    return names
