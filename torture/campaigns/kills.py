"""SIGKILL at random: launcher, starter, a rank or the tracker's child of a single run, up to ten times, then resume."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from torture.processes.family import Role
from torture.setups import random_setup
from torture.storm import DELIVERY_S, RANKS_S, Command, Storm

# The launcher, its starter and ranks end an attempt; a killed delivery does not.
_WHO: tuple[Role, ...] = ("command", "command", "starter", "rank", "rank", "follower")
_ATTEMPTS = 24
# Epochs between two kills, at most: fewer, and a run of 16 epochs meets more of them.
_FURTHER = 6


@dataclass(frozen=True)
class Strike:
    """One kill.

    Attributes:
        who: is killed.
        when: after what: `seconds` of the command, an `epoch`, the process has been `seen`, the `result` is there.
        delay_s: since then; since the start of the command for `seconds`.
        epochs: how many more are recorded by then.
        number: the signal; SIGKILL but for a few SIGTERM and SIGINT to the launcher.
        twice: another process, at the same moment.
    """

    who: Role
    when: str
    delay_s: float
    epochs: int
    number: signal.Signals
    twice: Role | None


def draw(random: Random, *, warm: bool) -> Strike:
    """A random strike; a command that imports everything itself is given more time."""
    who = random.choice(_WHO)
    (when,) = random.choices(["seconds", "epoch", "seen", "result"], [3, 6, 4, 1])
    longest = {"seconds": 3.5, "epoch": 0.3, "seen": 1.0, "result": 0.8}[when] * (1 if warm else 4)
    delay = random.uniform(0, longest)
    polite = who == "command" and random.random() < 0.1
    number = random.choice([signal.SIGTERM, signal.SIGINT]) if polite else signal.SIGKILL
    twice = random.choice(_WHO) if random.random() < 0.1 else None
    return Strike(who, when, delay, random.randrange(_FURTHER), number, twice)


def strike(storm: Storm, command: Command, run_dir: Path, drawn: Strike) -> bool:
    """Wait for the moment, and kill; False if the command has ended before, or there was nobody."""
    if drawn.when == "epoch":
        before = recorded(run_dir)
        reached = storm.until(lambda: recorded(run_dir) > before + drawn.epochs, command, 60)
    elif drawn.when == "seen":
        reached = storm.until(lambda: bool(storm.members(drawn.who, command)), command, 60)
    elif drawn.when == "result":
        reached = storm.until((run_dir / "result.json").exists, command, 60)
    else:
        reached = True
    if not reached:
        return False
    since = command.started if drawn.when == "seconds" else time.monotonic()
    storm.until(lambda: time.monotonic() - since > drawn.delay_s, command, 60)
    if not storm.until(lambda: bool(storm.members(drawn.who, command)), command, 10):
        return False
    hit = storm.send(drawn.number, drawn.who, command)
    if drawn.twice is not None:
        hit |= storm.send(signal.SIGKILL, drawn.twice, command)
    return hit


def recorded(run_dir: Path) -> int:
    """How many epochs the run has recorded."""
    file = run_dir / "epochs.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def run(storm: Storm) -> None:
    """One run, killed and resumed until it has finished; then compared with an undisturbed one."""
    setup, left = random_setup(storm.random), storm.random.choice([1, 2, 3, 4, 6, 8, 10])
    storm.undisturbed(setup)
    storm.put_store()
    run_dir = storm.folder / "run"
    command, before = storm.start("run", *setup.overrides, "hydra.run.dir=run"), storm.numbers["kills"]
    storm.history.append(setup.name)
    for _ in range(_ATTEMPTS):
        while left > 0 and command.poll() is None:
            left -= strike(storm, command, run_dir, draw(storm.random, warm=storm.warm))
        code = storm.done(command)
        if storm.random.random() < 0.5:  # else somebody resumes at once
            storm.expect_quiet(RANKS_S, ("starter", "rank"))
        if not (run_dir / "job.json").exists():
            before = _again(storm, run_dir, before)
            command = storm.start("run", *setup.overrides, "hydra.run.dir=run")
        elif code == 0 and _finished(run_dir):
            break
        else:
            command = storm.start("resume", "run")
            storm.numbers["resumes"] += 1
    else:
        storm.problems.append(f"not finished after {_ATTEMPTS} attempts: {storm.commands[-1].said()[-600:]}")
        return
    storm.expect_quiet(DELIVERY_S)
    if storm.commands[-1].name.startswith("resume") and "has finished before" in storm.commands[-1].said():
        _delivers_what_is_left(storm, run_dir)
    storm.check_store([run_dir])
    storm.compare(run_dir, setup)
    storm.expect_quiet(RANKS_S)
    storm.numbers["kills_compared"] += storm.numbers["kills"] - before


def _again(storm: Storm, run_dir: Path, before: int) -> int:
    """Nothing is there that could be compared: the kills so far came before the run; the number of them."""
    storm.numbers["kills_before_the_run"] += storm.numbers["kills"] - before
    if run_dir.exists():  # killed between the making of the folder and its first file
        command = storm.run("resume", "run")
        if command.code != 2:
            storm.problems.append(f"resume of a folder without a run: exit {command.code}: {command.said()[-300:]}")
        run_dir.rename(run_dir.with_name(f"empty-{storm.numbers['empty_run_directories']}"))
        storm.numbers["empty_run_directories"] += 1
    return storm.numbers["kills"]


def _finished(run_dir: Path) -> bool:
    return (run_dir / "result.json").exists() and '"status": "finished"' in (run_dir / "result.json").read_text()


def _delivers_what_is_left(storm: Storm, run_dir: Path) -> None:
    """`resume` of a run whose launcher was killed after its result delivers the rest (F13a), with its breakdown."""
    storm.numbers["resumed_after_the_result"] += 1
    if not storm.delivered(run_dir):
        storm.problems.append("F13a: resume of a finished run leaves its records undelivered")
    if not (run_dir / "figures" / "breakdown.csv").exists():
        storm.problems.append("F13a: resume of a finished run leaves its breakdown unwritten")
