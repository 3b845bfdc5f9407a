"""A disk that has room for small files only, as the system tells it: writing beyond fails in the middle of a file."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def room_for(num_bytes: int) -> Iterator[None]:
    """No file of this process may grow beyond `num_bytes` for a while (EFBIG; Python ignores SIGXFSZ).

    What is run meanwhile should have run before: numba keeps compiled kernels in files.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A disk of `size` (`150k`) at `folder`, which is made; the test is skipped where nobody may mount one."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("only root may mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(folder: Path, option: str) -> None:
    """Change a small disk: `size=4m`, `ro`, `rw`."""
    subprocess.run(["mount", "-o", f"remount,{option}", str(folder)], check=True)
