"""`gnnexp resume`: go on with a run that was stopped, killed or failed, from its last checkpoint."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from gnnexp.cli.console import make_console, marked
from gnnexp.cli.execute import carry_out, tell_preflight, tell_result, write_job
from gnnexp.cli.prepare import prepare, problems_of
from gnnexp.config.overrides import parse
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.launchers.base import Outcome
from gnnexp.launchers.kept import Launchers
from gnnexp.launchers.slurm_jobs import job_state, read_job_id
from gnnexp.measure.needs import Profile
from gnnexp.provenance.code import Code, code_of_config, still_changed
from gnnexp.record.attempts import BUSY, alone
from gnnexp.record.records import RESULT_FILE
from gnnexp.record.runs import read_run
from gnnexp.trackers.delivery import reopen
from gnnexp.training.checkpoint import latest_checkpoint

# What may be changed: where it runs and how records are kept, nothing that makes it another experiment.
_CHANGEABLE = ("hardware.", "tracker.", "train.checkpoint_every", "train.checkpoints_kept", "train.overlap",
               "train.eval_memory")


def main(options: argparse.Namespace) -> int:
    """Resume and show what came out."""
    run_dir, console = Path(options.run), make_console()
    outcome = resume(run_dir, options.overrides, console, changed_code=options.changed_code)
    if outcome.status == "finished":
        tell_result(run_dir, console)
    return outcome.exit_code


def resume(run_dir: Path, overrides: Sequence[str], console: Console, *, changed_code: bool = False) -> Outcome:
    """Go on with the run in `run_dir`; one that has finished stays as it is.

    Args:
        run_dir: of the run.
        overrides: changes that leave it the same experiment.
        console: to say how it goes.
        changed_code: go on although the code is not that of the run's beginning.

    Raises:
        ConfigError, DataError: it is no run, the changes are not possible, or the data is not the run's any more.
    """
    job = read_job(run_dir)
    if is_finished(run_dir):
        if overrides:
            raise ConfigError(Problem("resume", " ".join(overrides), f"{run_dir} has finished: nothing of it changes",
                                      "gnnexp run with all overrides and these: another run"))
        console.print(f"{run_dir} has finished before", soft_wrap=True, markup=False)
        return Outcome(0, "finished")
    config = changed(job["config"], overrides)
    if problems := problems_of(config):
        raise ConfigError(problems)
    reopen_run(run_dir, config, console, changed_code=changed_code)
    with Launchers() as launchers:
        return carry_out(run_dir, config, console, launchers)


def reopen_run(run_dir: Path, config: Mapping[str, Any], console: Console, *, changed_code: bool = False) -> None:
    """Have the run in `run_dir` ready to be carried out again with a checked `config`.

    Raises:
        ConfigError, DataError: another process is working on it, or the data is not the run's any more.
    """
    job_id = read_job_id(run_dir)
    if job_id is not None and not (state := job_state(job_id)).ended:
        raise ConfigError(Problem(BUSY, str(run_dir), f"SLURM {state.describe()} works on it",
                                  f"wait until it has ended, or gnnexp cancel {run_dir}"))
    with alone(run_dir):
        _reopen(run_dir, config, console, changed_code=changed_code)


def _reopen(run_dir: Path, config: Mapping[str, Any], console: Console, *, changed_code: bool) -> None:
    job = read_job(run_dir)
    provenance = with_code(job["provenance"], code_of_config(config), run_dir, changed_code=changed_code)
    known = job.get("profile")  # other parts would not fit the checkpoints
    prepared = prepare(config, run_dir / "checkpoints", None if known is None else Profile(**known))
    if prepared.key != job["provenance"]["dataset_key"]:
        raise DataError(Problem("dataset", prepared.key, "is not the data that this run began with "
                                f"({job['provenance']['dataset_key']})", "bring that data back, or start a new run"))
    tell_preflight(prepared, console)
    found, problems = latest_checkpoint(run_dir)
    for problem in problems:
        console.print(marked("cannot be used:", "yellow", f" {problem}"), soft_wrap=True)
    place = "its start" if found is None else f"epoch {found.position.epoch}, step {found.position.step}"
    console.print(f"going on with {run_dir} from {place}", soft_wrap=True, markup=False)
    write_job(run_dir, config, prepared, provenance)
    (run_dir / RESULT_FILE).unlink(missing_ok=True)
    reopen(run_dir)


def with_code(provenance: Mapping[str, Any], code: Code, run_dir: Path, *, changed_code: bool) -> Mapping[str, Any]:
    """The provenance of a run that goes on with `code`.

    A result of several codes is no case's result: such a run loses its key and is never "finished before".

    Raises:
        ConfigError: the code is not that of the run's beginning, and nobody said that this is right.
    """
    began = provenance.get("code") or {"changed": {}, "own": {}}
    now = code.to_json()
    before = {"changed": still_changed(began["changed"]), "own": began["own"]}
    if before == now:
        return provenance
    names = sorted({name for part in ("changed", "own") for name in {*before[part], *now[part]}
                    if before[part].get(name) != now[part].get(name)})
    if not changed_code:
        raise ConfigError(Problem("code", ", ".join(names), f"was edited since the run in {run_dir} began",
                                  "bring that code back, start a new run, or say that this is right: gnnexp resume "
                                  f"--changed-code {run_dir}"))
    return {**provenance, "code": now, "run_key": "", "earlier_code": [*provenance.get("earlier_code", []), began]}


def read_job(run_dir: Path) -> dict[str, Any]:
    """What a run was asked to do.

    Raises:
        ConfigError: `run_dir` is no run's.
    """
    path = run_dir / "job.json"
    try:
        job = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(job["config"], dict) or not isinstance(job["provenance"]["dataset_key"], str):
            raise TypeError("config and provenance must be mappings")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        why = "there is none" if not run_dir.exists() else error.strerror if isinstance(error, OSError) else error
        raise ConfigError(Problem("run", str(run_dir), f"must be the directory of a run ({path.name}: {why})",
                                  "gnnexp report lists the runs")) from None
    return dict(job)


def is_finished(run_dir: Path) -> bool:
    """Whether the run has its result."""
    try:
        return read_run(run_dir).status == "finished"
    except DataError:
        return False


def changed(config: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration with changes that leave it the same experiment.

    Raises:
        ConfigError: with every override that is not `key=value`, or changes something else.
    """
    parsed, problems = parse(overrides)
    result = json.loads(json.dumps(config))
    for override in parsed:
        key, value = str(override.key_or_group), override.value()
        if not key.startswith(_CHANGEABLE):
            problems.append(Problem(key, value, f"a resumed run may only change {', '.join(_CHANGEABLE)}",
                                    "leave it out, or start a new run"))
            continue
        *parents, last = key.split(".")
        node = result
        for parent in parents:
            node = node.setdefault(parent, {}) if isinstance(node, dict) else {}
        node[last] = value
    if problems:
        raise ConfigError([replace(problem, key=f"resume: {problem.key}") for problem in problems])
    return dict(result)
