"""Runs and sweeps of the current folder at a glance, and the run that `latest` names."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnexp.cli.sweeping.processes import STATES, processes_of
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.files.regular import open_regular
from gnnexp.launchers.elsewhere import is_prepared
from gnnexp.launchers.queue.slurm_jobs import read_job_id
from gnnexp.provenance.older import as_today
from gnnexp.record.archive import imported_from
from gnnexp.record.attempts import is_held
from gnnexp.record.records import EPOCHS_FILE, JOB_FILE, RESULT_FILE, load_job, load_result, read_state, run_dirs
from gnnexp.record.runs import RUNS, RecordedRun

LATEST = "latest"
# Number of runs that are shown, unless the user wants all. Results may be large, and only those of shown runs are read.
SHOWN = 20
_CHUNK = 1 << 20


@dataclass(frozen=True)
class RunSummary:
    """A run in a list.

    Attributes:
        run_dir: its directory.
        sweep: the sweep that it belongs to, or an empty text.
        system, dataset, model: names of what was chosen.
        state: `running`, `finished`, `stopped`, `failed`, `damaged`, `prepared` (another program starts its ranks),
            or `job N`, whose state only SLURM knows.
        epochs: number of recorded epochs.
        epochs_asked: number of epochs that the run should have; 0 if this is not known.
        started: when it was started, in ISO 8601.
        changed: when its record last changed, in seconds since the epoch of the clock.
    """

    run_dir: str
    sweep: str
    system: str
    dataset: str
    model: str
    state: str
    epochs: int
    epochs_asked: int
    started: str
    changed: float

    def cells(self) -> tuple[str, ...]:
        """The row of a table with `RUN_HEADER`."""
        return (
            self.run_dir,
            self.sweep,
            self.system,
            self.dataset,
            self.model,
            self.state,
            f"{self.epochs} of {self.epochs_asked}",
            self.started[:16].replace("T", " "),
            age(self.changed),
        )


RUN_HEADER = ("directory", "sweep", "system", "dataset", "model", "state", "epochs", "started (UTC)", "changed")


@dataclass(frozen=True)
class SweepLine:
    """A sweep in a list.

    Attributes:
        name: its name.
        state: `running` if a process works on it, else `finished` or `not finished`.
        cases: number of cases by status, as the sweep last noted it.
        changed: when its state last changed, in seconds since the epoch of the clock.
    """

    name: str
    state: str
    cases: dict[str, int]
    changed: float

    def cells(self) -> tuple[str, ...]:
        """The row of a table with `SWEEP_HEADER`."""
        counts = ", ".join(f"{count} {status}" for status, count in self.cases.items())
        return self.name, self.state, counts, age(self.changed)


SWEEP_HEADER = ("sweep", "state", "cases", "changed")


def newest(folder: Path = RUNS) -> list[Path]:
    """All run directories below `folder`, the one that was started or resumed last first. Reads no record."""
    ages = []
    for path in run_dirs(folder, JOB_FILE):
        with suppress(OSError):  # renamed or removed in the meantime
            ages.append(((path / JOB_FILE).stat().st_mtime, str(path)))
    return [Path(path) for _, path in sorted(ages, reverse=True)]


def list_runs(paths: Sequence[Path]) -> list[RunSummary]:
    """The lines of these runs; SLURM is not asked about jobs."""
    return [_line(path) for path in paths]


def list_sweeps() -> list[SweepLine]:
    """The sweeps of this folder, the one that changed last first."""
    found = [_sweep_line(file) for file in STATES.glob("*.json")]
    return sorted(found, key=lambda line: -line.changed)


def named_run(word: str) -> Path:
    """The run directory that a user names; `latest` is the one that was started last, unless imported.

    Raises:
        ConfigError: there is no run.
    """
    if word != LATEST or os.path.lexists(word):
        return Path(word)
    if (path := next(_own(newest()), None)) is None:
        raise ConfigError(Problem("run", word, f"no run was started in {RUNS.resolve()}", "gnnexp run"))
    return path


def age(changed: float) -> str:
    """How long ago this was, such as `5 min ago`."""
    seconds = max(0.0, time.time() - changed)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def _own(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        with suppress(OSError, ValueError):
            if not imported_from(load_job(path)["provenance"]):
                yield path


def _line(path: Path) -> RunSummary:
    try:
        job = load_job(path)
    except (OSError, ValueError):
        return RunSummary(str(path), "", "", "", "", "damaged", 0, 0, "", _changed(path))
    state, epochs = _state_and_epochs(path)
    run = RecordedRun(path, as_today(job["config"]), job["provenance"], (), {}, state)
    system, dataset, model = map(run.value, ("system", "dataset", "model"))
    asked = int(job["config"]["train"].get("epochs") or 0)
    return RunSummary(
        str(path),
        run.provenance.get("sweep") or "",
        system,
        dataset,
        model,
        state,
        epochs,
        asked,
        str(run.provenance.get("date") or ""),
        _changed(path),
    )


def _state_and_epochs(path: Path) -> tuple[str, int]:
    if os.path.lexists(path / RESULT_FILE):
        try:
            result = load_result(path)
        except (OSError, ValueError):
            return "damaged", _recorded(path)
        return str(result["status"]), len(result["epochs"])
    try:
        job_id = read_job_id(path)
        state = (
            f"job {job_id}"
            if job_id
            else "running"
            if is_held(path)
            else ("prepared" if is_prepared(path) else "stopped")
        )
    except (ConfigError, DataError, OSError):
        state = "damaged"
    return state, _recorded(path)


def _recorded(path: Path) -> int:
    """The number of whole lines of `epochs.jsonl`."""
    try:
        with open_regular(path / EPOCHS_FILE) as file:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(_CHUNK), b""))
    except OSError:
        return 0


def _changed(path: Path) -> float:
    times = []
    for name in (JOB_FILE, EPOCHS_FILE, RESULT_FILE):
        with suppress(OSError):
            times.append((path / name).stat().st_mtime)
    return max(times, default=0.0)


def _sweep_line(file: Path) -> SweepLine:
    live = bool(processes_of(file.stem))
    try:
        cases = Counter(case["status"] or "waiting" for case in read_state(file)["cases"])
    except DataError:
        return SweepLine(file.stem, "running" if live else "damaged", {}, _written(file))
    done = cases["finished"] + cases["finished before"] == cases.total()
    return SweepLine(
        file.stem, "running" if live else "finished" if done else "not finished", dict(cases), _written(file)
    )


def _written(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:  # removed in the meantime
        return 0.0


def read_job(run_dir: Path) -> dict[str, Any]:
    """The contents of `job.json`: what the run should do.

    Raises:
        ConfigError: `run_dir` is no run directory.
    """
    try:
        return load_job(run_dir)
    except (OSError, ValueError) as error:
        said = (error.strerror if isinstance(error, OSError) else None) or str(error)[:200]
        why = said if os.path.lexists(run_dir) else "there is none"
        raise ConfigError(
            Problem(
                "run",
                str(run_dir),
                f"must be the directory of a run ({JOB_FILE}: {why})",
                "gnnexp report lists the runs",
            )
        ) from None
