"""One case of a sweep: its state, and how it is run, from its start or from where an earlier call left it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rich.console import Console

from gnnexp.cli.commands.resume import is_finished, reopen_run
from gnnexp.cli.console import marked
from gnnexp.cli.running.execute import carry_out, lost_model, start_run, write_job
from gnnexp.cli.running.place import Place
from gnnexp.cli.running.prepare import CheckedConfig
from gnnexp.cli.running.provenance import make_provenance
from gnnexp.errors import ProblemsError
from gnnexp.experiment.experiment import Experiment
from gnnexp.files.disk import DiskError, appearing, in_words, refusal
from gnnexp.launchers.base import Launchers, Outcome
from gnnexp.record.attempts import BUSY
from gnnexp.record.ending import deliver, finalize
from gnnexp.record.failure import failure_of
from gnnexp.record.runs import read_run
from gnnexp.trackers.follow import Followers

Status = Literal[
    "waiting", "finished before", "finished", "failed", "interrupted", "submitted", "running elsewhere", "removed"
]


@dataclass(frozen=True)
class CaseState:
    """The state of a case.

    Attributes:
        label: label of the case.
        key: content key of its configuration and data.
        dataset_key: content key of its data.
        run_dir: directory of its run, empty before it has one.
        status: `waiting` (with a run directory: an earlier call began it) or how it ended.
        reason: why it failed.
        kind: what cases that take equally long have in common (`gnnexp.cli.sweeping.pace.pace_kind`).
        seconds: how long it ran in this sweep, with preparation; 0 if it did not.
        attempts: why each earlier attempt of this call failed.
    """

    label: str
    key: str = ""
    dataset_key: str = ""
    run_dir: str = ""
    status: Status = "waiting"
    reason: str = ""
    kind: str = ""
    seconds: float = 0.0
    attempts: Sequence[str] = ()


@dataclass(frozen=True)
class QueuedCase:
    """A case in the queue.

    Attributes:
        sweep: name of the sweep.
        command: the command that runs the sweep again.
        checked: the configuration of the case, and its experiment.
        state: the state of the case.
        made_by: version of the other code of gnnexp that made its finished run; empty if the code of now did.
    """

    sweep: str
    command: str
    checked: CheckedConfig
    state: CaseState
    made_by: str = ""

    @property
    def experiment(self) -> Experiment:
        """The experiment of the case."""
        return self.checked.experiment

    @property
    def place(self) -> Place:
        """The place of its run in the sweep."""
        return Place(self.sweep, self.state.label)


def made_ready(case: QueuedCase, console: Console, launchers: Launchers) -> QueuedCase:
    """The case with a new or reopened run directory that contains all that its ranks need.

    Raises:
        ConfigError, DataError: data is missing, memory is too small, or another process works on the run.
    """
    with in_words(case.command):
        if case.state.run_dir:
            reopen_run(Path(case.state.run_dir), case.experiment, console, controller=launchers.controller)
            return case
        run_dir = start_run(case.checked, console, case.place)
        return replace(case, state=replace(case.state, run_dir=str(run_dir)))


def run_case(case: QueuedCase, console: Console, launchers: Launchers, followers: Followers | None = None) -> CaseState:
    """Run the case until it finishes or fails, and return its state."""
    try:
        case = made_ready(case, console, launchers)
        with in_words(case.command):
            outcome = carry_out(Path(case.state.run_dir), case.experiment, console, launchers, followers)
    except Exception as error:  # for example memory ran out, or a user's own dataset has a mistake
        return failed(case, error)
    return ended(case, outcome, console)


def ended(case: QueuedCase, outcome: Outcome, console: Console) -> CaseState:
    """The state of a case after its launch.

    A finished run counts for the case only if its ranks executed the planned code on the planned data. Either may have
    changed while data was prepared, or while a job waited. A finished run may lack its last checkpoint, which is said.
    """
    now, run_dir = replace(case.state, status=outcome.status, reason=outcome.reason), Path(case.state.run_dir)
    if outcome.status != "finished":
        return now
    run = read_run(run_dir)
    if run.provenance.get("dataset_key") != case.state.dataset_key:
        return replace(
            now,
            status="failed",
            reason=f"its data changed since the sweep planned it: start the sweep again; the run is {run_dir}",
        )
    if run.key != case.state.key:
        return replace(
            now,
            status="failed",
            reason="its ranks executed other code than the sweep planned (it was "
            f"edited in the meantime): start the sweep again; the run is {run_dir}",
        )
    if lost := lost_model(run):
        console.print(marked("warning", "yellow", f" {lost}"), soft_wrap=True)
    return replace(now, reason=lost)


def failed(case: QueuedCase, error: Exception) -> CaseState:
    """The state of a case that could not be started: it is recorded as a failed run, and the other cases go on.

    Called while the error is handled. The cause may be a user's own component, or our code.
    """
    problems, failure = error.problems if isinstance(error, ProblemsError) else (), failure_of(error)
    print(f"gnnexp: {error}" if problems else failure.trace, file=sys.stderr)
    reason = str(problems[0]).splitlines()[0] if problems else " ".join(failure.reason.split())
    if any(problem.key == BUSY for problem in problems):
        return replace(case.state, status="running elsewhere", reason=reason)
    kind = "disk" if isinstance(error, DiskError) else failure.kind
    memory = {
        name: number for name in ("needed_bytes", "available_bytes") if (number := getattr(failure, name)) is not None
    }
    return _recorded(case, Outcome(failure.exit_code, "failed", reason, reason, kind, memory))


def _recorded(case: QueuedCase, outcome: Outcome) -> CaseState:
    """The state of a case that failed with `outcome`, with a record if one can be written."""
    run_dir = Path(case.state.run_dir or case.checked.composed.run_dir)
    now = replace(case.state, status="failed", reason=outcome.reason)
    if not case.state.run_dir and os.path.lexists(run_dir):  # the directory belongs to an earlier run
        return now
    try:
        if not case.state.run_dir:
            _record(run_dir, case)
        if not is_finished(run_dir):  # a finished run keeps its result: a later step failed
            finalize(run_dir, outcome)
    except ProblemsError:  # for example the user's code cannot be read: no record
        return now
    except OSError as full:
        if refusal(full) is None and run_dir.is_dir():
            raise
        return now  # no record, since the disk has no room for it
    deliver(run_dir, case.experiment.tracker)
    return replace(now, run_dir=str(run_dir))


def _record(run_dir: Path, case: QueuedCase) -> None:
    """Make a run directory without prepared artifacts."""
    provenance = make_provenance(case.checked, case.state.dataset_key, None, case.place)
    with appearing(run_dir) as place:
        write_job(place, case.experiment.config, None, provenance)
