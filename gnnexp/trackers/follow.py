"""Delivery while a run goes on: a process of the lowest priority, so that neither training nor the launcher waits.

A thread of the launching process would not do, because it shares the interpreter lock. The launcher has to end a broken
run within seconds, and would wait for a thread that gets no core.

A sweep keeps the process for its next runs (`Followers`), because importing a tracker's packages takes seconds. A
request is a line of JSON on the standard input: a run directory, and `null` at the end of that run. Then the standard
output has a line with 0, or with 1 if not everything was delivered.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from gnnexp.errors import Refusal
from gnnexp.experiment.build import build
from gnnexp.files.disk import subfolder
from gnnexp.files.leaving import Ending, collect_rarely
from gnnexp.files.pulse import kill
from gnnexp.trackers.base import Tracker, TrackingError
from gnnexp.trackers.delivery import REPORT_FILE, read_report, read_run_record
from gnnexp.trackers.patience import Patience

_PERIOD_S = 1.0
# Seconds that a process without a run has to end.
_END_S = 5.0
LOG = "tracking.log"


@dataclass(frozen=True)
class Follower:
    """A running delivery of one run directory.

    Attributes:
        run_dir: the run directory, or the folder of a report.
        process: `python -m gnnexp.trackers.follow RUN_DIR`.
    """

    run_dir: Path
    process: subprocess.Popen[bytes]

    def finish(self, timeout_s: float) -> Refusal | None:
        """Deliver the rest, including the end, after the run directory is complete.

        Returns:
            Why the delivery is incomplete; None if everything was delivered.
        """
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return self._given_up(timeout_s)
        return None if code == 0 else Refusal(_last_line(self.run_dir / "logs" / LOG))

    def _given_up(self, timeout_s: float) -> Refusal:
        self.stop()
        return Refusal(f"the store did not answer within {timeout_s:g} s")

    def stop(self) -> None:
        """End the process; the rest can be delivered later."""
        kill(self.process)


@dataclass(frozen=True)
class KeptFollower(Follower):
    """A delivery by a process that then waits for the next run.

    Attributes:
        home: gets the process back after a delivery that was answered.
    """

    home: Followers

    def finish(self, timeout_s: float) -> Refusal | None:
        """See `Follower.finish`."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with suppress(BrokenPipeError):  # it was killed: its answer is empty
            self.process.stdin.write(b"null\n")
        if not select.select([self.process.stdout], [], [], timeout_s)[0]:
            return self._given_up(timeout_s)
        answer = self.process.stdout.readline()
        if answer:
            self.home.idle = self.process
        return None if answer == b"0\n" else Refusal(_last_line(self.run_dir / "logs" / LOG))


class Followers:
    """Delivers one run after another, as long as this works by one process.

    A process whose delivery was not finished, for example after Ctrl-C, gets no other run. It ends by itself.

    Attributes:
        idle: the process that waits for a run.
    """

    def __init__(self) -> None:
        self.idle: subprocess.Popen[bytes] | None = None

    def follow(self, run_dir: Path) -> Follower:
        """Start to deliver `run_dir` in the background."""
        run_dir = run_dir.resolve()
        (subfolder(run_dir, "logs") / LOG).write_bytes(b"")
        process, self.idle = self.idle, None
        if process is None or process.poll() is not None:
            process = subprocess.Popen(
                [sys.executable, "-m", "gnnexp.trackers.follow"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                bufsize=0,
            )
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it was killed just now: `finish` says so
            process.stdin.write(json.dumps(str(run_dir)).encode() + b"\n")
        return KeptFollower(run_dir, process, self)

    def close(self) -> None:
        """End the process that waits."""
        if self.idle is not None:
            assert self.idle.stdin is not None and self.idle.stdout is not None
            self.idle.stdin.close()
            with suppress(subprocess.TimeoutExpired):  # it is frozen, and ends when it goes on
                self.idle.wait(_END_S)
            self.idle.stdout.close()
            self.idle = None


def start_delivery(run_dir: Path) -> Follower:
    """Start to deliver `run_dir`, or the folder of a sweep's report, in the background."""
    run_dir = run_dir.resolve()
    with (subfolder(run_dir, "logs") / LOG).open("wb") as log:
        return Follower(run_dir, _start(run_dir, log))


def _start(run_dir: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "gnnexp.trackers.follow", str(run_dir)]
    # The process has its own session: Ctrl-C ends the run, and the run's end is still delivered.
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)


def _last_line(file: Path) -> str:
    lines = file.read_text(errors="replace").strip().splitlines() if file.exists() else []
    return lines[-1] if lines else "the delivering process died"


def _yield_to_training() -> None:
    """Let this process run only if nothing else needs the core."""
    os.nice(19)
    if hasattr(os, "SCHED_IDLE"):
        with suppress(OSError):  # a container may forbid it; the niceness still applies
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def deliver_until_closed(
    tracker: Tracker, run_dir: Path, standing: IO[bytes], patience: Patience | None = None
) -> None:
    """Deliver repeatedly until `standing` has an end: its launcher writes or closes it when the run ends, or by dying.

    Args:
        tracker: the tracker.
        run_dir: the run directory.
        standing: what the launcher holds open.
        patience: of a process that delivers many runs. A run alone always asks the store at its end.

    Raises:
        TrackingError: the last delivery, after the end of the run, failed.
    """
    closed = False
    while not closed:
        closed = bool(select.select([standing], [], [], _PERIOD_S)[0])
        try:
            deliver = partial(tracker.deliver, run_dir, end=closed)
            deliver() if patience is None else patience.ask(tracker, deliver)
        except TrackingError:
            if closed:
                raise


def main(arguments: list[str]) -> int:
    """Deliver the run directory `arguments[0]` until standard input is closed, or deliver a report's folder once.

    Without arguments, serve a `Followers`.
    """
    ending = Ending()
    collect_rarely()
    ending.exit_code = _deliver(Path(arguments[0]), sys.stdin.buffer) if arguments else _serve()
    return ending.exit_code


def _serve() -> int:
    """Deliver one run after another. The log of each run gets the output."""
    replies, patience = os.dup(1), Patience()
    with open(0, "rb", buffering=0) as requests:  # unbuffered: `select` must see what was not read
        while request := requests.readline():
            folder = Path(json.loads(request))
            log = os.open(folder / "logs" / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
            code = _deliver(folder, requests, patience)
            sys.stderr.flush()
            if not requests.readline():  # the launcher has died
                return code
            os.write(replies, f"{code}\n".encode())
    return 0


def _deliver(folder: Path, standing: IO[bytes], patience: Patience | None = None) -> int:
    """Deliver a run until `standing` has an end, or a report's folder once. 1 if the store did not take it."""
    try:
        if (folder / REPORT_FILE).exists():
            build(read_report(folder).tracker, Tracker).deliver_report(folder)
        else:
            _yield_to_training()  # not for a report: its command trains nothing, and its user waits
            tracker = build(read_run_record(folder).job["config"]["tracker"], Tracker)
            deliver_until_closed(tracker, folder, standing, patience)
    except TrackingError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
