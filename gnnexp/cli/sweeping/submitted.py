"""Cases on a cluster: they are prepared, submitted as job arrays, and followed together."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from rich.console import Console

from gnnexp.cli.running.execute import break_down_or_say
from gnnexp.cli.sweeping.case import CaseState, QueuedCase, Status, ended, failed, made_ready
from gnnexp.cli.sweeping.queue import Executor
from gnnexp.errors import RunError
from gnnexp.experiment.experiment import Experiment
from gnnexp.files.disk import DiskError, in_words
from gnnexp.launchers.base import Launchers, Outcome
from gnnexp.launchers.queue.following import following
from gnnexp.launchers.queue.slurm_jobs import cancel_jobs, cancel_preparation
from gnnexp.launchers.slurm import SlurmLauncher, was_refused
from gnnexp.record.attempts import note
from gnnexp.record.ending import deliver, end_attempt
from gnnexp.training.checkpoint import remove_unfinished

_POLL_S = 2.0


def submits(experiment: Experiment) -> bool:
    """Whether the experiment runs in a cluster's queue."""
    return isinstance(experiment.launcher, SlurmLauncher)


class ArrayExecutor(Executor):
    """Prepares cases. When no case is left to prepare, submits an array for each kind of job, and follows the jobs.

    Args:
        launchers: the launchers, which also know what SLURM says about jobs.
        console: where progress is shown.
    """

    waits: ClassVar[bool] = False

    def __init__(self, launchers: Launchers, console: Console) -> None:
        self._launchers, self._console = launchers, console
        self.running: dict[int, QueuedCase] = {}
        self._jobs: dict[int, tuple[str, Iterator[Outcome | None]]] = {}

    def takes(self) -> bool:
        """See `Executor.takes`."""
        return not self._jobs

    def start(self, position: int, case: QueuedCase) -> CaseState:
        """See `Executor.start`."""
        try:
            self.running[position] = made_ready(case, self._console, self._launchers)
        except Exception as error:  # as in `run_case`
            return failed(case, error)
        return self.running[position].state

    def ended(self) -> dict[int, CaseState]:
        """See `Executor.ended`."""
        if not self._jobs:
            return self._submit()
        time.sleep(_POLL_S)
        if news := self._launchers.controller.news():
            self._console.print(news, soft_wrap=True)
        return {
            position: self._final_state(position, outcome)
            for position, (_, coming) in list(self._jobs.items())
            if (outcome := next(coming)) is not None
        }

    def stop(self) -> dict[int, CaseState]:
        """Cancel the jobs. Jobs that SLURM does not cancel stay submitted."""
        status: Status = "interrupted"
        try:
            if self._jobs:
                cancel_jobs(*(job_id for job_id, _ in self._jobs.values()))
                cancel_preparation(*(Path(self.running[position].state.run_dir) for position in self._jobs))
        except RunError as error:
            print(f"gnnexp: {error}: these jobs may continue; gnnexp cancel RUN_DIR ends one", file=sys.stderr)
            status = "submitted"
        stopped, self.running = self.running, {}
        return {position: replace(stopped[position].state, status=status) for position in self._jobs}

    def _submit(self) -> dict[int, CaseState]:
        """Submit an array for each kind of job, and follow the jobs that do not have `hardware.detach`."""
        alike: dict[str, list[int]] = {}
        for position, case in self.running.items():
            alike.setdefault(case.experiment.config.group("hardware").text(), []).append(position)
        states: dict[int, CaseState] = {}
        for positions in alike.values():
            experiment = self.running[positions[0]].experiment
            run_dirs = [Path(self.running[position].state.run_dir) for position in positions]
            assert isinstance(experiment.launcher, SlurmLauncher)
            try:
                with in_words():
                    ids = experiment.launcher.submit(run_dirs, experiment.hardware)
            except (DiskError, RunError) as error:
                if isinstance(error, RunError) and not was_refused(run_dirs[0]):
                    raise
                states |= {position: failed(self.running.pop(position), error) for position in positions}
                continue
            self._console.print(f"submitted {', '.join(ids)}", soft_wrap=True)
            self._launchers.controller.submitted(ids)
            for position, run_dir, job_id in zip(positions, run_dirs, ids, strict=True):
                with suppress(OSError):  # the job runs; a full disk is reported when the job ends
                    note(run_dir, "start", job=job_id)
                states[position] = replace(self.running[position].state, status="submitted")
                if experiment.hardware.detach:
                    del self.running[position]
                else:
                    self._jobs[position] = (
                        job_id,
                        following(run_dir, job_id, experiment.num_ranks, self._launchers.controller),
                    )
        return states

    def _final_state(self, position: int, outcome: Outcome) -> CaseState:
        """Finalize and deliver the record of a case whose job has ended, and return its state."""
        case, (job_id, _) = self.running.pop(position), self._jobs.pop(position)
        self._launchers.controller.forget(job_id)
        run_dir = Path(case.state.run_dir)
        outcome = end_attempt(run_dir, outcome)
        if outcome.status == "finished":
            break_down_or_say(run_dir)
        else:
            remove_unfinished(run_dir)
        deliver(run_dir, case.experiment.tracker)
        return ended(case, outcome, self._console)
