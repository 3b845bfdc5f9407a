"""Delivery while a run goes on: a process of the lowest priority, so that neither training nor the launcher waits.

A thread of the launching process would not do, because it shares the interpreter lock. The launcher has to end a broken
run within seconds, and would wait for a thread that gets no core.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gnnexp.experiment.build import build
from gnnexp.files.disk import subfolder
from gnnexp.files.leaving import Ending
from gnnexp.files.pulse import kill
from gnnexp.trackers.base import Tracker, TrackingError
from gnnexp.trackers.delivery import REPORT_FILE, read_report, read_run

_PERIOD_S = 1.0
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

    def finish(self, timeout_s: float) -> str:
        """Deliver the rest, including the end, after the run directory is complete.

        Returns:
            Why the delivery is incomplete; empty if everything was delivered.
        """
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.stop()
            return f"the store did not answer within {timeout_s:.0f} s"
        return "" if code == 0 else _last_line(self.run_dir / "logs" / LOG)

    def stop(self) -> None:
        """End the process; the rest can be delivered later."""
        kill(self.process)


def follow(run_dir: Path) -> Follower:
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


def deliver_until_closed(tracker: Tracker, run_dir: Path, standing: IO[bytes]) -> None:
    """Deliver repeatedly until `standing` is closed. Its launcher closes it at the end of the run or by dying.

    Raises:
        TrackingError: the last delivery, after the end of the run, failed.
    """
    closed = False
    while not closed:
        closed = bool(select.select([standing], [], [], _PERIOD_S)[0])
        try:
            tracker.deliver(run_dir, end=closed)
        except TrackingError:
            if closed:
                raise


def main(arguments: list[str]) -> int:
    """Deliver the run directory `arguments[0]` until standard input is closed, or deliver a report's folder once."""
    folder, ending = Path(arguments[0]), Ending()
    try:
        if (folder / REPORT_FILE).exists():
            build(read_report(folder).tracker, Tracker).deliver_report(folder)
        else:
            _yield_to_training()  # not for a report: its command trains nothing, and its user waits
            tracker = build(read_run(folder).job["config"]["tracker"], Tracker)
            deliver_until_closed(tracker, folder, sys.stdin.buffer)
    except TrackingError as error:
        print(error, file=sys.stderr)
        ending.exit_code = 1
    else:
        ending.exit_code = 0
    return ending.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
