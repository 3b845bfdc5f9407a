"""Standard output: it stays usable on a full disk, so no lost log line ends a run; `--json` has it for one document."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any, TextIO, cast

from gnnexp.files.disk import NO_ROOM


@dataclass(frozen=True)
class Answer:
    """What a command found, for `--json`.

    Attributes:
        document: a value of mappings, lists and scalars. NaN and infinity become null; other values become texts.
        exit_code: exit code of the command.
    """

    document: object
    exit_code: int = 0


def exit_code_of(options: argparse.Namespace) -> int:
    """Call the command, and return its exit code.

    With `--json`, tables and messages go to standard error. Standard output then gets one JSON document, or nothing if
    the command ends with an error.
    """
    if not getattr(options, "json", False):
        answer = options.command(options)
        return answer.exit_code if isinstance(answer, Answer) else int(answer)
    with redirect_stdout(sys.stderr):
        answer = options.command(options)
    if not isinstance(answer, Answer):  # there is nothing to say but how it ended
        answer = Answer({"exit_code": answer}, answer)
    print(json.dumps(_plain(answer.document), indent=1, default=str))
    return answer.exit_code


def _plain(value: object) -> object:
    """The value with null in place of numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


class _LossyStream:
    """A stream that drops output if its disk is full; the records contain the same information."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write to the stream, or drop the text."""
        with _dropped():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream, or drop the rest."""
        with _dropped():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  all other attributes of a stream
        return getattr(self._stream, name)

    def finish(self) -> None:
        """Flush, or redirect the stream to /dev/null, since unwritten text would make the interpreter's exit fail."""
        try:
            self._stream.flush()
        except OSError as error:
            if error.errno not in NO_ROOM:  # the reader is gone (`gnnexp report | head`): the interpreter handles it
                return
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self._stream.fileno())
            os.close(nothing)
            self._stream.flush()


def open_standard_streams() -> None:
    """Open closed streams (`>&-`) on /dev/null. Otherwise a run's first file would become its standard output."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


@contextmanager
def patient_output() -> Iterator[None]:
    """Inside of this context, a full disk under standard output or error raises nothing."""
    before = sys.stdout, sys.stderr
    streams = [_LossyStream(stream) for stream in before]
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
