"""Chooses the folder for compiled kernels, and informs the user who waits for the first compilation.

numba compiles a kernel again if the kernel's file changed. It does not notice a change in another file whose functions
the kernel inlines. In a checkout, `python -m gnnexp.kernels.warmup` deletes old kernels and compiles again. `make
setup` calls it when it installs packages. An upgrade of an installed gnnexp could leave old kernels in use. So an
installed gnnexp keeps its kernels in a folder of the user, whose name contains a digest of all sources.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR

import gnnexp
from gnnexp.files.cache import cache_root

VARIABLE = "NUMBA_CACHE_DIR"
_DIGITS = 12


def place_kernels(*, tell: bool) -> None:
    """Let this process, and all processes that it starts, keep compiled kernels in the right folder.

    Must be called before numba is imported. A user's own `NUMBA_CACHE_DIR` stays.

    Args:
        tell: whether to inform the user if kernels must be compiled first.
    """
    package = Path(gnnexp.__file__).resolve().parent
    folder = _folder(package)
    if folder != package:
        os.environ.setdefault(VARIABLE, str(folder))
    if tell and next(folder.rglob("*.nbi"), None) is None:
        print(
            f"compiling kernels into {folder}: the first runs take longer. To compile what they use at once: "
            f"{VARIABLE}={shlex.quote(str(folder))} python -m gnnexp.kernels.warmup",
            file=sys.stderr,
        )


def _folder(package: Path) -> Path:
    """The folder of the user's choice; in a checkout the package (see `make setup`); else a writable folder."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen)
    if (package.parent / "pyproject.toml").exists() and os.access(package / "kernels", os.W_OK):
        return package
    name = f"kernels-{sources_digest(package)}"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  without a home it stays ~
    if _is_writable(own := Path(home) / "gnnexp" / name):
        return own
    return _private(cache_root() / f"{name}-{os.getuid()}")  # the cache must be writable for any run


def _private(folder: Path) -> Path:
    """The folder, which belongs to this user only; another one, for this process, if somebody else made it.

    Kernels on disk are pickles: who can write them can execute code as whoever loads them.
    """
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (found := folder.lstat()).st_uid == os.getuid() and S_ISDIR(found.st_mode) and not found.st_mode & 0o022:
            return folder
    return Path(tempfile.mkdtemp(prefix="gnnexp-kernels-"))


def _is_writable(folder: Path) -> bool:
    """Whether files can be made in the folder; a missing folder is made."""
    if not folder.is_absolute():
        return False
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def sources_digest(package: Path) -> str:
    """Digest of all sources that may become part of a kernel."""
    total = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        text = file.read_bytes()
        if file.is_relative_to(package / "kernels") or b"@compiled(" in text:
            total.update(f"{file.relative_to(package)} {len(text)}\n".encode() + text)
    return total.hexdigest()[:_DIGITS]
