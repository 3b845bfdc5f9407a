"""What Python compiled of a file that has changed since, although its time and its size are the same.

Python takes what it has compiled (`__pycache__`) for a file of the same size that was written in the same second. A
file that was edited twice in a second, or that was copied with its times, may then be executed as it was before.
"""

from __future__ import annotations

import importlib.util
import marshal
from functools import lru_cache
from pathlib import Path

from gnnexp.errors import DataError, Problem

_HEADER, _BY_HASH, _CHECKED = 16, 1, 2
_MOST = 0xFFFFFFFF


def drop_if_stale(file: Path) -> None:
    """Remove what was compiled of `file` if Python would execute it and it is not what the file says now.

    Raises:
        DataError: it cannot be removed.
    """
    try:
        status = file.stat()
    except OSError:  # whoever reads it says so
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
    except OSError:  # there is none, most often
        return
    if not _is_taken(content, written_ns // 10**9, size) or _is_of(content, source, file):
        return
    try:
        compiled.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(Problem(str(compiled), error.strerror, f"was compiled of another {file.name}, written in the "
                                "same second, and Python would execute it", f"touch {file}")) from None


def _is_taken(content: bytes, written: int, size: int) -> bool:
    """Whether Python takes the compiled file without another look at the source."""
    if len(content) < _HEADER or content[:4] != importlib.util.MAGIC_NUMBER:
        return False
    flags, first, second = (int.from_bytes(content[start:start + 4], "little") for start in (4, 8, 12))
    if flags & _BY_HASH:
        return not flags & _CHECKED
    return (first, second) == (written & _MOST, size & _MOST)


def _is_of(content: bytes, source: bytes, file: Path) -> bool:
    """Whether a compiled file is of this source; one that cannot be compiled now is reported by whoever imports it."""
    try:
        return bool(marshal.loads(content[_HEADER:]) == compile(source, str(file), "exec", dont_inherit=True))
    except (EOFError, TypeError, ValueError, SyntaxError, RecursionError, MemoryError):
        return False
