"""Two commands at once on one run, sweep or cache: one of them does the work, the other says why it does not."""

from __future__ import annotations

import shutil
import signal
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from torture import checks
from torture.campaigns.kills import recorded
from torture.campaigns.sweeps import NAME, compare_sweep, write_sweep
from torture.setups import Setup, random_setup
from torture.storm import DELIVERY_S, Command, Storm

# What the second command says: somebody works on the run, or has made its directory.
_MOVED = ("was moved or removed", "must be the directory of a run")
_BUSY = ("another process is working on this run", "into a folder that exists")


def run(storm: Storm) -> None:
    """One of the kinds; then everything compared."""
    storm.carry_out_one(_KINDS)


def _both(storm: Storm, first: Command, second: Command) -> tuple[int, int]:
    return storm.done(first, 300), storm.done(second, 300)


def _one_works(storm: Storm, first: Command, second: Command) -> None:
    """One has done it; the other has got the answer that the run is busy, or came when all was done."""
    codes = _both(storm, first, second)
    for command in (first, second):
        said = command.said()
        if command.code == 2 and not any(words in said for words in _BUSY):
            storm.problems.append(f"`gnnexp {command.name}` exits 2 and says: {said[-500:]}")
        elif command.code not in (0, 2):
            storm.problems.append(f"`gnnexp {command.name}` exits {command.code}: {said[-500:]}")
    if 0 not in codes:
        storm.problems.append(f"nobody has done the work: exits {codes}")


def _started(storm: Storm, setup: Setup) -> Command:
    command = storm.start("run", *setup.overrides, "hydra.run.dir=run")
    epochs = storm.random.randrange(8)
    storm.until(lambda: recorded(storm.folder / "run") > epochs, command, 120)
    return command


def _killed(storm: Storm, setup: Setup) -> None:
    """A run to go on with."""
    command = _started(storm, setup)
    storm.send(signal.SIGKILL, "command", command)
    storm.done(command)


def _compared(storm: Storm, setup: Setup) -> None:
    storm.expect_quiet(DELIVERY_S)
    storm.check_store([storm.folder / "run"])
    storm.compare(storm.folder / "run", setup)
    storm.numbers["kills_compared"] += storm.numbers["kills"]


def _run_and_resume(storm: Storm) -> None:
    setup = random_setup(storm.random)
    first = _started(storm, setup)
    _one_works(storm, first, storm.start("resume", "run"))
    _compared(storm, setup)


def _resume_and_resume(storm: Storm) -> None:
    setup = random_setup(storm.random)
    _killed(storm, setup)
    _one_works(storm, storm.start("resume", "run"), storm.start("resume", "run"))
    _compared(storm, setup)


def _run_and_run(storm: Storm) -> None:
    setup = random_setup(storm.random)
    first, second = (storm.start("run", *setup.overrides, "hydra.run.dir=run") for _ in range(2))
    _one_works(storm, first, second)
    _compared(storm, setup)


def _sweep_and_sweep(storm: Storm) -> None:
    cases = write_sweep(storm, "dgl")
    for case in cases:
        storm.undisturbed(case)
    first = storm.start("sweep", f"{NAME}.yaml", spare=12)
    begun = storm.random.random() < 0.5
    storm.until(lambda: not begun or (storm.folder / "runs" / NAME).is_dir(), first, 60)
    second = storm.start("sweep", f"{NAME}.yaml", spare=12)
    for command in (first, second):
        if storm.done(command, 300) not in (0, 1, 2):
            storm.problems.append(f"`gnnexp {command.name}` exits {command.code}: {command.said()[-500:]}")
    if storm.run("sweep", f"{NAME}.yaml", seconds=300).code != 0:
        storm.problems.append(f"afterwards, the sweep does not finish: {storm.commands[-1].said()[-500:]}")
    storm.expect_quiet(DELIVERY_S)
    compare_sweep(storm, cases)


def _sync_and_sync(storm: Storm) -> None:
    setup = random_setup(storm.random)
    away = f"tracker.uri=sqlite:///{storm.folder}/away/mlflow.db"
    (storm.folder / "away").mkdir()
    held = shutil.copy(storm.folder / "mlflow.db", storm.folder / "away" / "mlflow.db")
    with closing(sqlite3.connect(held, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        done = storm.run("run", *setup.overrides, away, "tracker.timeout_s=1", "hydra.run.dir=run")
    if done.code != 0:
        storm.problems.append(f"a run whose store is away exits {done.code}: {done.said()[-500:]}")
    first, second = (storm.start("report", "--sync", "run") for _ in range(2))
    codes = _both(storm, first, second)
    if 0 not in codes or not set(codes) <= {0, 1}:
        storm.problems.append(f"report --sync twice: exits {codes}: {first.said()[-300:]} / {second.said()[-300:]}")
    storm.compare(storm.folder / "run", setup)
    (storm.folder / "mlflow.db").unlink()
    (storm.folder / "away" / "mlflow.db").rename(storm.folder / "mlflow.db")
    storm.problems += checks.store_problems(storm.folder / "mlflow.db", [storm.folder / "run"])


def _run_and_removed_cache(storm: Storm) -> None:
    """Its ranks have mapped their files, or say which are gone; `resume` prepares them again."""
    setup = Setup(storm.random.choice(["gsplit", "sancus", "dgl"]))
    cache = Path(storm.environment()["GNNEXP_CACHE"])
    storm.undisturbed(setup)
    own = storm.folder / "cache"
    shutil.copytree(cache, own, symlinks=True)
    command = storm.start("run", *setup.overrides, "hydra.run.dir=run", cache=own)
    if storm.random.random() < 0.5:
        storm.until((storm.folder / "run" / "job.json").exists, command, 60)
    else:
        storm.until(lambda: recorded(storm.folder / "run") > 2, command, 60)
    shutil.rmtree(own)
    if storm.done(command) not in (0, 1, 2):
        storm.problems.append(f"exit {command.code}: {command.said()[-500:]}")
    if command.code != 0:
        resumed = storm.start("resume", "run", cache=own)
        if storm.done(resumed) != 0:
            storm.problems.append(f"resume after the cache was removed: exit {resumed.code}: {resumed.said()[-500:]}")
    _compared(storm, setup)


def _until_recorded(storm: Storm, command: Command, place: Path, epochs: int) -> None:
    """Below 0: as soon as there is a directory."""
    storm.until(lambda: place.exists() and recorded(place) > epochs, command, 120)


def _run_that_is_moved(storm: Storm) -> None:
    """It ends in words, `resume` goes on where the directory is now, and nothing appears under the old name."""
    setup = random_setup(storm.random)
    places = [storm.folder / "run", storm.folder / "elsewhere"]
    storm.undisturbed(setup)
    command = storm.start("run", *setup.overrides, "hydra.run.dir=run")
    for _ in range(storm.random.randint(1, 3)):
        place, other = places
        _until_recorded(storm, command, place, storm.random.randrange(-4, 12))
        if not place.exists():  # it has ended before it had a directory
            break
        place.rename(other)
        places.reverse()
        code = storm.done(command)
        if code not in (0, 1, 2) or (code and not any(words in command.said() for words in _MOVED)):
            storm.problems.append(f"a moved run exits {code}: {command.said()[-500:]}")
        if place.exists():
            storm.problems.append(f"{place.name} is there again: {sorted(item.name for item in place.iterdir())}")
            return
        storm.numbers["moved"] += 1
        command = storm.start("resume", other.name)
    if storm.done(command) != 0:
        storm.problems.append(f"resume after a move: exit {command.code}: {command.said()[-500:]}")
    storm.expect_quiet(DELIVERY_S)
    if places[0].name != "run":
        places[0].rename(storm.folder / "run")
    _compared(storm, setup)


_KINDS: Mapping[str, Callable[[Storm], None]] = {
    "run_and_resume": _run_and_resume,
    "resume_and_resume": _resume_and_resume,
    "run_and_run": _run_and_run,
    "sweep_and_sweep": _sweep_and_sweep,
    "sync_and_sync": _sync_and_sync,
    "run_and_removed_cache": _run_and_removed_cache,
    "run_that_is_moved": _run_that_is_moved,
}
