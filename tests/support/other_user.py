"""What another user of the machine does, where root allows it."""

from __future__ import annotations

import encodings.idna  # noqa: F401  another user may not read the folder of this Python
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY, SOMEBODY = 65534, 54321  # user numbers; the second has no name
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@contextmanager
def shared_folder(mode: int) -> Iterator[Path]:
    """A folder that all users reach; pytest's own are for one user."""
    with tempfile.TemporaryDirectory(prefix="gnnexp-shared-", dir="/tmp") as place:
        Path(place).chmod(0o755)
        folder = Path(place) / "shared"
        folder.mkdir()
        folder.chmod(mode)
        yield folder


@contextmanager
def acting_as(user: int, *, group: int | None = None, umask: int = 0o022) -> Iterator[None]:
    """This process has the rights of another user and group, and no others; of root it keeps the way back only."""
    groups, before = os.getgroups(), os.umask(umask)
    os.setgroups([])
    own = user if group is None else group
    os.setresgid(own, own, 0)
    os.setresuid(user, user, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups(groups)
        os.umask(before)
