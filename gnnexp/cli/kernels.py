"""Where the compiled kernels of an installation are kept; and words for the user who waits for the first ones.

numba notices that the file of a kernel has changed, but not that a file has changed whose functions the kernel inlines.
In a checkout `make setup` sees to that. An upgrade of an installed gnnexp would find old kernels with the new files.
So these are kept in a folder of the user whose name has a digest of all sources.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from pathlib import Path

import gnnexp

VARIABLE = "NUMBA_CACHE_DIR"
_DIGITS = 12


def place_kernels(*, tell: bool) -> None:
    """Have this process, and all that it starts, keep compiled kernels in the right folder.

    Must be called before numba is imported. A user's own `NUMBA_CACHE_DIR` stays.

    Args:
        tell: say so where they have to be compiled first: the command needs them.
    """
    package = Path(gnnexp.__file__).resolve().parent
    folder = _folder(package)
    if folder != package:
        os.environ.setdefault(VARIABLE, str(folder))
    if tell and next(folder.rglob("*.nbi"), None) is None:
        print(f"compiling kernels into {folder}: the first runs take a minute or two longer. To compile all of them: "
              f"{VARIABLE}={shlex.quote(str(folder))} python -m gnnexp.kernels.warmup", file=sys.stderr)


def _folder(package: Path) -> Path:
    """The user's own choice; in a checkout the package's, as of `make setup`; else a folder that may be written to."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen)
    if (package.parent / "pyproject.toml").exists() and os.access(package / "kernels", os.W_OK):
        return package
    name = f"kernels-{sources_digest(package)}"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  without a home it stays ~
    if _is_writable(own := Path(home) / "gnnexp" / name):
        return own
    # The artifact cache (`gnnexp.preparation.artifacts.cache_root`, whose import would load numba) must be writable for
    # any run.
    return Path(os.environ.get("GNNEXP_CACHE") or ".gnnexp").expanduser().absolute() / name


def _is_writable(folder: Path) -> bool:
    """Whether files can be made there; a folder that is missing is made."""
    if not folder.is_absolute():
        return False
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def sources_digest(package: Path) -> str:
    """Of all sources that a kernel may consist of."""
    total = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        text = file.read_bytes()
        if file.is_relative_to(package / "kernels") or b"@compiled(" in text:
            total.update(f"{file.relative_to(package)} {len(text)}\n".encode() + text)
    return total.hexdigest()[:_DIGITS]
