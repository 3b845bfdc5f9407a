"""The wheels of this checkout, of gnnexp and of papers/, and what `pip install` makes of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

# What a build reads. A copy is built: setuptools leaves `build/` and `*.egg-info` in the folder that it is given.
_SOURCES = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "MANIFEST.in",
    "gnnexp",
    "conf",
    "sweeps",
    "emulated_gpu",
    "gnnexp_papers",
)


def build_wheel(repository: Path, folder: Path) -> Path:
    """The wheel of `repository`, built into `folder` by pip with the setuptools that is installed."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "-w",
        str(folder),
        str(_copied(repository, folder / "source")),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def build_both(repository: Path, folder: Path) -> tuple[Path, Path]:
    """The wheel of `repository`, and the wheel of its source distribution: both should hold the same files."""
    source = _copied(repository, folder / "source")
    _built("sdist", source, folder)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return _wheel_of(source, folder), _wheel_of(unpacked, folder / "from_sdist")


def files_of(wheel: Path) -> dict[str, bytes]:
    """What a wheel holds, by name, without what it says of itself."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


def _copied(repository: Path, source: Path) -> Path:
    source.mkdir(parents=True)
    for place in (repository / name for name in _SOURCES if (repository / name).exists()):
        name = place.name
        if place.is_dir():
            shutil.copytree(place, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(place, source / name)
    return source


def _wheel_of(source: Path, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    _built("wheel", source, folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _built(kind: str, source: Path, folder: Path) -> None:
    """By the function of setuptools that pip calls (PEP 517), without pip's seconds around it."""
    code = f"from setuptools.build_meta import build_{kind}; build_{kind}({str(folder)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def unpack(wheel: Path, folder: Path) -> Path:
    """What installing the wheel writes into `folder`; returns the folder."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder
