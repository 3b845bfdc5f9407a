"""Storms side by side: which, with which seeds, for how long; every one in a process of its own."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from torture.counts import Counts, Failure, from_json
from torture.processes import family
from torture.storm import HangError, Storm

# How often a campaign is drawn. Most kills come from the first two; `fuzz` has a process of its own.
WEIGHTS = {
    "kills": 14,
    "sweeps": 3,
    "frozen": 2,
    "together": 2,
    "tracking": 2,
    "disks": 2,
    "slurm": 1,
    "peers": 2,
    "memory": 2,
    "strangers": 2,
    "stores": 2,
}
FUZZ = "fuzz"
CAMPAIGNS = (*WEIGHTS, FUZZ)
# A storm that takes longer hangs in the campaign's own code: commands have limits of their own.
_STORM_S = 1800.0
_FUZZ_S, _SHORT_S = 240.0, 60.0
_POLL_S = 0.05


@dataclass(frozen=True)
class Task:
    """One storm, or a time of fuzzing.

    Attributes:
        campaign: its name.
        seed: of it.
        seconds: how long to fuzz.
        kinds: of inputs to fuzz with; None = all.
    """

    campaign: str
    seed: int
    seconds: float = 0.0
    kinds: tuple[str, ...] | None = None

    @property
    def how(self) -> str:
        """The command that does it again."""
        return f"python -m torture {self.campaign} --seed {self.seed}"


@dataclass
class _Running:
    pid: int
    task: Task
    folder: Path
    started: float = field(default_factory=time.monotonic)


def tasks(seed: int, campaigns: Sequence[str]) -> Iterator[Task]:
    """Storms without end; those of a seed are always the same, in the same order."""
    random, names = Random(seed), [name for name in campaigns if name != FUZZ]
    while names:
        (name,) = random.choices(names, [WEIGHTS[name] for name in names])
        yield Task(name, random.randrange(1 << 31))


def fuzzing(seed: int, end: float) -> Iterator[Task]:
    """Times of fuzzing until `end` (of `time.monotonic`): long ones, because each begins with imports."""
    random = Random(f"fuzz {seed}")
    yield Task(FUZZ, random.randrange(1 << 31), min(_FUZZ_S, end - time.monotonic()))
    while end - time.monotonic() > _SHORT_S:
        yield Task(FUZZ, random.randrange(1 << 31), min(_FUZZ_S, end - time.monotonic()))


def run_all(
    sources: Sequence[Iterator[Task]],
    shared: Path,
    seconds: float,
    tell: Callable[[Task, Counts, float], None],
    grace_s: float = 60.0,
) -> Counts:
    """Work through the sources side by side, one storm of each at a time, until the time is over or Ctrl-C is pressed.

    What is not over then is ended, and not counted.

    Args:
        sources: of tasks.
        shared: folder of the session.
        seconds: after which no further storm is started.
        tell: called for every task that is over, with its counts and its seconds.
        grace_s: what storms that run have after that.
    """
    counts, end = Counts(), time.monotonic() + seconds
    running: dict[int, _Running] = {}
    waiting = dict(enumerate(sources))
    try:
        while running or waiting:
            for slot in [slot for slot in waiting if slot not in running]:
                task = next(waiting[slot], None) if time.monotonic() < end else None
                if task is None:
                    del waiting[slot]
                    continue
                running[slot] = _start(task, shared)
            time.sleep(_POLL_S)
            for slot, one in list(running.items()):
                took = time.monotonic() - one.started
                if (found := _counts_of(one, took)) is not None:
                    del running[slot]
                    counts += found
                    tell(one.task, found, took)
            if time.monotonic() > end + grace_s:
                break
    except KeyboardInterrupt:
        print("ended by Ctrl-C: what was not over is not counted", file=sys.stderr)
    family.kill_all()
    return counts


def _start(task: Task, shared: Path) -> _Running:
    folder = shared / "storms" / f"{task.campaign}-{task.seed}"
    folder.mkdir(parents=True)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return _Running(pid, task, folder)
    code = 1
    try:
        os.setsid()  # Ctrl-C is for the session, which ends its storms
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        family.adopt_orphans()
        found = carry_out(task, folder, shared)
        (folder / ".counts.json").write_text(json.dumps(found.to_json()))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stderr.flush()
        os._exit(code)


def carry_out(task: Task, folder: Path, shared: Path) -> Counts:
    """One task in this process; whatever goes wrong in the campaign itself is a failure too."""
    if task.campaign == FUZZ:
        return _fuzzed(task, folder)
    storm = Storm(task.campaign, task.seed, folder, shared)
    try:
        importlib.import_module(f"torture.campaigns.{task.campaign}").run(storm)
    except HangError as error:
        storm.problems.append(f"hangs: {error}")
    except Exception:
        storm.problems.append(f"the campaign itself broke: {traceback.format_exc()}")
    finally:
        family.kill_all()
    storm.numbers[f"storms_{task.campaign}"] += 1
    return storm.counts()


def _fuzzed(task: Task, folder: Path) -> Counts:
    """Counts of the fuzzers; that no input was tried is a failure, or nobody would notice."""
    fuzz = importlib.import_module("torture.fuzz.campaign").fuzz
    found: Counts = fuzz(task.seconds, task.seed, folder, task.kinds)
    if any(value for name, value in found.numbers.items() if name.endswith("/inputs")):
        return found
    what = f"no input was tried within {task.seconds:.0f} s"
    return found + Counts({}, (Failure(FUZZ, what, task.seed, task.how),))


def _counts_of(one: _Running, took: float) -> Counts | None:
    """The counts of a task that is over; None while it runs."""
    pid, status = os.waitpid(one.pid, os.WNOHANG)
    if not pid and took < _STORM_S + one.task.seconds:
        return None
    if not pid:
        os.kill(one.pid, signal.SIGKILL)
        os.waitpid(one.pid, 0)
    file = one.folder / ".counts.json"
    if not file.exists():
        what = f"the storm itself ended with {os.waitstatus_to_exitcode(status) if pid else 'nothing for too long'}"
        return Counts({}, (Failure(one.task.campaign, what, one.task.seed, one.task.how),))
    counts = from_json(json.loads(file.read_text()))
    if not counts.failures:  # hours of storms would fill the disk; what failed stays for whoever looks at it
        shutil.rmtree(one.folder)
    return counts
