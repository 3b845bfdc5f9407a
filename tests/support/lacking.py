"""The environment of a process, and of all that it starts, in which packages are not installed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_FOLDER = Path(__file__).parent / "without"


def environment_without(packages: Iterable[str]) -> dict[str, str]:
    """This process's environment, but `packages` (as they are imported) cannot be imported in it."""
    path = os.pathsep.join(filter(None, (str(_FOLDER), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "GNNEXP_WITHOUT": ",".join(packages)}
