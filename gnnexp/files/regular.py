"""Opens files that may come from other users: only regular files, and only up to a sensible size."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import stat
from pathlib import Path

from gnnexp.errors import Refusal

# Size limit for our small files: records of one run without its epochs, states of sweeps.
SMALL_BYTES = 64 << 20
_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def open_regular(path: Path) -> io.BufferedReader:
    """Open a file for reading (see `regular_handle`)."""
    return io.BufferedReader(io.FileIO(regular_handle(path, os.O_RDONLY)))


def regular_handle(path: Path, flags: int) -> int:
    """The handle of a file, opened with `flags`.

    Opening a FIFO would wait until a process writes to it, and a device never ends: neither is opened.

    Raises:
        OSError: the file cannot be opened, or is no regular file; `strerror` says which.
    """
    try:
        handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except ValueError as error:  # a zero byte in its name
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    kind = stat.S_IFMT(os.fstat(handle).st_mode)
    if kind != stat.S_IFREG:
        os.close(handle)
        if kind == stat.S_IFDIR:
            raise IsADirectoryError(errno.EISDIR, "Is a folder, not a file", str(path))
        raise OSError(errno.EINVAL, f"Is {_KINDS.get(kind, 'something else')}, not a regular file", str(path))
    return handle


def is_file(path: Path) -> bool:
    """Whether `path` is a regular file; False also for an impossible name (too long, or with a zero byte)."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder; False also for an impossible name."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def why_unreadable(path: Path) -> Refusal | None:
    """Why `path` cannot be opened, such as `Is a FIFO, not a regular file`."""
    try:
        open_regular(path).close()
    except OSError as error:
        return Refusal(str(error.strerror or error))
    return None


def read_limited(path: Path, limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes; the size is checked before the file is read.

    Raises:
        OSError: the file cannot be read, is no regular file, or is larger.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(limit + 1) if size <= limit else b""
    if size > limit or len(content) > limit:
        raise OSError(
            errno.EFBIG, f"Has {max(size, len(content)):,} bytes, more than the {limit:,} that are read", str(path)
        )
    return content


def read_json(path: Path, limit: int = SMALL_BYTES) -> object:
    """The JSON value in a regular file of at most `limit` bytes.

    Raises:
        OSError: see `read_limited`.
        ValueError: the content is not JSON that gnnexp would write.
    """
    return parse_json(read_limited(path, limit))


def parse_json(content: bytes) -> object:
    """The value of a JSON text in UTF-8; a byte order mark is left out.

    Raises:
        ValueError: the content is no JSON, is nested too deeply, or is larger than the memory. Or a text in it has half
            of a character (a lone surrogate), so that it cannot be printed or written.
    """
    text = content.decode("utf-8-sig")
    try:
        value = json.loads(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None
    except MemoryError:
        raise ValueError("JSON that does not fit in memory") from None
    return value
