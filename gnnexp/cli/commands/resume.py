"""`gnnexp resume`: continue a run that was stopped, killed or failed, from its last checkpoint."""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from gnnexp.cli.console import make_console, marked
from gnnexp.cli.output import Answer
from gnnexp.cli.running.execute import answer_of, carry_out, complete, tell_preflight, tell_result, write_job
from gnnexp.cli.running.prepare import config_problems, inputs_of, prepare
from gnnexp.cli.runs import named_run, read_job
from gnnexp.components.locate import missing_packages
from gnnexp.config.overrides import CHANGEABLE, changed
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.experiment.build import read, tracker_of
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.run_key import run_key
from gnnexp.launchers.base import Launchers, Outcome
from gnnexp.launchers.elsewhere import is_prepared
from gnnexp.launchers.living import check_silent
from gnnexp.launchers.queue.answers import Alive, UnknownJob
from gnnexp.launchers.queue.controller import Controller
from gnnexp.launchers.queue.evidence import SILENT_S, job_state_of, last_sign
from gnnexp.launchers.queue.slurm_jobs import forget_submission
from gnnexp.paradigms.external.command import external_command, program_files
from gnnexp.provenance.code import RunCode, code_of_config, package_digest, targets_in, uninstalled
from gnnexp.provenance.older import name_today
from gnnexp.provenance.recorded import (
    RESULT_VERSION,
    is_of_other_version,
    own_of,
    recorded_inputs,
    recorded_key,
    version_in_words,
)
from gnnexp.record.archive import imported_from
from gnnexp.record.attempts import BUSY, alone, codes_of, read_attempts
from gnnexp.record.owner import check_own
from gnnexp.record.records import RESULT_FILE, read_epochs
from gnnexp.record.runs import read_run
from gnnexp.trackers.delivery import DELIVERY_FILE, reopen
from gnnexp.training.checkpoint import checkpoint_folders, latest_checkpoint


def main(options: argparse.Namespace) -> Answer:
    """Resume a run and show its result."""
    run_dir, console = named_run(options.run), make_console()
    if not options.trust:
        mine = f"cp -r {shlex.quote(str(run_dir))} MINE; gnnexp resume MINE"
        check_own(
            run_dir,
            "would execute the code that its configuration names",
            f"read its config.yaml; then gnnexp resume --trust, or work on a copy: {mine}",
        )
    outcome = resume(
        run_dir, options.overrides, console, changed_code=options.changed_code, job_ended=options.job_ended
    )
    if outcome.status == "finished":
        tell_result(run_dir, console)
    return answer_of(run_dir, outcome)


def resume(
    run_dir: Path, overrides: Sequence[str], console: Console, *, changed_code: bool = False, job_ended: bool = False
) -> Outcome:
    """Continue the run in `run_dir`; a finished run stays as it is.

    Args:
        run_dir: the run directory.
        overrides: changes that leave the run the same experiment.
        console: where progress is shown.
        changed_code: whether to continue although the code was edited since the run began.
        job_ended: whether to trust the user that the run's SLURM job has ended, if SLURM cannot be asked.

    Raises:
        ConfigError, DataError: it is no run, the changes are not possible, or the data has changed.
    """
    job = read_job(run_dir)
    refuse_imported(run_dir, job)
    if is_finished(run_dir):
        if overrides:
            raise ConfigError(
                Problem(
                    "resume",
                    " ".join(overrides),
                    f"{run_dir} has finished: it cannot be changed",
                    "start another run: gnnexp run with all overrides and these",
                )
            )
        console.print(f"{run_dir} has finished before", soft_wrap=True)
        complete(run_dir, tracker_of(job["config"]))
        return Outcome(0, "finished")
    config, controller = changed(job["config"], overrides), Controller()
    check_no_job(run_dir, controller, job_ended=job_ended)
    reading = read(config)
    if problems := config_problems(reading):
        if not all(problem.key.startswith(CHANGEABLE) for problem in reading.problems):
            problems.append(_lost_problem(run_dir, job))
        raise ConfigError(problems)
    experiment = reading.experiment
    assert experiment is not None
    reopen_run(run_dir, experiment, console, changed_code=changed_code, job_ended=job_ended, controller=controller)
    with Launchers() as launchers:
        return carry_out(run_dir, experiment, console, launchers)


def _lost_problem(run_dir: Path, job: Mapping[str, Any]) -> Problem:
    """Why the options are refused with which the run began: its packages are not installed, or gnnexp is another."""
    missing = missing_packages(map(name_today, targets_in(job["config"])))
    if not missing:
        return Problem(
            "resume",
            str(run_dir),
            "a run keeps the options that it began with, and this version of gnnexp does not accept them",
            "start a new run",
        )
    began = uninstalled(own_of(job["provenance"].get("code")))
    # No command of pip: a plug-in need not be on PyPI, where another package may have its name.
    again = "install that again from where you had it" if began else "install that or put it on PYTHONPATH"
    return Problem(
        "resume",
        str(run_dir),
        f"it began with {', '.join(began or missing)}, which Python does not find any more",
        f"{again}, then: gnnexp resume {shlex.quote(str(run_dir))}",
    )


def reopen_run(
    run_dir: Path,
    experiment: Experiment,
    console: Console,
    *,
    changed_code: bool = False,
    job_ended: bool = False,
    controller: Controller | None = None,
) -> None:
    """Prepare the run in `run_dir` to be carried out again.

    Raises:
        ConfigError, DataError: another process works on the run, or the data has changed.
    """
    refuse_imported(run_dir, read_job(run_dir))
    with alone(run_dir):
        check_no_job(run_dir, controller, job_ended=job_ended)  # with the lock held: no other process can submit it
        if is_prepared(run_dir):
            check_silent(run_dir)
        _reopen(run_dir, experiment, console, changed_code=changed_code)


def check_no_job(run_dir: Path, controller: Controller | None = None, *, job_ended: bool = False) -> None:
    """Check that no SLURM job works on the run.

    Raises:
        ConfigError: a job works on it, or may work on it.
    """
    job = job_state_of(run_dir, controller)
    if isinstance(job, Alive):
        raise ConfigError(
            Problem(
                BUSY,
                str(run_dir),
                f"SLURM {job.describe()} works on it",
                f"wait until it has ended, or gnnexp cancel {run_dir}",
            )
        )
    if not isinstance(job, UnknownJob):
        return
    silent_s = time.time() - last_sign(run_dir)
    if job_ended and silent_s < SILENT_S:
        raise ConfigError(
            Problem(
                "--job-ended",
                str(run_dir),
                f"its SLURM job was active {silent_s:.0f} s ago",
                f"wait until it has been silent for {SILENT_S:.0f} s, or gnnexp cancel {run_dir}",
            )
        )
    if not job_ended:
        raise ConfigError(
            Problem(
                BUSY,
                str(run_dir),
                f"SLURM {job.describe()}: two jobs in one directory would destroy the run",
                "try again when `squeue` answers; if no SLURM can be asked any more and you know that the job has "
                f"ended: gnnexp resume --job-ended {run_dir}",
            )
        )


def _reopen(run_dir: Path, experiment: Experiment, console: Console, *, changed_code: bool) -> None:
    job, config = read_job(run_dir), experiment.config.mapping
    provenance = going_on(job, config, code_of_config(config), run_dir, changed_code=changed_code)
    _check_inputs(experiment, job["provenance"])
    prepared = None if experiment.launcher.prepares else prepare(experiment, run_dir / "checkpoints")
    key = experiment.dataset.key() if prepared is None else prepared.key
    if key != job["provenance"]["dataset_key"]:
        raise DataError(
            Problem(
                "dataset",
                key,
                f"is not the data that this run began with ({job['provenance']['dataset_key']})",
                "bring that data back, or start a new run",
            )
        )
    if prepared is not None:
        tell_preflight(prepared, console)
    checkpoint, problems = latest_checkpoint(run_dir)
    for problem in problems:
        console.print(marked("cannot be used:", "yellow", f" {problem}"), soft_wrap=True)
    place = "its start" if checkpoint is None else f"epoch {checkpoint.position.epoch}, step {checkpoint.position.step}"
    command = external_command(experiment)
    if command is not None:
        place = command.restart
    console.print(f"going on with {run_dir} from {place}", soft_wrap=True)
    if began := _other_code(run_dir):
        console.print(f"  note: other code of gnnexp began this run ({began}); the record names both", soft_wrap=True)
    for leftover in run_dir.glob(".*.tmp"):  # files of a process that was killed while it wrote
        if not leftover.name.startswith(f".{DELIVERY_FILE}"):  # an earlier delivery may still go on
            leftover.unlink(missing_ok=True)
    write_job(run_dir, experiment.config, prepared, provenance)
    forget_submission(run_dir)
    (run_dir / RESULT_FILE).unlink(missing_ok=True)
    reopen(run_dir)


def _check_inputs(experiment: Experiment, provenance: Mapping[str, Any]) -> None:
    """Check that the files that components read have not changed since the run began.

    Raises:
        DataError: a file has changed.
    """
    began, now = recorded_inputs(provenance), inputs_of(experiment)
    if began is not None and began != now:
        names = [key for key in {**began, **now} if began.get(key) != now.get(key)]
        key, file = (
            (f"{names[0]}.path", experiment.partitioner.reads_file)
            if names[0] == "partitioner"
            else (names[0], ", ".join(map(str, program_files(experiment))))
        )
        raise DataError(Problem(key, file, "has changed since the run began", "restore the file, or start a new run"))


def going_on(
    job: Mapping[str, Any],
    config: Mapping[str, Any],
    code: RunCode,
    run_dir: Path,
    *,
    changed_code: bool,
) -> Mapping[str, Any]:
    """The provenance of a run that continues with `config` and `code`.

    Results of several codes, or of several numbers of ranks, belong to no case. A run with such results loses its key,
    and no sweep takes it as "finished before". A run without a record begins at its start, with its code of today.

    Raises:
        ConfigError: the code was edited since the run began, and the user did not allow that.
    """
    provenance = job["provenance"]
    key = run_key(config, str(provenance["dataset_key"]), code, recorded_inputs(provenance))
    now = {"code": code.to_json(), "result_version": RESULT_VERSION}
    if not checkpoint_folders(run_dir) and not read_epochs(run_dir):
        return {**provenance, **now, "run_key": key}
    executed = codes_of(read_attempts(run_dir))
    before = own_of(executed[-1] if executed else provenance.get("code"))
    names = sorted(name for name in {*before, *code.own} if before.get(name) != code.own.get(name))
    if names or is_of_other_version(provenance):
        if not changed_code:
            _refuse_changed(run_dir, names, provenance)
        return {**provenance, **now, "run_key": ""}
    return provenance if key == recorded_key(provenance) else {**provenance, "run_key": ""}


def _other_code(run_dir: Path) -> str:
    """The digest of gnnexp's code that last worked on a run, if it is not the code of now; else empty."""
    executed = [str(code.get("gnnexp") or "") for code in codes_of(read_attempts(run_dir))]
    return executed[-1] if executed and executed[-1] != package_digest() else ""


def _refuse_changed(run_dir: Path, names: Sequence[str], provenance: Mapping[str, Any]) -> NoReturn:
    """Refuse to continue a run with other code than it began with: modules of the user, or another gnnexp."""
    what = (
        f"was edited since the run in {run_dir} began"
        if names
        else (f"began the run in {run_dir}: the gnnexp of today may give other results")
    )
    raise ConfigError(
        Problem(
            "code",
            ", ".join(names) or version_in_words(provenance),
            what,
            f"restore that code, start a new run, or say that this is right: gnnexp resume --changed-code {run_dir}",
        )
    )


def refuse_imported(run_dir: Path, job: Mapping[str, Any]) -> None:
    """Refuse to carry out a run that was made elsewhere: what its record names was never checked on this machine.

    Raises:
        ConfigError: the run was imported.
    """
    if source := imported_from(job["provenance"]):
        raise ConfigError(
            Problem(
                "run",
                str(run_dir),
                f"was imported from {source}: only runs that were made here can be resumed",
                "gnnexp run with the overrides of your choice makes a run of your own",
            )
        )


def is_finished(run_dir: Path) -> bool:
    """Whether the run has finished."""
    try:
        return read_run(run_dir).status == "finished"
    except DataError:
        return False
