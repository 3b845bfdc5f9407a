"""Reads Parquet files of strangers in a process of its own: their sizes may be false, and the reader is C++.

The process writes the JSON of each row as one line. `python -m gnnexp.record.reader < FILE` is that process.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from gnnexp.files.regular import SMALL_BYTES
from gnnexp.record.columnar import read_rows

# Memory of the process beyond that of pyarrow itself. It is a multiple of the file, and some more: records are packed
# by a factor of 30, and their numbers are objects of Python.
_BYTES_PER_BYTE, _MORE_BYTES, _MOST_MEMORY = 100, 512 << 20, 8 << 30
_MOST_SAID = 200
# All lines together, by the size of the file.
_MOST_BYTES, _MOST_FACTOR, _ALWAYS_ALLOWED = 4 << 30, 1000, 1 << 20


class RecordFile(NamedTuple):
    """A file that a row holds.

    Attributes:
        name: its name.
        content: its JSON.
    """

    name: str
    content: bytes

    def read(self, limit: int) -> bytes:
        """The whole content.

        Raises:
            ValueError: it has more than `limit` bytes.
        """
        if len(self.content) > limit:
            raise ValueError(f"{self.name[:80]!r} has {len(self.content):,} bytes, at most {limit:,} are read")
        return self.content


def rows(file: BinaryIO) -> Iterator[RecordFile]:
    """The files that the rows of an open file hold, in its order.

    Raises:
        ValueError: it is damaged, or holds more than the limits.
    """
    left = min(_MOST_BYTES, max(_ALWAYS_ALLOWED, _MOST_FACTOR * os.fstat(file.fileno()).st_size))
    command = [sys.executable, "-m", "gnnexp.record.reader"]
    with subprocess.Popen(
        command,
        stdin=file,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},  # others reserve gigabytes of addresses
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            while line := process.stdout.readline(SMALL_BYTES):
                left -= len(line)
                if left < 0 or not line.endswith(b"\n"):
                    raise ValueError("it unpacks to more than a file of records of this size")
                name, _, content = line.partition(b"\t")
                yield RecordFile(str(json.loads(name)), content)
            said = process.stderr.read().decode(errors="replace").strip().splitlines()
            if process.wait() != 0:
                raise ValueError(said[-1] if said else f"its reader ended with {process.returncode}")
        finally:
            process.kill()


# --- the process that reads --------------------------------------------------------------------------------------
def _answer(file: BinaryIO) -> None:
    """Write the rows of a file to standard output. They have a tab after the name, as JSON has none."""
    import pyarrow.parquet  # noqa: F401  before memory is limited

    _limit_memory(os.fstat(file.fileno()).st_size)
    for name, record in read_rows(file):
        sys.stdout.write(f"{json.dumps(name)}\t{json.dumps(record)}\n")
    sys.stdout.flush()


def _limit_memory(size: int) -> None:
    now = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    more = min(_MOST_MEMORY, _BYTES_PER_BYTE * size + _MORE_BYTES)
    resource.setrlimit(resource.RLIMIT_AS, (now + more,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    try:
        _answer(sys.stdin.buffer)
    except Exception as error:  # of any kind: the file is a stranger's
        print(f"{type(error).__name__}: {error}"[:_MOST_SAID], file=sys.stderr)
        sys.exit(1)
