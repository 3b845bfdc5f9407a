"""The published files under `$GNNEXP_DATA`; without it, what needs them is skipped by name."""

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gnnexp.datasets.base import ROOT_VARIABLE


@pytest.fixture
def real(request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """Folder of a published dataset."""

    def find(directory: str) -> Path:
        root = os.environ.get(ROOT_VARIABLE)
        if not root:
            pytest.skip(f"{request.node.name} needs the files of {directory}: set {ROOT_VARIABLE} to their root")
        return Path(root) / directory

    return find


@pytest.fixture
def copied(real: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A writable copy of the folder of a published dataset."""

    def copy(directory: str) -> Path:
        target = tmp_path / directory
        shutil.copytree(real(directory), target, copy_function=shutil.copyfile)
        for path in (target, *target.rglob("*")):
            path.chmod(0o755)
        return target

    return copy


class Bomb:
    """Its pickle creates a file when it is loaded."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, ...]]:
        return os.mkdir, (str(self.trace),)


@pytest.fixture
def bomb(tmp_path: Path) -> tuple[bytes, Path]:
    """An executing pickle, and what it would create."""
    trace = tmp_path / "executed"
    return pickle.dumps(Bomb(trace), protocol=2), trace
