"""`gnnexp status | cancel | logs RUN_DIR`: the state of runs and sweeps, on this machine or in a cluster."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from gnnexp.cli.commands.listing import tell_runs
from gnnexp.cli.console import epoch_line, made_table, make_console
from gnnexp.cli.output import Answer
from gnnexp.cli.runs import SHOWN, SWEEP_HEADER, list_runs, list_sweeps, named_run, newest, read_job
from gnnexp.cli.sweeping.pace import Pace, time_left
from gnnexp.cli.sweeping.processes import STATES, cancel_sweep, is_seen, processes_of
from gnnexp.errors import ConfigError, Problem, RunError
from gnnexp.experiment.build import hardware_of_processes, train_of
from gnnexp.files.disk import refusal
from gnnexp.files.regular import is_file
from gnnexp.launchers.elsewhere import is_prepared, standing
from gnnexp.launchers.living import ranks_of
from gnnexp.launchers.queue.answers import Alive, EndedJob, UnknownJob
from gnnexp.launchers.queue.evidence import job_state_of
from gnnexp.launchers.queue.following import outcome_of
from gnnexp.launchers.queue.slurm_jobs import cancel_jobs as cancel_job
from gnnexp.launchers.queue.slurm_jobs import cancel_preparation, read_job_id
from gnnexp.launchers.status import log_tail
from gnnexp.record.attempts import describe_attempt, holder, is_held, read_attempts
from gnnexp.record.ending import finalize
from gnnexp.record.owner import check_own
from gnnexp.record.records import RESULT_FILE, read_epochs, read_state
from gnnexp.record.runs import read_run
from gnnexp.training.checkpoint import checkpoint_folders

# What `--json` says of a rank.
_OF_RANK = ("rank", "host", "state", "phase", "time", "reason")


def status(options: argparse.Namespace) -> Answer:
    """Show the state of a run, of a sweep, or of all. The exit code is 1 for a run that has failed, else 0."""
    if options.run is None:
        return _everything(all_runs=options.all)
    if is_sweep(options.run):
        return _sweep(options.run)
    run_dir, console = named_run(options.run), make_console()
    job = read_job(run_dir)
    state = _state(run_dir, hardware_of_processes(job["config"]).num_ranks)
    epochs = read_epochs(run_dir)
    asked = train_of(job["config"]).epochs
    checkpoints = len(checkpoint_folders(run_dir))
    console.print(
        f"{run_dir}: {state}, {len(epochs)} of {asked} epochs recorded, {checkpoints} checkpoints", soft_wrap=True
    )
    if epochs:
        console.print(epoch_line(epochs[-1]), soft_wrap=True)
    attempts, ranks = read_attempts(run_dir), ranks_of(run_dir)
    for line in attempts:
        when = datetime.fromtimestamp(line["time"]).isoformat(" ", "seconds")
        console.print(f"  {when}  {describe_attempt(line)}", soft_wrap=True)
    rows = [
        (
            str(rank.rank),
            rank.host,
            rank.state,
            rank.phase,
            f"{max(0.0, time.time() - rank.time):.0f} s ago",
            "".join(rank.reason.splitlines()[:1])[:80],
        )
        for rank in ranks
    ]
    if rows:
        console.print(made_table(("rank", "host", "state", "phase", "heard", "reason"), rows))
    return Answer(
        {
            "run_dir": str(run_dir),
            "state": state,
            "epochs": len(epochs),
            "epochs_asked": asked,
            "checkpoints": checkpoints,
            "last_epoch": epochs[-1]["metrics"] if epochs else None,
            "attempts": attempts,
            "ranks": [{key: value for key, value in asdict(rank).items() if key in _OF_RANK} for rank in ranks],
        },
        1 if state.startswith("failed") else 0,
    )


def _everything(*, all_runs: bool) -> Answer:
    """The runs and sweeps of this folder."""
    console, paths, sweeps = make_console(), newest(), list_sweeps()
    if sweeps:
        console.print(made_table(SWEEP_HEADER, [line.cells() for line in sweeps]))
    answer = tell_runs(list_runs(paths if all_runs else paths[:SHOWN]), len(paths), console)
    assert isinstance(answer.document, dict)
    return Answer({"sweeps": [asdict(line) for line in sweeps], **answer.document})


def _sweep(name: str) -> Answer:
    """The cases of a sweep; a case that has a run is shown with the run's state of now."""
    line = next(line for line in list_sweeps() if line.name == name)
    kept = read_state(STATES / f"{name}.json")["cases"]
    cases = [{key: case[key] for key in ("label", "status", "run_dir", "reason")} for case in kept]
    runs = {run.run_dir: run for run in list_runs([Path(case["run_dir"]) for case in cases if case["run_dir"]])}
    for case in cases:
        case["state"] = runs[case["run_dir"]].state if case["run_dir"] else case["status"] or "waiting"
    rows = [(case["label"], case["state"], case["reason"] or case["run_dir"]) for case in cases]
    kinds = [str(case.get("kind") or "") for case in kept]
    ended = [(kind, case["seconds"]) for kind, case in zip(kinds, kept, strict=True) if case.get("seconds")]
    left = _left_of(name, ended, [(kind, str(case["state"])) for kind, case in zip(kinds, cases, strict=True)])
    make_console().print(made_table(("case", "state", "directory or reason"), rows, f"sweep {name}: {line.state}"))
    if left is not None:
        make_console().print(time_left(left))
    return Answer({"sweep": name, "state": line.state, "left_s": left, "cases": cases})


def _left_of(name: str, ended: Sequence[tuple[str, float]], cases: Sequence[tuple[str, str]]) -> float | None:
    """Seconds that a sweep will still take; None if nobody works on it, or no case of it has ended yet.

    Args:
        name: name of the sweep.
        ended: kind and seconds of the cases that have ended.
        cases: kind and state of all cases.
    """
    if not processes_of(name):
        return None
    going = [kind for kind, state in cases if state == "running"]
    return Pace(ended, max(1, len(going))).left_s([*going, *(kind for kind, state in cases if state == "waiting")])


def is_sweep(word: str) -> bool:
    """Whether the word names a sweep that was started here, and no folder."""
    return "/" not in word and not os.path.lexists(word) and os.path.lexists(STATES / f"{word}.json")


def _state(run_dir: Path, num_ranks: int) -> str:
    """The state in words. If the run's job has ended without a waiting launcher, the run is finalized here."""
    if not os.path.lexists(run_dir / RESULT_FILE):
        job = job_state_of(run_dir)
        if isinstance(job, Alive | UnknownJob):
            return f"SLURM {job.describe()}"
        if isinstance(job, EndedJob):
            outcome = outcome_of(run_dir, job, num_ranks)
            try:
                finalize(run_dir, outcome)
            except OSError as error:  # this user may have no right to write
                if refusal(error) is None:
                    raise
                return outcome.status if outcome.status == "finished" else f"failed: {outcome.reason}"
    if is_prepared(run_dir) and (words := standing(run_dir)):
        return words
    if os.path.lexists(run_dir / RESULT_FILE):
        run = read_run(run_dir)
        return run.status if run.status == "finished" else f"failed: {run.reason}"
    return "running" if is_held(run_dir) else f"stopped (gnnexp resume {run_dir})"


def _launcher(run_dir: Path) -> int:
    """The process of this machine that works on the run.

    Raises:
        ConfigError: there is none, or it is not known which.
    """
    if is_prepared(run_dir):
        raise ConfigError(
            Problem(
                "run",
                str(run_dir),
                "another program starts its ranks, and gnnexp cannot end it",
                "end that program: the ranks write a checkpoint on SIGTERM",
            )
        )
    if not is_held(run_dir):
        raise ConfigError(
            Problem("run", str(run_dir), "no process of this machine works on it", "gnnexp status shows how it ended")
        )
    process = holder(run_dir)
    if process is None:
        raise ConfigError(
            Problem(
                "run",
                str(run_dir),
                "a process works on it, but the lock file does not name it",
                "end that process yourself: it is a `gnnexp run`, `resume` or `sweep`",
            )
        )
    if process.host != platform.node():
        raise ConfigError(
            Problem(
                "run",
                str(run_dir),
                f"process {process.pid} of {process.host} works on it",
                f"gnnexp cancel {run_dir} on {process.host}",
            )
        )
    if is_seen(process):
        return process.pid
    raise ConfigError(
        Problem(
            "run",
            str(run_dir),
            f"process {process.pid}, which works on it, cannot be seen from here",
            "try again: it may be ending; in a container, cancel the run there",
        )
    )


def cancel(options: argparse.Namespace) -> int:
    """Ask a run or a sweep to end. Ranks first write a checkpoint, if the time suffices."""
    if is_sweep(options.run):
        for line in cancel_sweep(options.run, trust=options.trust):
            print(line)
        print(f"go on with: gnnexp sweep {options.run}")
        return 0
    run_dir = named_run(options.run)
    read_job(run_dir)
    if not options.trust:
        check_own(
            run_dir,
            "would stop the process or the job that the record names",
            "its owner can cancel it; if you know that process or job: gnnexp cancel --trust",
        )
    job_id = read_job_id(run_dir)
    if job_id is not None:
        job = job_state_of(run_dir)
        if isinstance(job, EndedJob):
            raise ConfigError(Problem("run", str(run_dir), f"its SLURM job {job_id} has ended", "gnnexp status"))
        try:
            cancel_job(job_id)
        except RunError as error:
            if not isinstance(job, UnknownJob):
                raise
            raise ConfigError(
                Problem(
                    "run",
                    str(run_dir),
                    f"SLURM {job.describe()}, and it was not cancelled: {error}",
                    "try again when `squeue` answers",
                )
            ) from None
        if "_" not in job_id:  # the preparation of an array is also for other runs
            cancel_preparation(run_dir)
        print(f"SLURM job {job_id} is cancelled; go on with: gnnexp resume {run_dir}")
        return 0
    launcher = _launcher(run_dir)
    os.kill(launcher, signal.SIGTERM)
    print(f"process {launcher} is asked to stop; go on with: gnnexp resume {run_dir}")
    return 0


def logs(options: argparse.Namespace) -> int:
    """Print the last lines of the ranks' logs. With `--follow`, also print what is added."""
    run_dir = named_run(options.run)
    read_job(run_dir)
    names = [path.stem.partition("_")[2] for path in (run_dir / "logs").glob("rank_*.log") if is_file(path)]
    ranks = sorted(int(name) for name in names if name.isdecimal())
    chosen = ranks if options.rank is None else [options.rank]
    if missing := [rank for rank in chosen if rank not in ranks]:
        raise ConfigError(Problem("--rank", missing[0], f"has no log; there are logs of {ranks}", "--rank 0"))
    for rank in chosen:
        print(log_tail(run_dir, rank).lstrip("\n") or f"rank {rank} has written nothing: no warning, no error")
    if options.follow:
        _follow(run_dir, chosen)
    return 0


def _follow(run_dir: Path, ranks: list[int]) -> None:
    files = {rank: run_dir / "logs" / f"rank_{rank}.log" for rank in ranks}
    places = {rank: file.stat().st_size for rank, file in files.items()}
    while not (run_dir / RESULT_FILE).exists():
        for rank, file in files.items():
            with file.open("rb") as log:
                log.seek(places[rank])
                for line in log.read().splitlines():
                    print(f"[{rank}] {line.decode(errors='replace')}", flush=True)
                places[rank] = log.tell()
        time.sleep(0.5)
