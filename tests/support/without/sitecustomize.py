"""A Python that has this folder on `PYTHONPATH`, and its children, cannot import what `GNNEXP_WITHOUT` names."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Missing(MetaPathFinder, Loader):
    """Finds packages that are to be missing, and fails to import them as if they were."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in self._names else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        raise ModuleNotFoundError(f"No module named {spec.name!r}", name=spec.name)

    def exec_module(self, module: ModuleType) -> None:
        raise AssertionError("it is never made")


sys.meta_path.insert(0, _Missing(os.environ.get("GNNEXP_WITHOUT", "").split(",")))
