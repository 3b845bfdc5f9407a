"""What kind of failure an error is, and what of it a user wants to know: for memory, how much was needed."""

from __future__ import annotations

import re
import sys
import traceback
from dataclasses import dataclass
from typing import Literal

import psutil

from gnnexp.errors import DivergedError, GnnexpError
from gnnexp.files.disk import EXIT_CODE, one_line, refusal

Kind = Literal["", "error", "out of memory", "diverged", "hang", "killed", "mistake", "interrupted", "disk"]
_UNITS = {"": 1, "b": 1, "bytes": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
# Of torch on CPU ("you tried to allocate 12 bytes") and on CUDA ("Tried to allocate 2.00 GiB"), of numpy ("Unable …").
_NEEDED = re.compile(r"(?:tried|unable) to allocate ([\d.]+) ?([kmgt]?i?b(?:ytes)?)?", re.IGNORECASE)


@dataclass(frozen=True)
class Failure:
    """An error as the status file of a rank tells it.

    Attributes:
        kind: of the failure.
        reason: one line.
        trace: the traceback; empty for what a user can fix.
        exit_code: of the process.
        needed_bytes, available_bytes: of memory, where they are known.
    """

    kind: Kind
    reason: str
    trace: str
    exit_code: int
    needed_bytes: int | None = None
    available_bytes: int | None = None


def describe(error: BaseException) -> Failure:
    """Classify the error that ends a rank; called while it is handled."""
    reason = f"{type(error).__name__}: {error}"
    if isinstance(error, GnnexpError):
        kind: Kind = "diverged" if isinstance(error, DivergedError) else "mistake" if error.exit_code == 2 else "error"
        return Failure(kind, reason, "", error.exit_code)
    if isinstance(error, OSError) and (problem := refusal(error)) is not None:
        return Failure("disk", f"{one_line(problem)}; {problem.fix}", "", EXIT_CODE)
    if not is_out_of_memory(error):
        return Failure("error", reason, traceback.format_exc(), 1)
    needed, available = needed_bytes(str(error)), _available(error)
    figures = "" if needed is None else f"{needed:,} bytes needed, "
    line = " ".join(str(error).split()) or "no details"
    return Failure("out of memory", f"out of memory: {figures}{available:,} bytes available ({line[:300]})",
                   traceback.format_exc(), 1, needed, available)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether numpy, Python or torch (CPU or CUDA) could not allocate."""
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def needed_bytes(text: str) -> int | None:
    """Bytes that could not be allocated, as an allocator's message names them."""
    found = _NEEDED.search(text)
    return None if found is None else int(float(found[1]) * _UNITS[(found[2] or "").lower()])


def _available(error: BaseException) -> int:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError) and torch.cuda.is_available():
        return int(torch.cuda.mem_get_info()[0])
    return int(psutil.virtual_memory().available)
