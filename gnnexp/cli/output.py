"""Standard output and error in files on a disk that may fill: a run or a sweep does not end for want of a log line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from gnnexp.files.disk import NO_ROOM


class _Patient:
    """A stream that drops what its disk has no room for; what it says stands in the records as well."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """As of the stream."""
        with _dropped():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """As of the stream."""
        with _dropped():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever else a stream has
        return getattr(self._stream, name)

    def finish(self) -> None:
        """Flush; what is left then would make the interpreter's exit fail."""
        try:
            self._stream.flush()
        except OSError as error:
            if error.errno not in NO_ROOM:  # a reader that has gone (`gnnexp report | head`): the interpreter knows it
                return
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self._stream.fileno())
            os.close(nothing)
            self._stream.flush()


def open_standard_streams() -> None:
    """Open on /dev/null what the caller has closed (`>&-`): else a run's first file would be its standard output."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


@contextmanager
def patient_output() -> Iterator[None]:
    """Inside, a full disk under standard output or error is no error."""
    before = sys.stdout, sys.stderr
    streams = [_Patient(stream) for stream in before]
    sys.stdout, sys.stderr = (cast(TextIO, stream) for stream in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in streams:
            if not stream.closed:
                stream.finish()


@contextmanager
def _dropped() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
