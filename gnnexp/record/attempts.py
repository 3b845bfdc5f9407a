"""The attempts at a run: `attempts.jsonl`, with a line per start and end, and the process that works on it now."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
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
from gnnexp.files.regular import SMALL_BYTES, parse_json, read_limited, regular_handle

ATTEMPTS_FILE = "attempts.jsonl"
LOCK_FILE = "lock"
# The event of ranks that have met. It contains their machines (`nodes`), the code that they execute (`code`), and
# whether the run begins with them (`from_start`).
RANKS = "ranks"
# The event that a job's script notes as its last act, unless it puts the job back into the queue.
JOB_OVER = "job over"
# `is_held` holds the lock for a moment, so a process that needs the lock tries more than once.
_TRIES, _PAUSE_S = 5, 0.05
# Key of the problem that another process works on a run.
BUSY = "run is busy"


def note(run_dir: Path, event: str, **more: object) -> None:
    """Append a line, which is on disk before this returns. An unfinished line (a full disk) stays a line of its own."""
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
    """The noted events, in order. Lines that a killed process left unfinished, or that are no events, are left out.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        lines = read_limited(run_dir / ATTEMPTS_FILE, SMALL_BYTES).split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(
            Problem(
                str(run_dir / ATTEMPTS_FILE),
                error.strerror,
                "must be a file that you may read",
                "restore it, or remove it: it is the history of the run",
            )
        ) from None
    events = []
    for line in lines:
        try:
            event = parse_json(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str) and _is_time(event.get("time")):
            events.append(event)
    return events


def _is_time(value: object) -> bool:
    """Whether the value is a number of seconds since 1970 that a calendar can represent."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**37


def restarts_spent(run_dir: Path) -> int:
    """How often the run was started again after a failure since a user last started it."""
    starts = [line for line in read_attempts(run_dir) if line["event"] == "start"]
    return requeues(run_dir, "failure") + (int(starts[-1].get("restarts", 0)) if starts else 0)


def requeues(run_dir: Path, cause: str) -> int:
    """How often a job's script has put the job back into the queue for `cause` since it was last submitted."""
    count = 0
    for line in read_attempts(run_dir):
        count = 0 if line["event"] == "start" else count + (line["event"] == "requeue" and line.get("cause") == cause)
    return count


def is_requeued(run_dir: Path) -> bool:
    """Whether the job's script has put it back into the queue, and nothing was noted since."""
    lines = read_attempts(run_dir)
    return bool(lines) and lines[-1]["event"] == "requeue"


def nodes_of(attempts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The machines whose ranks made the records, each once (`gnnexp.provenance.machine.Node`)."""
    return _each_once(node for line in _since_start(attempts) for node in line["nodes"])


def codes_of(attempts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The codes that made the records, in order (`gnnexp.provenance.code.RunCode`); several if code was edited."""
    return _each_once(line["code"] for line in _since_start(attempts))


def describe_attempt(line: Mapping[str, Any]) -> str:
    """The line as text for a user, without its time."""
    if _is_of_ranks(line):
        return f"ranks: on {', '.join(sorted({str(node.get('host')) for node in line['nodes']}))}"
    rest = ", ".join(f"{key} {value}" for key, value in line.items() if key not in ("event", "time") and value)
    return f"{line['event']}: {rest}"


def _since_start(attempts: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The lines of ranks since the run last began at its start. Records of earlier ranks were not kept."""
    lines = [line for line in attempts if _is_of_ranks(line)]
    first = max((place for place, line in enumerate(lines) if line.get("from_start")), default=0)
    yield from lines[first:]


def _is_of_ranks(line: Mapping[str, Any]) -> bool:
    """Whether a line is an undamaged note of ranks that have met."""
    nodes, code = line.get("nodes"), line.get("code")
    return (
        line["event"] == RANKS
        and isinstance(nodes, list)
        and all(isinstance(node, dict) for node in nodes)
        and isinstance(code, dict)
        and isinstance(code.get("own"), dict)
    )


def _each_once(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for item in found:
        kept += [item] if item not in kept else []
    return kept


@contextmanager
def alone(run_dir: Path) -> Iterator[None]:
    """Be the only process that starts ranks for this run.

    Raises:
        ConfigError: another process does, or the run directory is moved or removed in the meantime.
    """
    with _staying(run_dir), _locked(run_dir):
        yield


@contextmanager
def _staying(run_dir: Path) -> Iterator[None]:
    """Turn a missing file into a clear error if the run directory was moved or removed."""
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
    return ConfigError(Problem("run", str(run_dir), "was just moved or removed by another process", fix))


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
                    raise ConfigError(
                        Problem(BUSY, str(run_dir), "another process is working on this run", "wait until it has ended")
                    ) from None
                time.sleep(_PAUSE_S)
        with suppress(OSError):  # if the disk is full, `holder` does not know this process
            os.ftruncate(handle, 0)
            this = Holder(platform.node(), os.getpid(), psutil.Process().create_time(), process_table())
            os.pwrite(handle, json.dumps(asdict(this)).encode(), 0)
        yield
    finally:
        os.close(handle)


def is_held(run_dir: Path) -> bool:
    """Whether a process starts or follows ranks for this run; it can be asked without the right to write."""
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
        host: machine on which it runs.
        pid: process id on that machine.
        started: start time in seconds since the epoch, which distinguishes it from other processes with this id.
        table: process table of that id (`gnnexp.files.pulse.process_table`); empty in files of earlier versions.
    """

    host: str
    pid: int
    started: float
    table: str = ""


def holder(run_dir: Path) -> Holder | None:
    """The process that works on the run, from its lock file; valid only while `is_held`. None if it is not named."""
    return read_holder(run_dir / LOCK_FILE)


def read_holder(file: Path) -> Holder | None:
    """The process that a lock file names, or None."""
    try:
        found = parse_json(read_limited(file, SMALL_BYTES))
        fields = found if isinstance(found, dict) else {}
        return Holder(str(fields["host"]), int(fields["pid"]), float(fields["started"]), str(fields.get("table", "")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _open_lock(path: Path, flags: int) -> int:
    """Open the lock file without waiting, although it may be a FIFO, for example.

    Raises:
        ConfigError: it is no regular file.
        OSError: it cannot be opened.
    """
    try:
        return regular_handle(path, flags)
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EINVAL):
            raise
        raise ConfigError(
            Problem("run", str(path), f"must be a file ({error.strerror})", "remove it: it is only a lock")
        ) from None
