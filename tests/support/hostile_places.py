"""Paths at which nothing good is: what a test puts where a command expects a file or a folder."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

SPARSE_BYTES = 5 << 30
# Of the processor; on a busy machine the clock runs faster. Who waits for a FIFO takes no time of the processor.
LIMIT_S, WAITING_S = 10, 60
_MEMORY_BYTES = 3 << 30
NOBODY = 65534
KINDS = ("missing", "empty", "binary", "closed", "loop", "fifo", "sparse", "folder", "long")


def hostile(place: Path, kind: str) -> Path:
    """Put a `kind` at `place`, and return the path to give; its folder is made.

    Args:
        place: where; its suffix says what somebody will take it for.
        kind: of `KINDS`: nothing, a file (empty, of random bytes, without rights, of 5 GiB of zeros that take no room),
            links in a circle, a FIFO that nobody writes to, a folder, or a name longer than systems take.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    if kind == "empty":
        place.touch()
    elif kind == "binary":
        place.write_bytes(random.Random(0).randbytes(4096))
    elif kind == "closed":
        place.touch(mode=0)
    elif kind == "loop":
        other = place.with_name(f"{place.name}.other")
        place.symlink_to(other.name)
        other.symlink_to(place.name)
    elif kind == "fifo":
        os.mkfifo(place)
    elif kind == "sparse":
        place.touch()
        os.truncate(place, SPARSE_BYTES)
    elif kind == "folder":
        place.mkdir()
    elif kind == "long":
        return place.with_name("n" * 3000 + place.suffix)
    return place


@dataclass(frozen=True)
class Ending:
    """How a command ended.

    Attributes:
        command: what was typed.
        code: the exit code; -1 for a traceback or a command that was still at it after `LIMIT_S`.
        said: on standard error.
    """

    command: Sequence[str]
    code: int
    said: str

    def wrong(self, names: Iterable[str]) -> str:
        """Why this is not how a mistake ends: exit code 2, one of `names`, a fix, and no traceback; else nothing."""
        missing = [] if any(name in self.said for name in names) else ["names neither the key nor the path"]
        missing += [] if self.code == 2 else [f"ended with {self.code}"]
        missing += [] if "mend: " in self.said else ["no fix"]
        missing += ["a traceback"] if "Traceback" in self.said else []
        return f"{' '.join(self.command)[:200]}: {', '.join(missing)}\n{self.said[-1500:]}" if missing else ""


def as_nobody(commands: Sequence[Sequence[str]], folder: Path, run: Callable[[Sequence[str]], int]) -> list[Ending]:
    """Every command in `folder`, one after another, in a forked child without privileges.

    What the commands import must have been imported: nobody may not read everything.

    Args:
        commands: what to type.
        folder: the current folder of the child; all of it will belong to nobody.
        run: what carries a command out.
    """
    if os.geteuid() == 0:
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        with os.fdopen(writing, "w") as out:
            try:
                _drop(folder)
                for command in commands:
                    out.write(json.dumps(asdict(_ending(command, run))) + "\n")
                    out.flush()
            except BaseException:
                out.write(json.dumps(asdict(Ending(["the child"], -1, traceback.format_exc()))) + "\n")
                out.flush()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as lines:
        endings = [Ending(**json.loads(line)) for line in lines]
    os.waitpid(child, 0)
    left = [Ending(command, -1, "the process died") for command in commands[len(endings):]]
    return [*endings, *left]


def _drop(folder: Path) -> None:
    os.chdir(folder)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY_BYTES, used + _MEMORY_BYTES))


class _TooLongError(BaseException):
    """A command that is still at it."""


def _ending(command: Sequence[str], run: Callable[[Sequence[str]], int]) -> Ending:
    def late(*_: object) -> None:
        raise _TooLongError("still at it")

    said = io.StringIO()
    for number, timer, seconds in ((signal.SIGALRM, signal.ITIMER_REAL, WAITING_S),
                                   (signal.SIGPROF, signal.ITIMER_PROF, LIMIT_S)):
        signal.signal(number, late)
        signal.setitimer(timer, seconds)
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            code = run(command)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else -1
    except BaseException:
        code = -1
        said.write(traceback.format_exc())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stderr.flush()
    return Ending(list(command), code, said.getvalue())
