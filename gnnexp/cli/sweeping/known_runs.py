"""Finds existing runs of a sweep's cases: finished ones, begun ones, and ones from another machine."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gnnexp.cli.running.prepare import inputs_of
from gnnexp.cli.sweeping.case import CaseState, QueuedCase
from gnnexp.cli.sweeping.pace import pace_kind
from gnnexp.components.locate import missing_module, target_of
from gnnexp.errors import ConfigError, DataError, Refusal
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.resolved import ResolvedConfig
from gnnexp.experiment.run_key import run_key
from gnnexp.files.regular import SMALL_BYTES, read_limited
from gnnexp.launchers.local import LocalLauncher
from gnnexp.provenance.code import code_of_config, package_digest, targets_of_results
from gnnexp.provenance.machine import UNKNOWN, Node, node_of_launch, this_node
from gnnexp.provenance.recorded import is_of_other_version, own_of, recorded_key, version_in_words
from gnnexp.record.archive import imported_from
from gnnexp.record.attempts import codes_of, read_attempts
from gnnexp.record.failure import Kind
from gnnexp.record.records import JOB_FILE, load_job, run_dirs
from gnnexp.record.rekeying import key_of_older
from gnnexp.record.runs import RUNS, RecordedRun, read_run

# Options of launchers that change neither where a job runs nor which resources it has.
_ANYWHERE = ("time_min", "account", "signal_delay_s", "max_requeues")

# Kinds of failures that the same configuration would repeat.
_OWN_FAILURES: frozenset[Kind] = frozenset({"diverged", "out of memory", "mistake"})


@dataclass(frozen=True)
class ReuseRules:
    """Which existing runs count for a sweep.

    Attributes:
        accept_foreign: whether runs of other kinds of machines count.
        passed_over: run directories that do not count: with `--rerun`, those that existed when the sweep began.
        folders: folders that contain runs.
        node: what a case has of this machine: all of it, or a share (`--jobs`).
        keep_failed: whether a run that failed by its own configuration counts as failed, and is not continued.
        changed_code: whether finished runs of another `RESULT_VERSION` count.
        same_code: whether only runs that exactly this code of gnnexp made count.
    """

    accept_foreign: bool = False
    passed_over: frozenset[str] = frozenset()
    folders: tuple[Path, ...] = (RUNS,)
    node: Node = field(default_factory=this_node)
    keep_failed: bool = False
    changed_code: bool = False
    same_code: bool = False


@dataclass(frozen=True)
class ExistingRun:
    """An existing run.

    Attributes:
        path: its directory.
        launcher: class of its launcher, and the options that it gives to a cluster (`_launcher`).
        launched_on: kind of the machine that started it.
        machine: kind of the machines that its ranks ran on.
        finished: whether it has finished.
        imported: name of the file that it was imported from; empty for a run that was made here.
        failed: why it failed by its own configuration; empty if it did not (`fails_again`).
        made_by: version of gnnexp that made it, if this was other code than that of now; else empty.
        release: release of gnnexp that made it, if the same configuration may have other results now; else empty.
    """

    path: Path
    launcher: str
    launched_on: str
    machine: str
    finished: bool
    imported: str = ""
    failed: str = ""
    made_by: str = ""
    release: str = ""

    def is_own(self, experiment: Experiment, here: str) -> bool:
        """Whether a run of this experiment, started from a machine of the kind `here`, would use this kind of machine.

        The nodes of a future job are not known. Such a run counts if the same launcher with the same options was used
        from a machine of this kind. An imported run never counts as own, whatever machines its record names.
        """
        if self.imported:
            return False
        if type(experiment.launcher) is LocalLauncher:
            return self.machine == here
        return (self.launcher, self.launched_on) == (_launcher(experiment.config), here)


def state_of(case: QueuedCase, runs: Sequence[ExistingRun], reuse: ReuseRules) -> CaseState:
    """The state of a case, with the run directory of the one of `runs` that it takes or continues, if there is one."""
    state = replace(case.state, status="waiting", run_dir="", reason="")
    refused = [(run, why) for run in runs if (why := _of_other_code(run, reuse))]
    runs = [run for run in runs if run not in [other for other, _ in refused]]
    mine = [run for run in runs if run.is_own(case.experiment, reuse.node.kind)]
    others = [run for run in runs if run not in mine] if reuse.accept_foreign else []
    own = [*others, *mine]
    if own:
        taken = next((run for run in reversed(own) if run.finished), own[-1])
        if taken.failed and reuse.keep_failed:
            return replace(state, run_dir=str(taken.path), status="failed", reason=taken.failed)
        return replace(state, run_dir=str(taken.path), status="finished before" if taken.finished else "waiting")
    if runs:
        did = "finished" if runs[-1].finished else "begun"
        where = f"imported from {runs[-1].imported}, " if runs[-1].imported else ""
        return replace(state, reason=f"{where}{did} on {runs[-1].machine} ({runs[-1].path}): --accept-foreign takes it")
    return replace(state, reason=refused[-1][1].reason) if refused else state


def _of_other_code(run: ExistingRun, reuse: ReuseRules) -> Refusal | None:
    """Why the code of gnnexp that made a run keeps it from being taken."""
    if run.release and not reuse.changed_code:
        return Refusal(f"finished with {run.release} ({run.path}): --changed-code takes it")
    if reuse.same_code and (run.release or run.made_by):
        return Refusal(
            f"made by other code of gnnexp, {run.made_by or run.release} ({run.path}): without --same-code it counts"
        )
    return None


def planned(cases: Sequence[QueuedCase], reuse: ReuseRules) -> list[QueuedCase]:
    """The cases with their keys and states, from runs that finished or were begun; each dataset's key is read once."""
    datasets: dict[str, str] = {}
    keyed = []
    for case in cases:
        dataset = case.experiment.dataset
        node = case.experiment.config.group("dataset").text()
        if node not in datasets:
            try:
                datasets[node] = dataset.key()
            except ModuleNotFoundError as error:
                raise ConfigError(missing_module("dataset", target_of(dataset), error)) from error
        key, kind = key_now(case, datasets[node]), pace_kind(case.experiment)
        keyed.append(replace(case, state=CaseState(case.state.label, key, datasets[node], kind=kind)))
    keys = {case.state.key for case in keyed}
    known = known_runs(keys, reuse)
    older = older_runs(keys - known.keys(), cases, reuse)
    return [_standing(case, [*older.get(case.state.key, ()), *known.get(case.state.key, ())], reuse) for case in keyed]


def _standing(case: QueuedCase, runs: Sequence[ExistingRun], reuse: ReuseRules) -> QueuedCase:
    """The case with its state, and with the other code that made its finished run."""
    state = state_of(case, runs, reuse)
    taken = next((run for run in runs if str(run.path) == state.run_dir and run.finished), None)
    return replace(case, state=state, made_by="" if taken is None else taken.made_by or taken.release)


def key_now(case: QueuedCase, dataset_key: str) -> str:
    """The key of a case, with its code and its stored partition in their present form."""
    config = case.checked.composed.config
    return run_key(config, dataset_key, code_of_config(config), inputs_of(case.experiment))


def all_there(*folders: Path) -> frozenset[str]:
    """Every run directory below these folders, or below `runs`."""
    return frozenset(str(run_dir) for folder in folders or (RUNS,) for run_dir in run_dirs(folder, JOB_FILE))


def known_runs(keys: Collection[str], reuse: ReuseRules) -> dict[str, list[ExistingRun]]:
    """Runs with one of these keys, the latest last; results of other runs are not read."""
    found: dict[str, list[ExistingRun]] = {}
    for path, job in _jobs(reuse, *(keys if len(keys) == 1 else ())):
        key = recorded_key(job["provenance"])
        if key in keys and key and (known := _known(path, job, key)) is not None:
            found.setdefault(key, []).append(known)
    return found


def older_runs(keys: Collection[str], cases: Sequence[QueuedCase], reuse: ReuseRules) -> dict[str, list[ExistingRun]]:
    """Finished runs of gnnexp 0.1 that would have one of these keys of `cases` today, the latest last."""
    by_key: dict[str, list[ExistingRun]] = {}
    datasets = {case.experiment.config.group("dataset").text(): case.experiment.dataset for case in cases}
    named = {target for case in cases for target in targets_of_results(case.checked.composed.config)}
    for path, job in _jobs(reuse) if keys else ():
        provenance = job["provenance"]
        if not is_of_other_version(provenance):
            continue
        if (key := key_of_older(job["config"], provenance, datasets.values(), named)) not in keys:
            continue
        with suppress(DataError):  # it has not ended
            run = read_run(path)
            if run.status == "finished":
                known = ExistingRun(
                    path,
                    _launcher(ResolvedConfig(job["config"])),
                    UNKNOWN,
                    run.machine,
                    finished=True,
                    imported=imported_from(provenance),
                    release=version_in_words(provenance),
                )
                by_key.setdefault(key, []).append(known)
    return by_key


def _jobs(reuse: ReuseRules, word: str = "") -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Directory and `job.json` of the runs that count, the latest last; with `word`, only of those that contain it.

    A sweep looks for runs before each case. To parse every `job.json` would take longer than the case itself.
    """
    ages: list[tuple[float, str]] = []
    for run_dir in all_there(*reuse.folders) - reuse.passed_over:
        with suppress(OSError):  # renamed or removed in the meantime
            ages.append((Path(run_dir, JOB_FILE).stat().st_mtime, run_dir))
    for _, run_dir in sorted(ages):
        with suppress(OSError, ValueError):  # not a run of gnnexp, or damaged: it cannot be continued
            if word and word.encode() not in read_limited(Path(run_dir, JOB_FILE), SMALL_BYTES):
                continue
            yield Path(run_dir), load_job(Path(run_dir))


def _known(path: Path, job: Mapping[str, Any], key: str) -> ExistingRun | None:
    """The run, or None if its ranks executed other code than planned, so that it cannot belong to a case."""
    node, imported = node_of_launch(job["provenance"]), imported_from(job["provenance"])
    kind = UNKNOWN if node is None else node.kind
    known = ExistingRun(path, _launcher(ResolvedConfig(job["config"])), kind, kind, finished=False, imported=imported)
    with suppress(DataError):  # it has not ended
        run = read_run(path)
        if run.status == "finished":
            return replace(known, machine=run.machine, finished=True, made_by=_made_by(run)) if run.key == key else None
        known = replace(known, failed=run.reason if fails_again(run) else "")
    with suppress(DataError):  # continuing the run reports the damage
        executed = codes_of(read_attempts(path))
        if any(own_of(code) != own_of(job["provenance"].get("code")) for code in executed):
            return None
        if executed and executed[-1].get("gnnexp") != package_digest():
            known = replace(known, made_by=str(job["provenance"].get("code_version", UNKNOWN)))
    return None if imported else known


def _made_by(run: RecordedRun) -> str:
    """The version of gnnexp that made a run, if its code differs from that of now; else empty."""
    code = run.provenance.get("code") or {}
    return "" if code.get("gnnexp") == package_digest() else str(run.provenance.get("code_version", UNKNOWN))


def fails_again(run: RecordedRun) -> bool:
    """Whether a run failed by its own configuration: its loss diverged, or it does not fit the memory or the data."""
    return run.status == "failed" and run.kind in _OWN_FAILURES


def _launcher(config: ResolvedConfig) -> str:
    """The class of the launcher and its options, without those that choose neither nodes nor resources."""
    return config.group("hardware.launcher").text(without=_ANYWHERE)
