"""The attempts at a run: `attempts.jsonl`, one line per start and end, and who is working on it now."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gnnexp.errors import ConfigError, Problem

ATTEMPTS_FILE = "attempts.jsonl"
LOCK_FILE = "lock"
# The event of ranks that have met: on which machines they are.
NODES = "nodes"
# The event that a job's script notes as its last act, unless it puts the job back into the queue.
JOB_OVER = "job over"
# Key of the problem that somebody else works on a run.
BUSY = "run is busy"


def note(run_dir: Path, event: str, **more: object) -> None:
    """Append a line, on disk before this returns."""
    line = json.dumps({"event": event, "time": time.time(), **more})
    with (run_dir / ATTEMPTS_FILE).open("a", encoding="utf-8") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_attempts(run_dir: Path) -> list[dict[str, Any]]:
    """What was noted, in order; a line that a killed process left unfinished is left out."""
    path = run_dir / ATTEMPTS_FILE
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def restarts_spent(run_dir: Path) -> int:
    """How often the run was started again after a failure since somebody last asked for it."""
    starts = [line for line in read_attempts(run_dir) if line["event"] == "start"]
    return requeues(run_dir, "failure") + (int(starts[-1].get("restarts", 0)) if starts else 0)


def requeues(run_dir: Path, cause: str) -> int:
    """How often a job's script has put it back into the queue for `cause` since it was last submitted."""
    count = 0
    for line in read_attempts(run_dir):
        count = 0 if line["event"] == "start" else count + (line["event"] == "requeue" and line["cause"] == cause)
    return count


def is_requeued(run_dir: Path) -> bool:
    """Whether its job's script has put it back into the queue, and nothing was noted since."""
    lines = read_attempts(run_dir)
    return bool(lines) and lines[-1]["event"] == "requeue"


def nodes_of(attempts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The machines on which ranks of any attempt ran, each once (`gnnexp.provenance.machine.Node`)."""
    found = [node for line in attempts if line["event"] == NODES for node in line["nodes"]]
    return [node for place, node in enumerate(found) if node not in found[:place]]


@contextmanager
def alone(run_dir: Path) -> Iterator[None]:
    """Be the only process that starts ranks for this run.

    Raises:
        ConfigError: another process does.
    """
    with (run_dir / LOCK_FILE).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(Problem(BUSY, str(run_dir), "another process is working on this run",
                                      "wait until it has ended")) from None
        yield
