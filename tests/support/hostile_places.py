"""Paths at which nothing good is: what a test puts where a command expects a file or a folder."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import random
import resource
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

SPARSE_BYTES = 5 << 30
# Of the processor; on a busy machine the clock runs faster. Who waits for a FIFO takes no time of the processor.
LIMIT_S, WAITING_S = 10, 60
_MEMORY_BYTES = 3 << 30
KINDS = ("missing", "empty", "binary", "closed", "loop", "fifo", "sparse", "folder", "long")


def hostile(place: Path, kind: str) -> Path:
    """Put a `kind` at `place`, and return the path to give; its folder is made.

    Args:
        place: where; its suffix says what somebody will take it for.
        kind: one of `KINDS`. Files are empty, of random bytes (`binary`), without rights (`closed`), or of 5 GiB of
            zeros that take no room (`sparse`). A `loop` is links in a circle. Nobody writes to the `fifo`. A `long`
            name is longer than systems take.
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
        missing += [] if "fix: " in self.said else ["no fix"]
        missing += ["a traceback"] if "Traceback" in self.said else []
        return f"{' '.join(self.command)[:200]}: {', '.join(missing)}\n{self.said[-1500:]}" if missing else ""


class Unprivileged:
    """A process that runs commands one after another, and may open no more than the rights of files say.

    Root may open everything, so the process gives up that right (two capabilities). It is not forked: kernels of the
    test's own process may have used OpenMP, which no fork survives.
    """

    def __init__(self) -> None:
        drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
        self.command = [*drop, sys.executable]
        self._process: subprocess.Popen[str] | None = None

    def run(self, folder: Path, commands: Sequence[Sequence[str]]) -> list[Ending]:
        """How each of the `commands` of gnnexp ends in `folder`."""
        return [self._one(folder, command) for command in commands]

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _one(self, folder: Path, command: Sequence[str]) -> Ending:
        if self._process is None:
            support = os.pathsep.join([str(Path(__file__).parent), *sys.path])
            self._process = subprocess.Popen(
                [*self.command, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": support},
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(folder), list(command)]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self.close()
            return Ending(command, -1, "the process died")
        return Ending(**json.loads(line))


class _TooLongError(BaseException):
    """A command that is still at it."""


def _ending(command: Sequence[str]) -> Ending:
    from gnnexp.cli.main import run_command

    def late(*_: object) -> None:
        raise _TooLongError("still at it")

    said = io.StringIO()
    for number, timer, seconds in (
        (signal.SIGALRM, signal.ITIMER_REAL, WAITING_S),
        (signal.SIGPROF, signal.ITIMER_PROF, LIMIT_S),
    ):
        signal.signal(number, late)
        signal.setitimer(timer, seconds)
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            code = run_command(command)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else -1
    except BaseException:
        code = -1
        said.write(traceback.format_exc())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
    return Ending(list(command), code, said.getvalue())


def main() -> None:
    """Serve `Unprivileged`: a folder and a command a line on standard input, an `Ending` a line on standard output."""
    out, sys.stdout = sys.stdout, sys.stderr
    # Reading 5 GiB shall fail, and importing is not what takes a command's seconds.
    for name in (
        "torch",
        "matplotlib.pyplot",
        "scipy.io",
        "sklearn.datasets",
        "gnnexp.cli.commands.report",
        "gnnexp.cli.running.execute",
    ):
        importlib.import_module(name)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY_BYTES, used + _MEMORY_BYTES))
    for line in sys.stdin:
        folder, command = json.loads(line)
        os.chdir(folder)
        os.environ["GNNEXP_CACHE"] = str(Path(folder) / "cache")
        out.write(json.dumps(asdict(_ending(command))) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
