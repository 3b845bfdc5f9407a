"""Runs that are there already: which case of a sweep has finished, was begun, or has finished on another machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gnnexp.cli.commands.resume import is_finished
from gnnexp.cli.sweeping.cases import State
from gnnexp.config.compose import Composed
from gnnexp.errors import DataError
from gnnexp.experiment.build import experiment_of
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.resolved import Resolved
from gnnexp.launchers.local import LocalLauncher
from gnnexp.provenance.code import as_known_today
from gnnexp.provenance.imported import imported_from
from gnnexp.provenance.machine import UNKNOWN, kind_of, node_of_launch, this_node
from gnnexp.provenance.run_key import recorded_key
from gnnexp.record.attempts import codes_of, read_attempts
from gnnexp.record.records import JOB_FILE, load_job, run_dirs
from gnnexp.record.runs import RUNS, find_runs, read_run

# Options of launchers that change neither where a job runs nor what it has there.
_ANYWHERE = ("time_min", "account", "signal_delay_s", "max_requeues")


@dataclass(frozen=True)
class Looking:
    """How a sweep looks for runs that are there.

    Attributes:
        accept_foreign: take runs of other kinds of machines for one's own.
        passed_over: run directories that do not count: with `--rerun`, those that were there when the sweep began.
    """

    accept_foreign: bool = False
    passed_over: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Known:
    """A run that is there.

    Attributes:
        path: its directory.
        launcher: its class, and what it asks of a cluster (`_launcher`).
        launched_on: kind of the machine that it was started from.
        machine: kind of the machines that its ranks ran on.
        finished: whether it has a result.
        imported: name of the file that it was imported from; empty for a run that was made here.
    """

    path: Path
    launcher: str
    launched_on: str
    machine: str
    finished: bool
    imported: str = ""

    def is_own(self, experiment: Experiment) -> bool:
        """Whether a run of this experiment would be made on the same kind of machine.

        Nobody knows on which nodes a job will run: such a run is one's own if the same was asked of the cluster from a
        machine of this kind. An imported run is nobody's own, whatever its record says of machines.
        """
        if self.imported:
            return False
        launcher, here = _launcher(experiment.config), this_node().kind
        if type(experiment.launcher) is LocalLauncher:
            return self.machine == here
        return (self.launcher, self.launched_on) == (launcher, here)


def stand(composed: Composed, state: State, known: Mapping[str, list[Known]], *, accept_foreign: bool) -> State:
    """`state` with the run directory of its case, if there is one to take or to go on with."""
    runs = known.get(state.key, [])
    mine = [run for run in runs if run.is_own(experiment_of(composed.config))]
    others = [run for run in runs if run not in mine]
    own = [*(others if accept_foreign else ()), *mine]
    for run in reversed(own):
        if run.finished:
            return replace(state, run_dir=str(run.path), status="finished before")
    if own:
        return replace(state, run_dir=str(own[-1].path))
    if runs:
        did = "finished" if runs[-1].finished else "begun"
        where = f"imported from {runs[-1].imported}, " if runs[-1].imported else ""
        return replace(state, reason=f"{where}{did} on {runs[-1].machine} ({runs[-1].path}): --accept-foreign takes it")
    return state


def all_there(folder: Path = RUNS) -> frozenset[str]:
    """Every run directory below `folder`."""
    return frozenset(map(str, run_dirs(folder, JOB_FILE)))


def known_runs(looking: Looking, folder: Path = RUNS) -> dict[str, list[Known]]:
    """Runs below `folder` by their key: those that have finished, oldest first, and those that have not."""
    found: dict[str, list[Known]] = {}
    for run in find_runs(folder):
        if run.status == "finished" and run.key and str(run.path) not in looking.passed_over:
            found.setdefault(run.key, []).append(
                _known(run.path, run.config, run.provenance, run.machine, finished=True))
    for path, job, key in _jobs(looking, folder):
        if not is_finished(path) and _may_go_on(path, job):
            found.setdefault(key, []).append(_begun(path, job))
    return found


def known_of(key: str, looking: Looking, folder: Path = RUNS) -> list[Known]:
    """Runs below `folder` with this key, the latest last; results of other runs are not read."""
    found = []
    for path, job, its_key in _jobs(looking, folder):
        if its_key != key:
            continue
        try:
            run = read_run(path)
        except DataError:  # it has not ended
            run = None
        if run is not None and run.status == "finished":
            if run.key == key:  # or its ranks executed other code than was asked for
                found.append(_known(path, run.config, run.provenance, run.machine, finished=True))
        elif _may_go_on(path, job):
            found.append(_begun(path, job))
    return found


def _jobs(looking: Looking, folder: Path) -> Iterator[tuple[Path, Mapping[str, Any], str]]:
    """Directory, `job.json` and key of runs below `folder`, the latest last."""
    ages: list[tuple[float, Path]] = []
    for run_dir in run_dirs(folder, JOB_FILE):
        with suppress(OSError):  # renamed or removed a moment ago
            ages.append(((run_dir / JOB_FILE).stat().st_mtime, run_dir))
    for _, run_dir in sorted(ages):
        try:
            job = load_job(run_dir)
        except (OSError, ValueError):
            continue  # not a run of ours, or damaged: it is not gone on with
        key = recorded_key(job["config"], job["provenance"])
        if key and str(run_dir) not in looking.passed_over:
            yield run_dir, job, key


def _may_go_on(path: Path, job: Mapping[str, Any]) -> bool:
    """Whether a run that has begun can become the case's: not one that was imported, or executed other code."""
    with suppress(DataError):  # whoever goes on with it names the damage
        planned = as_known_today(job["provenance"].get("code"))
        if any(as_known_today(code) != planned for code in codes_of(read_attempts(path))):
            return False
    return not imported_from(job["provenance"])


def _begun(path: Path, job: Mapping[str, Any]) -> Known:
    node = node_of_launch(job["provenance"])
    kind = UNKNOWN if node is None else node.kind
    return _known(path, job["config"], job["provenance"], kind, finished=False)


def _known(path: Path, config: Mapping[str, Any], provenance: Mapping[str, Any], machine: str, *,
           finished: bool) -> Known:
    node = node_of_launch(provenance)
    return Known(path, _launcher(Resolved(config)), UNKNOWN if node is None else kind_of([node]), machine, finished,
                 imported_from(provenance))


def _launcher(config: Resolved) -> str:
    """The class of the launcher, and its options but for those that choose no nodes and nothing on them."""
    return config.group("hardware.launcher").text(without=_ANYWHERE)
