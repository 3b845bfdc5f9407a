"""The wheel of this checkout, and what `pip install` makes of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

# What a build reads. A copy is built: setuptools leaves `build/` and `*.egg-info` in the folder that it is given.
_SOURCES = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "gnnexp", "conf", "sweeps")


def build_wheel(repository: Path, folder: Path) -> Path:
    """The wheel of `repository`, built into `folder` with the setuptools that is installed."""
    source = folder / "source"
    source.mkdir(parents=True)
    for name in _SOURCES:
        place = repository / name
        if place.is_dir():
            shutil.copytree(place, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        elif place.exists():
            shutil.copy2(place, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index",
               "-w", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def unpack(wheel: Path, folder: Path) -> Path:
    """What installing the wheel writes into `folder`; returns the folder."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder
