"""The attempts at a run: `attempts.jsonl`, one line per start and end, and who is working on it now."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.files.disk import HeldFolder, flock, put_back, writing
from gnnexp.files.pulse import process_table
from gnnexp.files.regular import SMALL_BYTES, parse_json, read_limited

ATTEMPTS_FILE = "attempts.jsonl"
LOCK_FILE = "lock"
# The event of ranks that have met: on which machines they are (`nodes`), what they execute (`code`), and whether the
# run begins with them (`from_start`).
RANKS = "ranks"
# The event that a job's script notes as its last act, unless it puts the job back into the queue.
JOB_OVER = "job over"
# `is_held` holds the lock for a moment: whoever wants it tries more than once.
_TRIES, _PAUSE_S = 5, 0.05
# Key of the problem that somebody else works on a run.
BUSY = "run is busy"


def note(run_dir: Path, event: str, **more: object) -> None:
    """Append a line, on disk before this returns; one that was not written whole (a full disk) stays alone."""
    path = run_dir / ATTEMPTS_FILE
    line = json.dumps({"event": event, "time": time.time(), **more}).encode() + b"\n"
    with writing(path), path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            line = line if file.read() == b"\n" else b"\n" + line
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def read_attempts(run_dir: Path) -> list[dict[str, Any]]:
    """What was noted, in order; a line that a killed process left unfinished, or that is no event, is left out.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        lines = read_limited(run_dir / ATTEMPTS_FILE, SMALL_BYTES).split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(Problem(str(run_dir / ATTEMPTS_FILE), error.strerror, "must be a file that you may read",
                                "restore it, or remove it: it is the history of the run")) from None
    found = []
    for line in lines:
        try:
            event = parse_json(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str) and _is_time(event.get("time")):
            found.append(event)
    return found


def _is_time(value: object) -> bool:
    """Seconds since 1970, within what a calendar has."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**37


def restarts_spent(run_dir: Path) -> int:
    """How often the run was started again after a failure since somebody last asked for it."""
    starts = [line for line in read_attempts(run_dir) if line["event"] == "start"]
    return requeues(run_dir, "failure") + (int(starts[-1].get("restarts", 0)) if starts else 0)


def requeues(run_dir: Path, cause: str) -> int:
    """How often a job's script has put it back into the queue for `cause` since it was last submitted."""
    count = 0
    for line in read_attempts(run_dir):
        count = 0 if line["event"] == "start" else count + (line["event"] == "requeue" and line.get("cause") == cause)
    return count


def is_requeued(run_dir: Path) -> bool:
    """Whether its job's script has put it back into the queue, and nothing was noted since."""
    lines = read_attempts(run_dir)
    return bool(lines) and lines[-1]["event"] == "requeue"


def nodes_of(attempts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The machines whose ranks made the records, each once (`gnnexp.provenance.machine.Node`)."""
    return _each_once(node for line in _since_start(attempts) for node in line["nodes"])


def codes_of(attempts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The code that made the records, in order (`gnnexp.provenance.code.Code`); several where it was edited."""
    return _each_once(line["code"] for line in _since_start(attempts))


def describe(line: Mapping[str, Any]) -> str:
    """What a line says but for its time, for a user."""
    if _is_of_ranks(line):
        return f"ranks: on {', '.join(sorted({str(node.get('host')) for node in line['nodes']}))}"
    rest = ", ".join(f"{key} {value}" for key, value in line.items() if key not in ("event", "time") and value)
    return f"{line['event']}: {rest}"


def _since_start(attempts: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The lines of ranks since the run last began at its start: earlier ones left no record."""
    lines = [line for line in attempts if _is_of_ranks(line)]
    first = max((place for place, line in enumerate(lines) if line.get("from_start")), default=0)
    yield from lines[first:]


def _is_of_ranks(line: Mapping[str, Any]) -> bool:
    """Whether a line is what ranks note when they have met, undamaged."""
    nodes, code = line.get("nodes"), line.get("code")
    return (line["event"] == RANKS and isinstance(nodes, list) and all(isinstance(node, dict) for node in nodes)
            and isinstance(code, dict) and all(isinstance(code.get(part), dict) for part in ("changed", "own")))


def _each_once(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for item in found:
        kept += [item] if item not in kept else []
    return kept


@contextmanager
def alone(run_dir: Path) -> Iterator[None]:
    """Be the only process that starts ranks for this run.

    Raises:
        ConfigError: another process does, or somebody moves or removes the run directory meanwhile.
    """
    with _staying(run_dir), _locked(run_dir):
        yield


@contextmanager
def _staying(run_dir: Path) -> Iterator[None]:
    """Explain a file that is not found because the run directory has left its place."""
    try:
        place = HeldFolder(run_dir)
    except (FileNotFoundError, NotADirectoryError):
        raise _left(run_dir, put_back(run_dir, "gnnexp resume")) from None
    with closing(place):
        try:
            yield
        except FileNotFoundError:
            if not place.is_left():
                raise
            raise _left(run_dir, place.fix("gnnexp resume")) from None


def _left(run_dir: Path, fix: str) -> ConfigError:
    return ConfigError(Problem("run", str(run_dir), "was moved or removed by somebody a moment ago", fix))


@contextmanager
def _locked(run_dir: Path) -> Iterator[None]:
    handle = _open_lock(run_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT)
    try:
        for tried in range(_TRIES):
            try:
                flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, run_dir / LOCK_FILE)
                break
            except BlockingIOError:
                if tried == _TRIES - 1:
                    raise ConfigError(Problem(BUSY, str(run_dir), "another process is working on this run",
                                              "wait until it has ended")) from None
                time.sleep(_PAUSE_S)
        with suppress(OSError):  # the disk is full: then `holder` does not know who works on the run
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(asdict(_this_process())).encode(), 0)
        yield
    finally:
        os.close(handle)


def is_held(run_dir: Path) -> bool:
    """Whether a process starts or follows ranks for this run; asked without a right to write."""
    try:
        handle = _open_lock(run_dir / LOCK_FILE, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB, run_dir / LOCK_FILE)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


@dataclass(frozen=True)
class Holder:
    """The process that works on a run.

    Attributes:
        host: on which it runs.
        pid: its number there.
        started: when, in seconds since the epoch: another process with its number started at another time.
        table: where it has that number (`gnnexp.files.pulse.process_table`); empty in files of earlier versions.
    """

    host: str
    pid: int
    started: float
    table: str = ""


def holder(run_dir: Path) -> Holder | None:
    """Who works on the run, as its lock file says; only true while `is_held`. None where it does not say."""
    try:
        found = parse_json(read_limited(run_dir / LOCK_FILE, SMALL_BYTES))
        fields = found if isinstance(found, dict) else {}
        return Holder(str(fields["host"]), int(fields["pid"]), float(fields["started"]), str(fields.get("table", "")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _this_process() -> Holder:
    return Holder(platform.node(), os.getpid(), psutil.Process().create_time(), process_table())


def _open_lock(path: Path, flags: int) -> int:
    """Open the lock file, which nobody waits for: not for a FIFO, for example.

    Raises:
        ConfigError: it is something else than a file.
        OSError: it cannot be opened.
    """
    try:
        handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.ELOOP, errno.ENXIO):
            raise
        raise _no_lock(path, str(error.strerror)) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _no_lock(path, "is no regular file")
    return handle


def _no_lock(path: Path, why: str) -> ConfigError:
    return ConfigError(Problem("run", str(path), f"must be a file ({why})", "remove it: it is only a lock"))
