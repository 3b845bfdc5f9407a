"""The YAML files are found in a checkout and in an installed package, and they are the same."""

from __future__ import annotations

from pathlib import Path

import gnnexp
from gnnexp.config.folders import product_folder

PACKAGE = Path(gnnexp.__file__).parent


def test_the_package_carries_the_folders_of_the_checkout() -> None:
    for name in ("conf", "sweeps"):
        assert product_folder(name).resolve() == (PACKAGE.parent / name).resolve()
