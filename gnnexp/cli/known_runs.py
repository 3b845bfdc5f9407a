"""Runs that are there already: which case of a sweep has finished, was begun, or has finished on another machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gnnexp.cli.cases import State
from gnnexp.cli.resume import is_finished
from gnnexp.config.compose import Composed
from gnnexp.launchers.local import LocalLauncher
from gnnexp.provenance.imported import imported_from
from gnnexp.provenance.machine import UNKNOWN, kind_of, node_of_launch, this_node
from gnnexp.provenance.run_key import recorded_key
from gnnexp.record.records import JOB_FILE, load_job
from gnnexp.record.runs import RUNS, find_runs, run_dirs


@dataclass(frozen=True)
class Known:
    """A run that is there.

    Attributes:
        path: its directory.
        launcher: class of its launcher.
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

    def is_own(self, config: Mapping[str, Any]) -> bool:
        """Whether a run with this configuration would be made on the same kind of machine.

        Nobody knows on which nodes a job will run: such a run is one's own if it was started in the same way from a
        machine of this kind. An imported run is nobody's own, whatever its record says of machines.
        """
        if self.imported:
            return False
        launcher, here = _launcher(config), this_node().kind
        if launcher == _class_name(LocalLauncher):
            return self.machine == here
        return (self.launcher, self.launched_on) == (launcher, here)


def stand(composed: Composed, state: State, known: Mapping[str, list[Known]], *, accept_foreign: bool) -> State:
    """`state` with the run directory of its case, if there is one to take or to go on with."""
    runs = known.get(state.key, [])
    mine = [run for run in runs if run.is_own(composed.config)]
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


def known_runs(folder: Path = RUNS) -> dict[str, list[Known]]:
    """Runs below `folder` by their key: those that have finished, oldest first, and those that have not."""
    found: dict[str, list[Known]] = {}
    for run in find_runs(folder):
        if run.status == "finished" and run.key:
            found.setdefault(run.key, []).append(
                _known(run.path, run.config, run.provenance, run.machine, finished=True))
    begun = [(path.stat().st_mtime, path.parent) for place in run_dirs(folder, JOB_FILE) if (path := place / JOB_FILE)]
    for _, run_dir in sorted(begun):
        try:
            job = load_job(run_dir)
        except (OSError, ValueError):
            continue  # not a run of ours, or damaged: it is not gone on with
        key = recorded_key(job["config"], job["provenance"])
        if key and not imported_from(job["provenance"]) and not is_finished(run_dir):
            node = node_of_launch(job["provenance"])
            kind = UNKNOWN if node is None else node.kind
            found.setdefault(key, []).append(
                _known(run_dir, job["config"], job["provenance"], kind, finished=False))
    return found


def _known(path: Path, config: Mapping[str, Any], provenance: Mapping[str, Any], machine: str, *,
           finished: bool) -> Known:
    node = node_of_launch(provenance)
    return Known(path, _launcher(config), UNKNOWN if node is None else kind_of([node]), machine, finished,
                 imported_from(provenance))


def _launcher(config: Mapping[str, Any]) -> str:
    return str((config["hardware"].get("launcher") or {}).get("_target_", ""))


def _class_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
