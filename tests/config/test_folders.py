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
def test_a_wheel_carries_every_file_of_data(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(PACKAGE.parent)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    carried = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("gnnexp/")}
    root, linked = PACKAGE.parent, (PACKAGE / "conf", PACKAGE / "sweeps")
    own = [file for file in PACKAGE.rglob("*") if file.is_file() and "__pycache__" not in file.parts
           and not any(file.is_relative_to(folder) for folder in linked)]
    files = [*own, *(root / "conf").rglob("*.yaml"), *(root / "sweeps").rglob("*.yaml")]
    assert carried == {f"gnnexp/{str(file.relative_to(root)).removeprefix('gnnexp/')}" for file in files}
    assert {Path(name).suffix for name in carried} >= {".py", ".yaml", ".csv"}
