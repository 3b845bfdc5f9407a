"""Opening files that somebody else may have put there: regular files only, and never more of them than makes sense."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import stat
from pathlib import Path

# What a small file of ours may have: records of one run without its epochs, states of sweeps.
SMALL_BYTES = 64 << 20
_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def open_regular(path: Path) -> io.BufferedReader:
    """Open a file for reading.

    Opening a FIFO waits until somebody writes to it, and devices never end: neither is opened.

    Raises:
        OSError: it cannot be opened, or is no regular file; `strerror` says which.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a zero byte in its name
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    kind = stat.S_IFMT(os.fstat(handle).st_mode)
    if kind != stat.S_IFREG:
        os.close(handle)
        if kind == stat.S_IFDIR:
            raise IsADirectoryError(errno.EISDIR, "Is a folder, not a file", str(path))
        raise OSError(errno.EINVAL, f"Is {_KINDS.get(kind, 'something else')}, not a regular file", str(path))
    return io.BufferedReader(io.FileIO(handle))


def is_file(path: Path) -> bool:
    """Whether `path` is a regular file; one whose name no system takes (too long, with a zero byte) is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """As `is_file`, of a folder."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def what_is(path: Path) -> str:
    """Why nothing can be read from `path`: `Is a FIFO, not a regular file`; empty where it can be opened."""
    try:
        open_regular(path).close()
    except OSError as error:
        return str(error.strerror or error)
    return ""


def read_limited(path: Path, limit: int) -> bytes:
    """Everything in a regular file of at most `limit` bytes; the size is looked at before anything is read.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(limit + 1) if size <= limit else b""
    if size > limit or len(content) > limit:
        raise OSError(errno.EFBIG, f"Has {max(size, len(content)):,} bytes, more than the {limit:,} that are read",
                      str(path))
    return content


def read_json(path: Path, limit: int = SMALL_BYTES) -> object:
    """The JSON value in a regular file of at most `limit` bytes.

    Raises:
        OSError: see `read_limited`.
        ValueError: it is no JSON that we would write.
    """
    return parse_json(read_limited(path, limit))


def parse_json(content: bytes) -> object:
    """The value of a JSON text in UTF-8.

    Raises:
        ValueError: it is no JSON, nested too deeply, larger than the memory, or has half of a character (a lone
            surrogate) in a text: such a text cannot be printed or written.
    """
    text = content.decode("utf-8")
    try:
        value = json.loads(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None
    except MemoryError:
        raise ValueError("JSON that does not fit in memory") from None
    return value
