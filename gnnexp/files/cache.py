"""Where gnnexp keeps what takes long to make: prepared data, compiled kernels, an empty store of the tracker."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "GNNEXP_CACHE"


def cache_root() -> Path:
    """The folder of the cache: `$GNNEXP_CACHE`, or `.gnnexp` in the working directory."""
    return Path(os.environ.get(CACHE_VARIABLE) or ".gnnexp").expanduser().absolute()
