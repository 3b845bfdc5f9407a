"""All ranks on this machine: forks of one process that has imported what they need."""

from __future__ import annotations

import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil

from gnnexp.components.schema import HardwareConfig
from gnnexp.components.setting import Setting
from gnnexp.errors import Problem
from gnnexp.files.disk import HeldFolder, subfolder
from gnnexp.files.private import make_private, remove_private
from gnnexp.launchers.base import Launcher, Outcome, lost_place
from gnnexp.launchers.interrupts import Interrupts, handling, noted
from gnnexp.launchers.parent import STACKS
from gnnexp.launchers.ranks import END_S, Ranks
from gnnexp.launchers.status import Death, have_finished, judge, read_statuses, remove_unfinished_words
from gnnexp.launchers.variables import worker_variables
from gnnexp.launchers.watch import STACKS_S, Watchdog
from gnnexp.measure.available import kernel_kills
from gnnexp.record.records import JOB_FILE

_LISTEN_S = 0.1
# Seconds after a stop request until the user sees what the ranks are doing.
_QUIET_S = 8.0
# Seconds that the starter has to report the end of the last rank. It looks every 50 ms, unless it is frozen.
_TELL_S = 5.0


class LocalLauncher(Launcher):
    """Starts one process per worker on this machine; the process that they are forked from is kept until `close`.

    Args:
        worker_module: module whose `main` every rank runs.
    """

    def __init__(self, worker_module: str = "gnnexp.worker") -> None:
        self.worker_module = worker_module
        self._ranks: Ranks | None = None

    def check(self, setting: Setting) -> list[Problem]:
        """A local run has one machine, and the launching process waits for it."""
        nodes = setting.hardware.nodes
        problems = (
            []
            if nodes == 1
            else [
                Problem(
                    "hardware.nodes",
                    nodes,
                    "this launcher starts ranks on one machine",
                    "hardware.nodes=1, and more hardware.workers",
                )
            ]
        )
        if setting.hardware.detach:
            problems.append(
                Problem(
                    "hardware.detach",
                    True,
                    "a local run ends with the process that started it",
                    "hardware.detach=false, or run it under nohup",
                )
            )
        return problems

    def check_here(self, hardware: HardwareConfig) -> list[Problem]:
        """The requested device must exist on this machine."""
        if hardware.device != "cuda" or _has_cuda():
            return []
        return [Problem("hardware.device", "cuda", "no CUDA device is visible", "set hardware.device=cpu")]

    def launch(self, run_dir: Path, hardware: HardwareConfig) -> Outcome:
        """See `Launcher.launch`. Only the main thread gets signals. The workers end with the calling thread."""
        run_dir = run_dir.resolve()
        shutil.rmtree(run_dir / "status", ignore_errors=True)  # status files of an earlier attempt
        for folder in ("logs", "status"):
            subfolder(run_dir, folder)
        make_private(run_dir, here=True)
        with closing(HeldFolder(run_dir, JOB_FILE)) as place:
            outcome = self._launched(place, hardware)
            if not place.is_left():
                return outcome
            return replace(lost_place(run_dir, place.fix("gnnexp resume")), asked=outcome.asked)

    def close(self, end_s: float = END_S) -> None:
        """End the process that ranks are forked from; it is killed if it has not ended after `end_s`."""
        if self._ranks is not None:
            self._ranks.close(end_s)
            self._ranks = None

    def _launched(self, place: HeldFolder, hardware: HardwareConfig) -> Outcome:
        """Start the ranks and watch them to their end. A signal only asks for this end, and interrupts no cleaning."""
        with noted() as asked:
            try:
                return self._watched(place, hardware, asked)
            finally:
                remove_unfinished_words(place.folder)
                remove_private(place.folder)

    def _watched(self, place: HeldFolder, hardware: HardwareConfig, asked: Interrupts) -> Outcome:
        run_dir = place.folder
        ranks = self._started(run_dir, hardware)
        watchdog, kills = Watchdog(place, ranks.pids, hardware.workers, hardware.timeout_s), kernel_kills()
        # The ranks then write a checkpoint. This process does nothing else with the signal.
        with handling({signal.SIGUSR2: lambda *_: watchdog.tell(signal.SIGUSR2)}):
            watchdog.start()
            try:
                stopped = _wait(ranks, hardware, asked, watchdog)
                if stopped:
                    in_time = _stop(ranks, hardware, asked)
                    self.close()
                    if have_finished(run_dir, hardware.workers):  # the ranks had just finished
                        return Outcome(0, "finished", asked=stopped)
                    return replace(_interrupted(stopped, in_time=in_time), asked=stopped)
                trouble = _starter_trouble(run_dir, ranks, hardware)
                if len(ranks.exit_codes) < hardware.workers:
                    self.close(0.0)  # the ranks that are left, and the starter, end here
            finally:
                watchdog.close()
        outcome = _outcome(run_dir, hardware.workers, ranks.exit_codes, watchdog, kernel_kills() > kills)
        if trouble is not None and outcome.status != "finished":
            outcome = trouble
        return replace(outcome, asked=asked.first)

    def _started(self, run_dir: Path, hardware: HardwareConfig) -> Ranks:
        environment = os.environ | worker_variables(hardware, num_cores())
        if self._ranks is not None and not self._ranks.fits(self.worker_module, environment):
            self.close()
        if self._ranks is None:
            self._ranks = Ranks(self.worker_module, environment, run_dir / "logs" / "starter.log")
        self._ranks.start(run_dir, hardware.workers)
        return self._ranks


def _wait(ranks: Ranks, hardware: HardwareConfig, asked: Interrupts, watchdog: Watchdog) -> signal.Signals | None:
    """Wait until every rank has ended or a signal has arrived, and return the signal.

    After one rank has failed, the others write where they are, then they get SIGTERM (and the watchdog ends them). A
    starter that was killed or is frozen does not report ends: then the watchdog's observation counts.
    """
    failed_at, asked_to_end = math.inf, False
    while len(ranks.exit_codes) < hardware.workers and not ranks.lost and not _is_frozen(ranks, hardware):
        if asked.first is not None:
            return asked.first
        ranks.listen(_LISTEN_S)
        if failed_at == math.inf and any(ranks.exit_codes.values()):
            watchdog.tell(STACKS)
            failed_at = time.monotonic()
        if not asked_to_end and time.monotonic() - failed_at > STACKS_S:
            ranks.signal(signal.SIGTERM)
            asked_to_end = True
        if watchdog.gone_since is not None and time.monotonic() - watchdog.gone_since > _TELL_S:
            break
    return None


def _is_frozen(ranks: Ranks, hardware: HardwareConfig) -> bool:
    """Whether the starter has shown no sign of life for too long while ranks are missing."""
    return len(ranks.pids) < hardware.workers and ranks.silent_s() > hardware.timeout_s


def _starter_trouble(run_dir: Path, ranks: Ranks, hardware: HardwareConfig) -> Outcome | None:
    """The outcome if the starter ended or froze before it could start the ranks or report their end, else None."""
    if ranks.lost:
        return _starter_lost(run_dir)
    if not _is_frozen(ranks, hardware):
        return None
    reason = f"the process that starts the ranks has given no sign of life for {ranks.silent_s():.0f} s: it is frozen"
    return Outcome(1, "failed", reason, reason, "hang")


def _stop(ranks: Ranks, hardware: HardwareConfig, asked: Interrupts) -> bool:
    """Ask the ranks to finish their step, to write a checkpoint, and to end.

    Whatever signal came here, the ranks get SIGTERM: other signals end them at once, without a checkpoint. A step of a
    large graph takes minutes, so the ranks have `hardware.timeout_s`. A further signal ends the wait.

    Returns:
        Whether all ranks ended by themselves; also True if none had started.
    """
    began, said = time.monotonic(), False
    ranks.signal(signal.SIGTERM)
    while ranks.pids and len(ranks.exit_codes) < hardware.workers and not ranks.lost:
        waited = time.monotonic() - began
        if asked.count > 1 or waited > hardware.timeout_s:
            return False
        if waited > _QUIET_S and not said:
            said = True
            left_s = hardware.timeout_s - waited
            print(
                f"gnnexp: the ranks finish their step and write a checkpoint; they have {left_s:.0f} s more; Ctrl-C "
                "again ends them now",
                file=sys.stderr,
                flush=True,
            )
        ranks.listen(_LISTEN_S)
    return not ranks.pids or len(ranks.exit_codes) == hardware.workers


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count() or 1


def _outcome(
    run_dir: Path, num_ranks: int, exit_codes: Mapping[int, int], watchdog: Watchdog, out_of_memory: bool
) -> Outcome:
    states = {status.rank: status.state for status in read_statuses(run_dir)}
    finished = {rank for rank, state in states.items() if state in ("finished", "stopped")}
    if len(finished) == num_ranks:
        stopped = "stopped" in states.values()
        return _interrupted(signal.SIGTERM) if stopped else Outcome(0, "finished")
    own = watchdog.killed
    # Our own SIGTERM ends the survivors: it is a cause only if there is no other.
    failed = {rank: code for rank, code in exit_codes.items() if code}
    ended = {rank: code for rank, code in failed.items() if rank not in own and rank not in finished}
    causes = {rank: code for rank, code in ended.items() if code != -signal.SIGTERM} or ended
    lost = {rank: None for rank in watchdog.vanished if rank not in failed and rank not in own}
    deaths = [
        Death(rank, code, watchdog.vanished.get(rank, time.time()), out_of_memory and code == -signal.SIGKILL)
        for rank, code in (lost | causes).items()
    ]
    return judge(run_dir, deaths, watchdog.hung)


def _starter_lost(run_dir: Path) -> Outcome:
    """The outcome if an unknown cause ended the starter. The ranks end with it, so their messages are consequences."""
    reason = "the process that the ranks are forked from was ended, and the ranks ended with it"
    return Outcome(1, "failed", reason, f"{reason}; its output: {run_dir / 'logs' / 'starter.log'}", "killed")


def _interrupted(number: signal.Signals, *, in_time: bool = True) -> Outcome:
    cut = "; the ranks were ended in the middle of a step: what they did since the last checkpoint is lost"
    said = f"interrupted by {number.name}" + ("" if in_time else cut)
    return Outcome(128 + number, "interrupted", said, said, "interrupted")
