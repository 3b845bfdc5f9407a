"""A process that is a rank: tied to its launcher, it says what it does and how it ended.

torch is imported only after the process is tied to its launcher: this module imports nothing heavy by itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gnnexp.comm.environment import Environment, read_environment
from gnnexp.files.disk import EXIT_CODE
from gnnexp.launchers.parent import die_with_parent, import_from_here

if TYPE_CHECKING:
    from gnnexp.job import Job
    from gnnexp.record.heartbeat import Heartbeat


def as_rank(work: Callable[[Path, Environment, list[Job], Heartbeat], str]) -> int:
    """Do `work` as a rank that a launcher started: tied to it, and telling it how it went; returns the exit code.

    Args:
        work: is given the run directory, this rank's place, where to put the job once it is assembled, and whom to tell
            what is timed; returns who asked it to stop, empty if it is over.
    """
    die_with_parent()
    import_from_here()
    run_dir, environment = Path(sys.argv[1]), read_environment()
    from gnnexp.record.heartbeat import Heartbeat

    heartbeat = Heartbeat(run_dir, environment)
    heartbeat.start()
    job: list[Job] = []
    try:
        stopped_by = work(run_dir, environment, job, heartbeat)
    except BaseException as error:
        from gnnexp.record.failure import describe

        failure = describe(error)
        with suppress(OSError):  # a full disk: the exit code says so
            heartbeat.last_word(
                "failed", phase=_failed_in(job), kind=failure.kind, reason=failure.reason, traceback=failure.trace,
                exit_code=failure.exit_code, needed_bytes=failure.needed_bytes,
                available_bytes=failure.available_bytes,
            )
        # A rank whose peers wait in a collective would hang in the process group's clean-up: leave at once.
        sys.stderr.flush()
        os._exit(failure.exit_code)
    try:
        heartbeat.last_word("stopped" if stopped_by else "finished", reason=stopped_by, exit_code=0)
    except OSError:
        return EXIT_CODE
    return 0


def _failed_in(job: list[Job]) -> str:
    """The stage of the run in which it failed; in training, the phase."""
    if not job:
        return "start"
    timer = job[0].timer
    stage = timer.activity.stage
    return stage if stage != "train" else timer.failed_in or stage
