"""The YAML files are found in a checkout and in an installed package, and they are the same."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import gnnexp
from gnnexp.config.folders import product_folder

PACKAGE = Path(gnnexp.__file__).parent


def test_the_package_carries_the_folders_of_the_checkout() -> None:
    for name in ("conf", "sweeps"):
        assert product_folder(name).resolve() == (PACKAGE.parent / name).resolve()


@pytest.mark.slow
def test_a_wheel_carries_every_yaml_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(PACKAGE.parent)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    carried = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".yaml")}
    root = PACKAGE.parent
    files = [file for name in ("conf", "sweeps") for file in (root / name).rglob("*.yaml")]
    assert carried == {f"gnnexp/{file.relative_to(root)}" for file in files}
