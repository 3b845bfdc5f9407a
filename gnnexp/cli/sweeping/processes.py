"""The processes that work on a sweep: each holds a file with its name while it works, so that it can be cancelled."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import secrets
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from glob import escape
from pathlib import Path

import psutil

from gnnexp.errors import ConfigError, DataError, Problem, RunError
from gnnexp.files.disk import file_lock, flock, shortened, try_lock
from gnnexp.files.pulse import process_table
from gnnexp.files.regular import regular_handle
from gnnexp.launchers.queue.answers import EndedJob
from gnnexp.launchers.queue.controller import Controller
from gnnexp.launchers.queue.evidence import job_state_of
from gnnexp.launchers.queue.slurm_jobs import cancel_jobs, cancel_preparation, read_job_id
from gnnexp.record.attempts import Holder, read_holder
from gnnexp.record.owner import check_own
from gnnexp.record.records import RESULT_FILE, read_state
from gnnexp.record.runs import RUNS

STATES = RUNS / "sweeps"
# Start times of a process, as this machine reports them, agree within this.
_SAME_PROCESS_S = 1.0
_TOKEN_BYTES = 8  # of the random part of a file's name
_PATIENCE_S = 10.0  # seconds to wait for a lock that is held for a moment


@contextmanager
def at_work(sweep: str) -> Iterator[None]:
    """Inside of this context, `processes_of` finds this process. If it dies, the system releases the file's lock."""
    remove_abandoned_files(sweep)
    folder = STATES / ".cases"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{shortened(sweep)}.{secrets.token_hex(_TOKEN_BYTES)}.process"
    this = Holder(platform.node(), os.getpid(), psutil.Process().create_time(), process_table())
    with file_lock(file, _PATIENCE_S):
        try:
            with suppress(OSError):  # if the disk is full, the sweep cannot be cancelled by its name
                file.write_text(json.dumps(asdict(this)), encoding="utf-8")
            yield
        finally:
            file.unlink(missing_ok=True)


def processes_of(sweep: str) -> list[Holder]:
    """The processes that work on the sweep, on this machine or on others that share the folder."""
    return [found for file in _files(sweep) if _is_locked(file) and (found := read_holder(file)) is not None]


def remove_abandoned_files(sweep: str) -> None:
    """Remove the files of processes that were killed."""
    for file in _files(sweep):
        with suppress(OSError):  # another process removes it
            if (handle := try_lock(file)) is not None:
                file.unlink(missing_ok=True)
                os.close(handle)


def _files(sweep: str) -> list[Path]:
    token = "?" * (2 * _TOKEN_BYTES)  # without a dot, since `mine.more` is another sweep than `mine`
    files = sorted((STATES / ".cases").glob(f"{escape(shortened(sweep))}.{token}.process"))
    return [file for file in files if file.name.removesuffix(".process")[-2 * _TOKEN_BYTES :].isalnum()]


def _is_locked(file: Path) -> bool:
    try:
        handle = regular_handle(file, os.O_RDONLY)
    except OSError:  # removed in the meantime
        return False
    try:
        flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB, file)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False


def is_seen(found: Holder) -> bool:
    """Whether the process can be seen from here, and its number is not that of another process."""
    with suppress(psutil.NoSuchProcess):
        seen = found.host == platform.node() and found.table in ("", process_table())
        return seen and abs(psutil.Process(found.pid).create_time() - found.started) < _SAME_PROCESS_S
    return False


def cancel_sweep(sweep: str, *, trust: bool = False) -> list[str]:
    """Ask the sweep's processes to end, cancel the jobs of its cases, and return in words what was done.

    A process ends its own cases: their ranks first write a checkpoint. A job may have no process that follows it.

    Args:
        sweep: name of the sweep.
        trust: whether files of other users may name the processes and jobs.

    Raises:
        ConfigError: nothing works on the sweep, or a process of another machine does; all else was asked to end.
        RunError: SLURM refuses.
    """
    cases = [Path(case["run_dir"]) for case in read_state(STATES / f"{sweep}.json")["cases"] if case["run_dir"]]
    live = [run_dir for run_dir in dict.fromkeys(cases) if not os.path.lexists(run_dir / RESULT_FILE)]
    for path in () if trust else (STATES / f"{sweep}.json", *_files(sweep), *live):
        check_own(
            path,
            "would stop the processes or jobs that it names",
            f"its owner can cancel them; if you know them: gnnexp cancel --trust {sweep}",
        )
    processes = processes_of(sweep)
    here = [process for process in processes if is_seen(process)]
    for process in here:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
    done = [f"process {process.pid} is asked to stop" for process in here]
    done += _cancelled(live, alone=not here)
    problems = [
        Problem("sweep", sweep, f"process {process.pid} of {process.host} works on it", f"gnnexp cancel {sweep} there")
        for process in processes
        if process not in here
    ]
    if not done and not problems:
        problems = [
            Problem("sweep", sweep, "no process and no job works on it", f"gnnexp status {sweep} shows its runs")
        ]
    ConfigError.raise_all(problems)
    return done


def _cancelled(run_dirs: Sequence[Path], *, alone: bool) -> list[str]:
    """Cancel the jobs of these runs. With `alone`, no process of the sweep does that, so a refusal is an error."""
    jobs, controller = dict[Path, str](), Controller()
    for run_dir in run_dirs:
        with suppress(DataError):  # a damaged note: `gnnexp status RUN_DIR` reports it
            job_id = read_job_id(run_dir)
            if job_id is not None and not isinstance(job_state_of(run_dir, controller), EndedJob):
                jobs[run_dir] = job_id
    if not jobs:
        return []
    try:
        cancel_jobs(*jobs.values())
        cancel_preparation(*jobs)
    except RunError as error:
        if alone:
            raise
        return [str(error)]
    return [f"SLURM jobs are cancelled: {', '.join(jobs.values())}"]
