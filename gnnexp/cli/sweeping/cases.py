"""One case of a sweep: where it stands, and running it, anew or from where an earlier call left it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml
from rich.console import Console

from gnnexp.cli.commands.resume import reopen_run
from gnnexp.cli.console import marked
from gnnexp.cli.running.execute import carry_out, lost_model, start_run
from gnnexp.cli.running.provenance import make_provenance
from gnnexp.cli.sweeping.definition import Sweep
from gnnexp.config.compose import Composed
from gnnexp.errors import DataError, ProblemsError
from gnnexp.experiment.build import experiment_of, tracker_of
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.schema import TrainConfig
from gnnexp.files.disk import DiskError, appearing, in_words, locked, refusal, remove_unfinished, shortened
from gnnexp.launchers.base import Outcome
from gnnexp.launchers.kept import Launchers
from gnnexp.launchers.queue.controller import Controller
from gnnexp.launchers.queue.slurm_jobs import read_job_id
from gnnexp.record.attempts import BUSY
from gnnexp.record.ending import deliver, settle
from gnnexp.record.failure import describe
from gnnexp.record.records import RESULT_FILE, write_json, write_text
from gnnexp.record.runs import RUNS, read_run

STATES = RUNS / "sweeps"
_PATIENCE_S = 10.0  # for a lock that is held for milliseconds
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
    key: str
    dataset_key: str = ""
    run_dir: str = ""
    status: Status = "waiting"
    reason: str = ""


def save_states(sweep: Sweep, states: list[State]) -> None:
    """Write what `gnnexp report NAME` reads, one process at a time; remove what killed processes left half written.

    A process that holds the lock for too long is frozen. The state is written all the same then; nothing is removed.
    """
    locks, file = STATES / ".cases", STATES / f"{sweep.name}.json"
    locks.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        with suppress(TimeoutError):
            held.enter_context(locked(locks / f"{shortened(sweep.name)}.states", _PATIENCE_S))
            remove_unfinished(file)
        write_json(file, {
            "schema": 1, "name": sweep.name, "description": sweep.description, "command": sweep.command,
            "report": dict(sweep.report), "cases": [asdict(state) for state in states],
        })


def keep_states(sweep: Sweep, states: list[State]) -> None:
    """As `save_states`; a disk that is full now ends no sweep: the next case is saved with those before it."""
    try:
        save_states(sweep, states)
    except OSError as error:
        if (problem := refusal(error, f"gnnexp sweep {sweep.name}")) is None:
            raise
        print(f"gnnexp: {problem}", file=sys.stderr)


def begun_jobs(states: Sequence[State]) -> list[str]:
    """The SLURM jobs of runs that an earlier call has begun: SLURM is asked for all of them at once."""
    found = []
    for state in states:
        if state.status == "waiting" and state.run_dir:
            with suppress(DataError):  # a damaged note: `ready` names it when the turn of this case comes
                job_id = read_job_id(Path(state.run_dir))
                found += [] if job_id is None else [job_id]
    return found


def ready(
    sweep: Sweep, composed: Composed, experiment: Experiment, state: State, console: Console, controller: Controller
) -> Path:
    """The run directory of a case, made or reopened, with all that its ranks need.

    Raises:
        ConfigError, DataError: its data or memory is not there, or another process works on it.
    """
    if state.run_dir:
        reopen_run(Path(state.run_dir), experiment, console, controller=controller)
        return Path(state.run_dir)
    return start_run(composed, experiment, console, sweep.name)


def run_case(sweep: Sweep, composed: Composed, state: State, console: Console, launchers: Launchers) -> State:
    """Run it to its end, whatever end that is."""
    try:
        with in_words(f"gnnexp sweep {sweep.name}"):
            experiment = experiment_of(composed.config)
            run_dir = ready(sweep, composed, experiment, state, console, launchers.controller)
    except ProblemsError as error:  # found in the data, which is only read when its turn comes
        return refused(sweep, composed, state, error)
    except Exception as error:  # memory ran out, or a dataset of the user's own is wrong
        return broken(sweep, composed, state, error)
    try:
        with in_words(f"gnnexp sweep {sweep.name}"):
            outcome = carry_out(run_dir, experiment, console, launchers)
    except ProblemsError as error:
        return refused(sweep, composed, state, error)
    now = ended(state, run_dir, outcome, experiment.train)
    if outcome.status == "finished" and now.reason:
        console.print(marked("warning", "yellow", f" {now.reason}"), soft_wrap=True)
    return now


def ended(state: State, run_dir: Path, outcome: Outcome, train: TrainConfig) -> State:
    """The state of a case after its launch.

    A finished run is the case's only if its ranks executed the code of the plan: code may have been edited while data
    was prepared, or while a job waited. One that has finished may lack its last checkpoint.
    """
    now = replace(state, status=outcome.status, reason=outcome.reason, run_dir=str(run_dir))
    if outcome.status != "finished":
        return now
    if read_run(run_dir).key != state.key:
        return replace(now, status="failed", reason="its ranks executed other code than the sweep planned (it was "
                       f"edited meanwhile): start the sweep again; the run is {run_dir}")
    return replace(now, reason=lost_model(run_dir, train))


def refused(sweep: Sweep, composed: Composed, state: State, error: ProblemsError) -> State:
    """A case that could not be started is a result too: it is recorded as a failed run."""
    print(f"gnnexp: {error}", file=sys.stderr)
    reason = str(error.problems[0]).splitlines()[0]
    if any(problem.key == BUSY for problem in error.problems):
        return replace(state, status="running elsewhere", reason=reason)
    kind = "disk" if isinstance(error, DiskError) else "mistake"
    return _recorded(sweep, composed, state, Outcome(2, "failed", reason, reason, kind))


def broken(sweep: Sweep, composed: Composed, state: State, error: Exception) -> State:
    """A case that met an error while it was prepared, in a component of the user's own or in ours: the others go on.

    Called while the error is handled.
    """
    failure = describe(error)
    print(failure.trace, file=sys.stderr)
    reason = " ".join(failure.reason.split())
    memory = {name: number for name in ("needed_bytes", "available_bytes")
              if (number := getattr(failure, name)) is not None}
    return _recorded(sweep, composed, state, Outcome(1, "failed", reason, reason, failure.kind, memory))


def _recorded(sweep: Sweep, composed: Composed, state: State, outcome: Outcome) -> State:
    """The state of a case that failed as `outcome` says, with a record if there can be one."""
    run_dir = Path(state.run_dir) if state.run_dir else composed.run_dir
    now = replace(state, status="failed", reason=outcome.reason)
    try:
        if not state.run_dir and not run_dir.exists():
            _record(run_dir, composed, state, sweep)
        if state.run_dir or not (run_dir / RESULT_FILE).exists():  # else it has its result: what came later failed
            settle(run_dir, outcome)
    except ProblemsError:  # the user's code cannot be read, for example: without a record
        return now
    except OSError as full:
        if refusal(full) is None and run_dir.is_dir():
            raise
        return now  # without a record: there is no room for one
    deliver(run_dir, tracker_of(composed.config))
    return replace(now, run_dir=str(run_dir))


def _record(run_dir: Path, composed: Composed, state: State, sweep: Sweep) -> None:
    """A run directory without anything prepared."""
    experiment = experiment_of(composed.config)
    provenance: Mapping[str, Any] = make_provenance(composed, experiment, state.dataset_key, None, sweep.name)
    with appearing(run_dir) as place:
        write_text(place / "config.yaml", yaml.safe_dump(composed.config, sort_keys=False))
        write_json(place / "job.json", {"schema": 1, "config": composed.config, "graph": None, "partition": None,
                                        "quality": {}, "presample": None, "presampled": [], "provenance": provenance})
