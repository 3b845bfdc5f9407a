"""One case of a sweep: where it stands, and running it, from its start or from where an earlier call left it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml
from rich.console import Console

from gnnexp.cli.commands.resume import is_finished, reopen_run
from gnnexp.cli.console import marked
from gnnexp.cli.running.execute import carry_out, lost_model, start_run
from gnnexp.cli.running.provenance import make_provenance
from gnnexp.config.compose import Composed
from gnnexp.errors import ProblemsError
from gnnexp.experiment.build import experiment_of
from gnnexp.experiment.experiment import Experiment
from gnnexp.files.disk import DiskError, appearing, in_words, refusal
from gnnexp.launchers.base import Outcome
from gnnexp.launchers.kept import Launchers
from gnnexp.record.attempts import BUSY
from gnnexp.record.ending import deliver, finalize
from gnnexp.record.failure import describe
from gnnexp.record.records import write_json, write_text
from gnnexp.record.runs import read_run

Status = Literal["waiting", "finished before", "finished", "failed", "interrupted", "submitted", "running elsewhere"]


@dataclass(frozen=True)
class State:
    """Where a case stands.

    Attributes:
        label: of the case.
        key: of its configuration and data.
        dataset_key: of its data.
        run_dir: of its run, empty before it has one.
        status: `waiting` (with a run directory: begun by an earlier call) or how it ended.
        reason: why it failed.
    """

    label: str
    key: str = ""
    dataset_key: str = ""
    run_dir: str = ""
    status: Status = "waiting"
    reason: str = ""


@dataclass(frozen=True)
class QueuedCase:
    """A case in the queue.

    Attributes:
        sweep: name of the sweep.
        command: that makes the sweep again.
        composed: the configuration.
        state: where the case stands.
    """

    sweep: str
    command: str
    composed: Composed
    state: State

    @property
    def experiment(self) -> Experiment:
        """What is run."""
        return experiment_of(self.composed.config)


def made_ready(case: QueuedCase, console: Console, launchers: Launchers) -> QueuedCase:
    """The case with its run directory, made or reopened, with all that its ranks need.

    Raises:
        ConfigError, DataError: its data or memory is not there, or another process works on it.
    """
    with in_words(case.command):
        if case.state.run_dir:
            reopen_run(Path(case.state.run_dir), case.experiment, console, controller=launchers.controller)
            return case
        run_dir = start_run(case.composed, case.experiment, console, case.sweep)
        return replace(case, state=replace(case.state, run_dir=str(run_dir)))


def run_case(case: QueuedCase, console: Console, launchers: Launchers) -> State:
    """Run it to its end, whatever end that is."""
    try:
        case = made_ready(case, console, launchers)
        with in_words(case.command):
            outcome = carry_out(Path(case.state.run_dir), case.experiment, console, launchers)
    except Exception as error:  # memory ran out, or a dataset of the user's own is wrong
        return failed(case, error)
    return ended(case, outcome, console)


def ended(case: QueuedCase, outcome: Outcome, console: Console) -> State:
    """The state of a case after its launch.

    A finished run is the case's only if its ranks executed the code of the plan: code may have been edited while data
    was prepared, or while a job waited. One that has finished may lack its last checkpoint.
    """
    now, run_dir = replace(case.state, status=outcome.status, reason=outcome.reason), Path(case.state.run_dir)
    if outcome.status != "finished":
        return now
    if read_run(run_dir).key != case.state.key:
        return replace(now, status="failed", reason="its ranks executed other code than the sweep planned (it was "
                       f"edited meanwhile): start the sweep again; the run is {run_dir}")
    if lost := lost_model(run_dir, case.experiment.train):
        console.print(marked("warning", "yellow", f" {lost}"), soft_wrap=True)
    return replace(now, reason=lost)


def failed(case: QueuedCase, error: Exception) -> State:
    """A case that could not be started is a result too: it is recorded as a failed run, and the others go on.

    Called while the error is handled. It may be one in a component of the user's own, or in ours.
    """
    problems, failure = error.problems if isinstance(error, ProblemsError) else (), describe(error)
    print(f"gnnexp: {error}" if problems else failure.trace, file=sys.stderr)
    reason = str(problems[0]).splitlines()[0] if problems else " ".join(failure.reason.split())
    if any(problem.key == BUSY for problem in problems):
        return replace(case.state, status="running elsewhere", reason=reason)
    kind = "disk" if isinstance(error, DiskError) else failure.kind
    memory = {name: number for name in ("needed_bytes", "available_bytes")
              if (number := getattr(failure, name)) is not None}
    return _recorded(case, Outcome(failure.exit_code, "failed", reason, reason, kind, memory))


def _recorded(case: QueuedCase, outcome: Outcome) -> State:
    """The state of a case that failed as `outcome` says, with a record if there can be one."""
    run_dir = Path(case.state.run_dir or case.composed.run_dir)
    now = replace(case.state, status="failed", reason=outcome.reason)
    if not case.state.run_dir and os.path.lexists(run_dir):  # another run's, which came first
        return now
    try:
        if not case.state.run_dir:
            _record(run_dir, case)
        if not is_finished(run_dir):  # else it has its result: what came later failed
            finalize(run_dir, outcome)
    except ProblemsError:  # the user's code cannot be read, for example: without a record
        return now
    except OSError as full:
        if refusal(full) is None and run_dir.is_dir():
            raise
        return now  # without a record: there is no room for one
    deliver(run_dir, case.experiment.tracker)
    return replace(now, run_dir=str(run_dir))


def _record(run_dir: Path, case: QueuedCase) -> None:
    """A run directory without anything prepared."""
    config = case.composed.config
    provenance: Mapping[str, Any] = make_provenance(
        case.composed, case.experiment, case.state.dataset_key, None, case.sweep)
    with appearing(run_dir) as place:
        write_text(place / "config.yaml", yaml.safe_dump(config, sort_keys=False))
        write_json(place / "job.json", {"schema": 1, "config": config, "graph": None, "partition": None,
                                        "quality": {}, "presample": None, "presampled": [], "provenance": provenance})
