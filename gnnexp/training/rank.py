"""The process of a rank: it ends with its launcher, and reports its progress and its end.

The process is tied to its launcher before it imports torch. This module therefore imports nothing heavy.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from gnnexp.comm.environment import Environment, read_environment
from gnnexp.errors import ConfigError
from gnnexp.files.disk import EXIT_CODE
from gnnexp.launchers.parent import STACKS, die_with_parent, import_from_here

if TYPE_CHECKING:
    from gnnexp.measure.phases import PhaseTimer
    from gnnexp.record.heartbeat import Heartbeat


# A rank needs these modules to report a failure, also if no memory is left to import them. The last one is imported by
# torch, at the first backward pass that begins with a gradient.
_PRELOADED = (
    "gnnexp.training.train",
    "gnnexp.training.assemble",
    "gnnexp.training.result",
    "gnnexp.record.heartbeat",
    "gnnexp.record.failure",
    "torch.fx.experimental.symbolic_shapes",
)


def preload() -> None:
    """Load the modules of every rank before ranks are forked; starts no threads (`gnnexp.launchers.starter`).

    numba loads its typing rules when the first kernel is called. That takes as long as importing numba.
    """
    for name in _PRELOADED:
        import_module(name)
    from gnnexp.kernels.counter import permutation
    from gnnexp.provenance.code import package_digest

    permutation(0, 2)
    package_digest()  # of the code that the forks have loaded, once for all of them


def as_rank(work: Callable[[Path, Environment, list[PhaseTimer], Heartbeat], str]) -> int:
    """Do `work` as a rank that a launcher started, and report the end to the launcher. Returns the exit code.

    Args:
        work: takes the run directory, the environment of this rank, a list for the timer of its phases, and the
            heartbeat that reports the current phase. It returns who asked the run to stop, or an empty text if the run
            is over.
    """
    die_with_parent()
    import_from_here()
    run_dir = Path(sys.argv[1])
    try:
        environment = read_environment()
    except ConfigError as error:  # the rank does not know its number, so it has no status file
        print(f"gnnexp: {error}", file=sys.stderr)
        return error.exit_code
    from gnnexp.record.heartbeat import Heartbeat

    faulthandler.register(STACKS, all_threads=True)  # to standard error, the rank's log
    heartbeat = Heartbeat(run_dir, environment)
    heartbeat.start()
    started: list[PhaseTimer] = []
    try:
        stopped_by = work(run_dir, environment, started, heartbeat)
    except BaseException as error:
        from gnnexp.record.failure import failure_of

        failure = failure_of(error)
        try:
            heartbeat.last_word(
                "failed",
                phase=_failed_in(started),
                kind=failure.kind,
                reason=failure.reason,
                traceback=failure.trace,
                exit_code=failure.exit_code,
                needed_bytes=failure.needed_bytes,
                available_bytes=failure.available_bytes,
            )
        except OSError:
            _say_aloud(environment, f"failed: {failure.reason}")
        # Leave at once: if peers wait in a collective call, the clean-up of the process group would hang.
        with suppress(OSError):
            sys.stderr.flush()
        os._exit(failure.exit_code)
    try:
        heartbeat.last_word("stopped" if stopped_by else "finished", reason=stopped_by, exit_code=0)
    except OSError as error:
        _say_aloud(environment, f"has ended, and could not write how: {error}")
        return EXIT_CODE
    return 0


def _say_aloud(environment: Environment, words: str) -> None:
    """Say on standard error what the disk did not accept: torchrun and others show it. The exit code says so, too."""
    with suppress(OSError):  # it is a log on the same disk
        print(f"gnnexp: rank {environment.rank} {words}", file=sys.stderr, flush=True)


def _failed_in(started: list[PhaseTimer]) -> str:
    """The stage in which the run failed, or the phase if it failed in training."""
    if not started:
        return "start"
    stage = started[0].activity.stage
    return stage if stage != "train" else started[0].failed_in or stage
