"""Removes stale compiled files, whose source has changed although its time and size are the same.

Python uses a compiled file (`__pycache__`) for every source of the same size that was written in the same second. So it
may execute the old version of a file that was edited twice in a second, or that was copied with its times.
"""

from __future__ import annotations

import importlib.util
import marshal
from functools import lru_cache
from pathlib import Path

from gnnexp.errors import DataError, Problem

_HEADER = 16


def drop_if_stale(file: Path) -> None:
    """Remove the compiled file of `file` if Python would execute it and it differs from the present source.

    Raises:
        DataError: the compiled file cannot be removed.
    """
    try:
        status = file.stat()
    except OSError:  # reading the file reports the error
        return
    _drop_if_stale(file, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4096)
def _drop_if_stale(file: Path, written_ns: int, size: int) -> None:
    if file.suffix != ".py":
        return
    compiled = Path(importlib.util.cache_from_source(str(file)))
    try:
        content = compiled.read_bytes()
        source = file.read_bytes()
    except OSError:  # usually there is no compiled file
        return
    if _is_of(content, source, file):
        return
    try:
        compiled.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(
            Problem(
                str(compiled),
                error.strerror,
                f"was compiled of another {file.name}, written in the same second, and Python would execute it",
                f"touch {file}",
            )
        ) from None


def _is_of(content: bytes, source: bytes, file: Path) -> bool:
    """Whether a compiled file is of this source. Source with mistakes is reported when it is imported."""
    try:
        return bool(marshal.loads(content[_HEADER:]) == compile(source, str(file), "exec", dont_inherit=True))
    except (EOFError, TypeError, ValueError, SyntaxError, RecursionError, MemoryError):
        return False
