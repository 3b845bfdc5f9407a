"""The YAML files are found in a checkout and in an installed package, and they are the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from wheels import build_both, files_of

import gnnexp
from gnnexp.config.folders import product_folder

PACKAGE = Path(gnnexp.__file__).parent


def test_the_package_carries_the_folders_of_the_checkout() -> None:
    for name in ("conf", "sweeps"):
        assert product_folder(name).resolve() == (PACKAGE.parent / name).resolve()


@pytest.mark.interpreter
def test_a_wheel_carries_every_file_of_data(tmp_path: Path) -> None:
    """That of the checkout, and that of the source distribution."""
    wheel, from_sdist = build_both(PACKAGE.parent, tmp_path)
    carried = files_of(wheel)
    assert files_of(from_sdist) == carried
    root, linked = PACKAGE.parent, (PACKAGE / "conf", PACKAGE / "sweeps")
    own = [file for file in PACKAGE.rglob("*") if file.is_file() and "__pycache__" not in file.parts
           and not any(file.is_relative_to(folder) for folder in linked)]
    files = [*own, *(root / "conf").rglob("*.yaml"), *(file for file in (root / "sweeps").rglob("*") if file.is_file())]
    assert set(carried) == {f"gnnexp/{str(file.relative_to(root)).removeprefix('gnnexp/')}" for file in files}
    assert {Path(name).suffix for name in carried} >= {".py", ".yaml", ".csv", ".css", ".js", ".typed"}
