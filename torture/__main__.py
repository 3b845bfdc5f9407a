"""`python -m torture`: kills, frost, full disks, little memory, strangers, malformed files, as long as is asked for.

python -m torture [--minutes M] [--seed S] [--only kills,fuzz] [--counts FILE]
python -m torture CAMPAIGN --seed S        does one storm of it again
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import os
import platform
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from torture import schedule
from torture.counts import Counts, Failure, Session, add_session
from torture.processes import family, warm
from torture.schedule import CAMPAIGNS, FUZZ, Task
from torture.storm import STORE

ROOT = Path(__file__).parents[1]
COUNTS = ROOT / "docs" / "results" / "torture.json"
# What CI runs in at most a minute, imports included: fixed seeds, each of a few seconds, and a random one.
SLICE = (Task("kills", 107), Task("together", 60), Task("kills", 2))
SLICE_S, SLICE_FUZZ_S = 55.0, 15.0
# Kinds of inputs that need nothing made before.
SLICE_KINDS = ("datasets", "checkpoints", "archives", "sweeps", "overrides", "slurm_output")
# Threads of the ranks' libraries are chosen when a process starts: forks have those of their parent.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "NUMBA_THREADING_LAYER": "omp",
    "OMP_WAIT_POLICY": "passive",
    "DGLBACKEND": "pytorch",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


def main() -> int:
    """Run what is asked for; 1 if anything failed."""
    options = _options()
    if any(os.environ.get(name) != value for name, value in _ENVIRONMENT.items()):
        os.execve(sys.executable, [sys.executable, "-m", "torture", *sys.argv[1:]], os.environ | _ENVIRONMENT)
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    began = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: counts are kept, and nobody is left behind
    shared = Path(tempfile.mkdtemp(prefix="gnnexp-torture-"))
    _prepare(shared)
    counts = _work(options, seed, shared, began)
    seconds = time.monotonic() - began
    _tell(counts, seconds)
    if options.counts is not None and not options.campaign:
        add_session(options.counts, _session(seed, seconds, counts))
        print(f"counts: {options.counts}")
    if counts.failures:
        print(f"folders of what failed: {shared / 'storms'}")
    else:
        shutil.rmtree(shared)
    return 1 if counts.failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m torture", description="Disturb gnnexp and compare the results.")
    parser.add_argument("campaign", nargs="?", choices=CAMPAIGNS, help="one storm of this campaign, with --seed")
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("TORTURE_MINUTES", "10")))
    parser.add_argument("--seed", type=int, help="all storms follow from it; none = a random one, which is printed")
    parser.add_argument("--only", default=",".join(CAMPAIGNS), help="campaigns, with commas between them")
    parser.add_argument("--counts", type=Path, help="a JSON file to which this session is added")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="storms side by side")
    parser.add_argument("--slice", action="store_true", help="at most a minute, with fixed seeds and a random one: CI")
    parser.add_argument("--kind", help="of the fuzzer whose input `fuzz --seed` makes again")
    options = parser.parse_args()
    options.only = options.only.split(",")
    if unknown := set(options.only) - set(CAMPAIGNS):
        parser.error(f"--only: {', '.join(sorted(unknown))}: must be of {', '.join(CAMPAIGNS)}")
    if options.campaign and options.seed is None:
        parser.error(f"{options.campaign}: --seed says which storm")
    return options


def _prepare(shared: Path) -> None:
    """Import everything, adopt orphans, and make the MLflow store that storms begin with."""
    warm.preload()
    family.adopt_orphans()
    pid = os.fork()
    if pid == 0:
        from mlflow import MlflowClient

        with Path(os.devnull).open("w") as nothing:
            os.dup2(nothing.fileno(), 2)
        MlflowClient(tracking_uri=f"sqlite:///{shared / STORE}").search_experiments()
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError("MLflow cannot make its store")


def _slice(seed: int, shared: Path, seconds: float) -> Counts:
    """What is over within `seconds`; a failure if that is nothing: then nothing was tested."""
    drawn = next(schedule.tasks(seed, ["kills", "together", "tracking", "disks"]))
    print(f"drawn: {drawn.how}", flush=True)
    sources = [iter(SLICE), iter([drawn]), iter([Task(FUZZ, seed, SLICE_FUZZ_S, SLICE_KINDS)])]
    counts = schedule.run_all(sources, shared, 0.6 * seconds, _tell_task, grace_s=0.4 * seconds)
    if counts.numbers.get("runs_compared", 0) == 0:
        what = f"no storm was over within {seconds:.0f} s: the machine is too busy"
        return counts + Counts({}, (Failure("slice", what, seed, f"python -m torture --slice --seed {seed}"),))
    return counts


def _work(options: argparse.Namespace, seed: int, shared: Path, began: float) -> Counts:
    if options.campaign == FUZZ and options.kind:
        print(importlib.import_module("torture.fuzz.campaign").reproduce(options.kind, seed, shared))
        return Counts()
    if options.campaign:
        sources = [iter([Task(options.campaign, seed, 60.0 * options.minutes)])]
        return schedule.run_all(sources, shared, 60.0 * options.minutes, _tell_task, grace_s=1800.0)
    if options.slice:
        return _slice(seed, shared, SLICE_S - (time.monotonic() - began))
    seconds = 60.0 * options.minutes
    sources = [schedule.tasks(seed + slot, options.only) for slot in range(options.jobs)]
    if FUZZ in options.only:
        sources.append(schedule.fuzzing(seed, time.monotonic() + seconds))
    return schedule.run_all(sources, shared, seconds, _tell_task)


def _tell_task(task: Task, counts: Counts, seconds: float) -> None:
    print(
        f"{task.campaign} --seed {task.seed}: {seconds:.1f} s, {counts.numbers.get('kills', 0)} kills, "
        f"{'right' if not counts.failures else f'{len(counts.failures)} FAILED'}",
        flush=True,
    )
    for failure in counts.failures:
        print(f"  {failure.what}\n  again: {failure.how}", flush=True)


def _tell(counts: Counts, seconds: float) -> None:
    for name, value in sorted(counts.numbers.items()):
        print(f"{value:>10,}  {name}")
    compared = counts.numbers.get("kills_compared", 0)
    cpu_s = sum(os.times()[:4])
    print(
        f"{seconds:.0f} s, {cpu_s:.0f} s of the cores, {3600 * compared / seconds:.0f} compared kills an hour, "
        f"{len(counts.failures)} failures"
    )


def _session(seed: int, seconds: float, counts: Counts) -> Session:
    machine = f"{platform.node()}: {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    return Session(
        datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), seconds, machine, _commit(), seed, counts
    )


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False).stdout

    return git("rev-parse", "HEAD").strip() + (
        "+" if git("status", "--porcelain", "--", "gnnexp", "conf", "torture") else ""
    )


if __name__ == "__main__":
    sys.exit(main())
