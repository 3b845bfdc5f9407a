"""Cases in a process of their own, which a watchdog may kill: what became of each.

A forked child works through many cases and says when each begins and how it ended. It has limits of memory and of file
sizes, and the guard. A child that dies or hangs costs one case; the parent counts it and the next child goes on.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from random import Random

import numba
import torch

from gnnexp.errors import GnnexpError
from torture.fuzz.case import Case, Kind, write_files
from torture.fuzz.guard import ForbiddenError, Guard

FINE = ("accepted", "refused")
FAILED = ("executed", "escaped", "traceback", "crash", "hang", "memory")
_MOST_TEXT = 4000


@dataclass(frozen=True)
class Limits:
    """What a case may take.

    Attributes:
        seconds: until it counts as hanging.
        memory_bytes: of address space, beyond that of the process at its start.
        file_bytes: of one file that it writes.
    """

    seconds: float = 20.0
    memory_bytes: int = 3 << 30
    file_bytes: int = 1 << 30


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
        seed: it was made of.
        name: one of `FINE` and `FAILED`.
        what: the input, or what it did.
        where: last line of gnnexp's own code that was in the traceback; empty where there is none.
        text: the traceback.
    """

    seed: int
    name: str
    what: str = ""
    where: str = ""
    text: str = ""


def seeds_of(kind: str, start: int) -> Iterator[int]:
    """The seeds of a kind's cases that follow from the seed of a campaign."""
    draw = Random(f"{kind} {start}")
    while True:
        yield draw.getrandbits(48)


def run_cases(
    name: str, kind: Kind, seeds: Iterator[int], seconds: float, folder: Path, limits: Limits | None = None
) -> Iterator[Outcome]:
    """Outcomes of cases of one kind, until `seconds` have passed or there are no more seeds.

    To be called where no parallel kernel has run: OpenMP ends the forks of such a process.

    Args:
        name: of the kind.
        kind: makes a case of a generator.
        seeds: of the cases.
        seconds: of all; the case that is running then is waited for.
        folder: for their files; emptied.
        limits: of a case.
    """
    limits, end = limits or Limits(), time.monotonic() + seconds
    while time.monotonic() < end:
        ended = yield from _one_child(name, kind, seeds, end, folder, limits)
        if ended:
            return


def _one_child(
    name: str, kind: Kind, seeds: Iterator[int], end: float, folder: Path, limits: Limits
) -> Generator[Outcome, None, bool]:
    """Cases until the child ends; returns whether it ended because all is done."""
    shutil.rmtree(folder, ignore_errors=True)
    for_seeds, seeds_in = os.pipe()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        os.close(seeds_in)
        _work(name, kind, for_seeds, folder, writing, limits)
    os.close(writing)
    os.close(for_seeds)
    try:
        return (yield from _listen(child, reading, seeds_in, seeds, end, limits))
    finally:
        os.close(reading)
        os.close(seeds_in)
        _end(child)


def _listen(
    child: int, reading: int, seeds_in: int, seeds: Iterator[int], end: float, limits: Limits
) -> Generator[Outcome, None, bool]:
    """Hand out one seed after another, and wait for its outcome; returns whether all is done."""
    heard = b""
    for seed in seeds:
        os.write(seeds_in, f"{seed}\n".encode())
        watch = _Watch(child, limits.seconds)
        while b"\n" not in heard:
            if not select.select([reading], [], [], 0.1)[0]:
                if watch.hangs():
                    yield Outcome(seed, "hang", f"no answer for {limits.seconds:.0f} s")
                    return False
                continue
            piece = os.read(reading, 1 << 16)
            if not piece:
                yield Outcome(seed, "crash", _cause_of_death(child))
                return False
            heard += piece
        line, _, heard = heard.partition(b"\n")
        found = json.loads(line)
        if found["name"] == "broken":
            raise AssertionError(f"the fuzzer itself failed at seed {seed}:\n{found['text']}")
        yield Outcome(**found)
        if time.monotonic() >= end:
            return True
    return True


class _Watch:
    """When a case counts as hanging: after its time, if the process worked or slept that long and did not only wait for
    a busy machine. A process that is neither working nor getting on for six times as long hangs as well."""

    def __init__(self, child: int, seconds: float) -> None:
        self._child, self._seconds = child, seconds
        self._start, self._cpu = time.monotonic(), _cpu_seconds(child)

    def hangs(self) -> bool:
        took = time.monotonic() - self._start
        worked = _cpu_seconds(self._child) - self._cpu
        return took > self._seconds and (
            worked > self._seconds / 2 or took > 6 * self._seconds or _state(self._child) == "S"
        )


def _cpu_seconds(process: int) -> float:
    return sum(map(int, _stat(process)[11:13])) / os.sysconf("SC_CLK_TCK")


def _state(process: int) -> str:
    return _stat(process)[0]


def _stat(process: int) -> list[str]:
    """The fields of `/proc/PID/stat` after the name, from the state on; zeros for a process that is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ["Z", *["0"] * 20]


def _cause_of_death(child: int) -> str:
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"died of {signal.Signals(os.WTERMSIG(status)).name}"
    return f"ended with exit code {os.waitstatus_to_exitcode(status)} without a word"


def _end(child: int) -> None:
    try:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.killpg(child, signal.SIGKILL)  # what a case has started
    except (ProcessLookupError, ChildProcessError):  # it is gone, and was waited for
        return


# --- in the child --------------------------------------------------------------------------------------------------
def _work(name: str, kind: Kind, seeds: int, folder: Path, writing: int, limits: Limits) -> None:
    """Cases until the parent closes the pipe; never returns."""
    try:
        os.setsid()
        worker = Worker(name, kind, folder, limits)
        with os.fdopen(seeds) as lines:
            for line in lines:
                os.write(writing, json.dumps(asdict(worker.outcome(int(line)))).encode() + b"\n")
    except BaseException:
        broken = Outcome(0, "broken", text=traceback.format_exc())
        os.write(writing, json.dumps(asdict(broken)).encode() + b"\n")
    finally:
        os._exit(0)


class Worker:
    """Works on cases in this process, which must be one that ends with them.

    Args:
        name: of the kind.
        kind: makes cases.
        folder: for their files.
        limits: of a case.
    """

    def __init__(self, name: str, kind: Kind, folder: Path, limits: Limits) -> None:
        self._name, self._kind = name, kind
        self._outside = folder
        # Room above the case's folder, where `../` leads.
        self._place = folder / "above" / "place"
        self._numbers = count()
        self._quiet()
        self._limit(limits)
        self._guard = Guard()

    def _quiet(self) -> None:
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        faulthandler.disable()  # the outcome names the signal
        sys.dont_write_bytecode = True
        # Nothing here has to survive a power failure, and a disk that is asked to flush makes a hundred cases a minute.
        os.fsync = lambda fd: None
        torch.set_num_threads(1)
        numba.set_num_threads(1)

    def _limit(self, limits: Limits) -> None:
        size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        for kind, most in (
            (resource.RLIMIT_AS, size + limits.memory_bytes),
            (resource.RLIMIT_FSIZE, limits.file_bytes),
            (resource.RLIMIT_CORE, 0),
        ):
            resource.setrlimit(kind, (most, most))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def outcome(self, seed: int) -> Outcome:
        """Make the case of `seed` and have it read."""
        work = self._place / f"work{next(self._numbers)}"
        for folder in (work, work / "tmp"):
            folder.mkdir(parents=True)
        os.chdir(work)
        os.environ |= {"TMPDIR": str(work / "tmp"), "GNNEXP_CACHE": str(work / "cache"), "HOME": str(work)}
        tempfile.tempdir = str(work / "tmp")
        case, modules = self._kind(Random(f"{self._name} {seed}")), list(sys.path)
        write_files(case, work)
        found = self._read(seed, case, work)
        sys.path[:] = modules  # commands add the current folder, which will be another
        escaped = self._strays(work)
        os.chdir(self._outside)
        shutil.rmtree(work)
        return Outcome(seed, "escaped", f"{case.what}: wrote {escaped}") if escaped and found.name in FINE else found

    def _read(self, seed: int, case: Case, work: Path) -> Outcome:
        error: BaseException | None = None
        name, what = "accepted", case.what
        try:
            with self._guard.watching(work, reads_anywhere=case.reads_anywhere):
                case.read()
        except GnnexpError:
            name = "refused"
        except MemoryError as caught:
            name, error = "memory", caught
        except (Exception, ForbiddenError, KeyboardInterrupt, SystemExit) as caught:
            name, error = ("memory" if "can't allocate memory" in str(caught) else "traceback"), caught
        if self._guard.found:
            name, what = self._guard.found[0][0], f"{case.what}: {self._guard.found[0][1]}"
        if error is None:
            return Outcome(seed, name, what[:_MOST_TEXT])
        text = "".join(traceback.format_exception(error, limit=-40))
        what = what if self._guard.found else f"{case.what}: {type(error).__name__}: {str(error)[:200]}"
        return Outcome(seed, name, what[:_MOST_TEXT], _where(error), text[-4 * _MOST_TEXT :])

    def _strays(self, work: Path) -> str:
        """What lies around the folder of the case, by whatever way it came there."""
        around = [item for folder in (self._outside, self._outside / "above", self._place) for item in folder.iterdir()]
        strays = [item for item in around if item not in (self._outside / "above", self._place, work)]
        for item in strays:
            shutil.rmtree(item) if item.is_dir() and not item.is_symlink() else item.unlink()
        return ", ".join(str(item.relative_to(self._outside)) for item in strays)


def _where(error: BaseException) -> str:
    lines = [
        f"{frame.filename.rpartition('/gnnexp/')[2]}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if "/gnnexp/" in frame.filename
    ]
    return f"{type(error).__name__} at {lines[-1] if lines else 'no line of gnnexp'}"
