"""Classifies failures: their kind, and what a user needs to know, such as the memory that was needed."""

from __future__ import annotations

import re
import sys
import traceback
from dataclasses import dataclass
from typing import Literal

from gnnexp.errors import DivergedError, GnnexpError, HangError
from gnnexp.files.disk import EXIT_CODE, NO_ROOM, one_line, refusal
from gnnexp.measure.available import available_memory

Kind = Literal["", "error", "out of memory", "diverged", "hang", "killed", "mistake", "interrupted", "disk"]
_UNITS = {"": 1, "b": 1, "bytes": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
# Messages of torch on CPU ("you tried to allocate 12 bytes"), of CUDA ("Tried to allocate 2.00 GiB"), of numpy
# ("Unable to allocate").
_NEEDED = re.compile(r"(?:tried|unable) to allocate ([\d.]+) ?([kmgt]?i?b(?:ytes)?)?", re.IGNORECASE)


@dataclass(frozen=True)
class Failure:
    """An error in the form of a rank's status file.

    Attributes:
        kind: kind of the failure.
        reason: the reason in one line.
        trace: the traceback; empty if a user can fix the error.
        exit_code: exit code of the process.
        needed_bytes, available_bytes: bytes of memory, if they are known.
    """

    kind: Kind
    reason: str
    trace: str
    exit_code: int
    needed_bytes: int | None = None
    available_bytes: int | None = None


def failure_of(error: BaseException) -> Failure:
    """Classify the error that ends a rank; called while it is handled."""
    reason = f"{type(error).__name__}: {error}"
    if isinstance(error, GnnexpError):
        kind: Kind = (
            "diverged"
            if isinstance(error, DivergedError)
            else "hang"
            if isinstance(error, HangError)
            else "disk"
            if _lacks_room(error)
            else "mistake"
            if error.exit_code == 2
            else "error"
        )
        return Failure(kind, reason, "", error.exit_code)
    if isinstance(error, OSError) and (problem := refusal(error)) is not None:
        return Failure("disk", f"{one_line(problem)}; {problem.fix}", "", EXIT_CODE)
    if not is_out_of_memory(error):
        return Failure("error", reason, traceback.format_exc(), 1)
    needed, available = needed_bytes(str(error)), _available(error)
    figures = "" if needed is None else f"{needed:,} bytes needed, "
    line = " ".join(str(error).split()) or "no details"
    return Failure(
        "out of memory",
        f"out of memory: {figures}{available:,} bytes available ({line[:300]})",
        traceback.format_exc(),
        1,
        needed,
        available,
    )


def _lacks_room(error: BaseException | None) -> bool:
    """Whether a full disk is behind an error, whoever said it in words: that is no mistake of a configuration."""
    while error is not None and not (isinstance(error, OSError) and error.errno in NO_ROOM):
        error = error.__cause__ or error.__context__
    return error is not None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether numpy, Python or torch (CPU or CUDA) could not allocate."""
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def needed_bytes(text: str) -> int | None:
    """Bytes that could not be allocated, from an allocator's message; None if it does not contain them."""
    found = _NEEDED.search(text)
    return None if found is None else int(float(found[1]) * _UNITS[(found[2] or "").lower()])


def _available(error: BaseException) -> int:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError) and torch.cuda.is_available():
        return int(torch.cuda.mem_get_info()[0])
    return available_memory()
