"""`gnnexp status | cancel | logs RUN_DIR`: the state of a run, on this machine or in a cluster."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import psutil

from gnnexp.cli.commands.resume import read_job
from gnnexp.cli.console import epoch_line, made_table, make_console
from gnnexp.errors import ConfigError, Problem, RunError
from gnnexp.experiment.build import hardware_of, train_of
from gnnexp.files.disk import refusal
from gnnexp.files.pulse import process_table
from gnnexp.files.regular import is_file
from gnnexp.launchers.queue.answers import Alive, Ended, Unknown
from gnnexp.launchers.queue.evidence import ask
from gnnexp.launchers.queue.slurm_jobs import cancel as cancel_job
from gnnexp.launchers.queue.slurm_jobs import read_job_id
from gnnexp.launchers.slurm import outcome_of
from gnnexp.launchers.status import log_tail, read_statuses
from gnnexp.record.attempts import describe, holder, is_held, read_attempts
from gnnexp.record.ending import finalize
from gnnexp.record.owner import check_own
from gnnexp.record.records import RESULT_FILE, read_epochs
from gnnexp.record.runs import read_run
from gnnexp.training.checkpoint import checkpoint_folders

# Start times of a process, as this machine reports them, agree within this.
_SAME_PROCESS_S = 1.0


def status(options: argparse.Namespace) -> int:
    """Show the state of a run. Return 0 while it goes on or if it has finished, 1 if it has failed."""
    run_dir, console = Path(options.run), make_console()
    job = read_job(run_dir)
    state = _state(run_dir, hardware_of(job["config"]).num_ranks)
    epochs = read_epochs(run_dir)
    asked = train_of(job["config"]).epochs
    console.print(f"{run_dir}: {state}, {len(epochs)} of {asked} epochs recorded, "
                  f"{len(checkpoint_folders(run_dir))} checkpoints", soft_wrap=True)
    if epochs:
        console.print(epoch_line(epochs[-1]), soft_wrap=True)
    for line in read_attempts(run_dir):
        when = datetime.fromtimestamp(line["time"]).isoformat(" ", "seconds")
        console.print(f"  {when}  {describe(line)}", soft_wrap=True)
    rows = [(str(rank.rank), rank.host, rank.state, rank.phase, f"{max(0.0, time.time() - rank.time):.0f} s ago",
             "".join(rank.reason.splitlines()[:1])[:80]) for rank in read_statuses(run_dir)]
    if rows:
        console.print(made_table(("rank", "host", "state", "phase", "heard", "reason"), rows))
    return 1 if state.startswith("failed") else 0


def _state(run_dir: Path, num_ranks: int) -> str:
    """The state in words. If the run's job has ended without a waiting launcher, the run is finalized here."""
    if not os.path.lexists(run_dir / RESULT_FILE):
        job = ask(run_dir)
        if isinstance(job, Alive | Unknown):
            return f"SLURM {job.describe()}"
        if isinstance(job, Ended):
            outcome = outcome_of(run_dir, job, num_ranks)
            try:
                finalize(run_dir, outcome)
            except OSError as error:  # this user may have no right to write
                if refusal(error) is None:
                    raise
                return outcome.status if outcome.status == "finished" else f"failed: {outcome.reason}"
    if os.path.lexists(run_dir / RESULT_FILE):
        run = read_run(run_dir)
        return run.status if run.status == "finished" else f"failed: {run.reason}"
    return "running" if is_held(run_dir) else f"stopped (gnnexp resume {run_dir})"


def _launcher(run_dir: Path) -> int:
    """The process of this machine that works on the run.

    Raises:
        ConfigError: there is none, or it is not known which.
    """
    if not is_held(run_dir):
        raise ConfigError(Problem("run", str(run_dir), "no process of this machine works on it",
                                  "gnnexp status shows how it ended"))
    found = holder(run_dir)
    if found is None:
        raise ConfigError(Problem("run", str(run_dir), "a process works on it, but the lock file does not name it",
                                  "end that process yourself: it is a `gnnexp run`, `resume` or `sweep`"))
    if found.host != platform.node():
        raise ConfigError(Problem("run", str(run_dir), f"process {found.pid} of {found.host} works on it",
                                  f"gnnexp cancel {run_dir} on {found.host}"))
    with suppress(psutil.NoSuchProcess):
        seen = found.table in ("", process_table())  # otherwise this number belongs to another process here
        if seen and abs(psutil.Process(found.pid).create_time() - found.started) < _SAME_PROCESS_S:
            return found.pid
    raise ConfigError(Problem("run", str(run_dir), f"process {found.pid}, which works on it, cannot be seen from here",
                              "try again: it may be ending; in a container, cancel the run there"))


def cancel(options: argparse.Namespace) -> int:
    """Ask a run to end. Its ranks first write a checkpoint, if the time suffices."""
    run_dir = Path(options.run)
    read_job(run_dir)
    if not options.trust:
        check_own(run_dir, "would stop the process or the job that the record names",
                  "its owner can cancel it; if you know that process or job: gnnexp cancel --trust")
    job_id = read_job_id(run_dir)
    if job_id is not None:
        job = ask(run_dir)
        if isinstance(job, Ended):
            raise ConfigError(Problem("run", str(run_dir), f"its SLURM job {job_id} has ended", "gnnexp status"))
        try:
            cancel_job(job_id)
        except RunError as error:
            if not isinstance(job, Unknown):
                raise
            raise ConfigError(Problem("run", str(run_dir), f"SLURM {job.describe()}, and it was not cancelled: {error}",
                                      "try again when `squeue` answers")) from None
        print(f"SLURM job {job_id} is cancelled; go on with: gnnexp resume {run_dir}")
        return 0
    launcher = _launcher(run_dir)
    os.kill(launcher, signal.SIGTERM)
    print(f"process {launcher} is asked to stop; go on with: gnnexp resume {run_dir}")
    return 0


def logs(options: argparse.Namespace) -> int:
    """Print the last lines of the ranks' logs. With `--follow`, also print what is added."""
    run_dir = Path(options.run)
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
