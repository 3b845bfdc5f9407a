"""Frozen processes (SIGSTOP), alone or in a pair with a kill: the launcher ends within the run's own time limit.

Afterwards everybody may go on (SIGCONT); the run is resumed, and compared with an undisturbed one.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from torture.campaigns.kills import recorded
from torture.processes import family
from torture.processes.family import Role
from torture.setups import Setup, random_setup
from torture.storm import DELIVERY_S, RANKS_S, Command, HangError, Storm

TIMEOUT_S = 5
TRACKER_S = 4
# Beyond `hardware.timeout_s`: what gnnexp gives ranks for a checkpoint and for dying, the starter and the tracker for
# ending (8 + 4 + 5 + 5 + 4 s), and as much again for a busy machine.
MARGIN_S = 55

# Who is frozen, and who is killed half a second later.
_PAIRS: tuple[tuple[Role, Role | None], ...] = (
    ("rank", None),
    ("rank", "rank"),
    ("rank", "command"),
    ("starter", None),
    ("starter", "rank"),
    ("starter", "command"),
    ("follower", None),
    ("follower", "rank"),
    ("follower", "command"),
    ("command", "rank"),
    ("command", "starter"),
    ("command", "follower"),
    ("command", None),
)


def run(storm: Storm) -> None:
    """One run, frozen in part; then resumed and compared."""
    setup = random_setup(storm.random)
    storm.undisturbed(setup)
    storm.put_store()
    run_dir = storm.folder / "run"
    frozen, killed = storm.random.choice(_PAIRS)
    storm.history.append(f"{setup.name}: freeze {frozen}, kill {killed}")
    command = storm.start("run", *setup.overrides, *_LIMITS, "hydra.run.dir=run")
    epochs = storm.random.randrange(8)
    if storm.random.random() < 0.3:
        storm.until(lambda: bool(storm.members(frozen, command)), command, 60)
    else:
        storm.until(lambda: recorded(run_dir) > epochs, command, 60)
    if storm.send(signal.SIGSTOP, frozen, command):
        storm.numbers["frozen"] += 1
        storm.numbers[f"frozen_{frozen}"] += 1
        if killed is not None:
            _pause(storm.random.uniform(0, 0.5))
            storm.send(signal.SIGKILL, killed, command)
        try:
            _end(storm, command, frozen)
        finally:
            _thaw()
    else:
        storm.done(command)
    _compared(storm, setup)


_LIMITS = (f"hardware.timeout_s={TIMEOUT_S}", f"tracker.timeout_s={TRACKER_S}")


def _end(storm: Storm, command: Command, frozen: Role) -> None:
    """The command's own end; a frozen launcher is one that goes on after a while."""
    if frozen == "command":
        _pause(storm.random.uniform(0.5, 2.5))
        with suppress(ProcessLookupError):
            os.kill(command.pid, signal.SIGCONT)
    try:
        storm.done(command, TIMEOUT_S + MARGIN_S)
    except HangError as error:
        storm.problems.append(f"waits longer than hardware.timeout_s={TIMEOUT_S} s and {MARGIN_S} s: {error}")


def _thaw() -> None:
    """Nobody stays frozen: what a launcher did not end goes on, and ends by itself."""
    for member in family.family():
        if member.stopped:
            with suppress(ProcessLookupError):
                os.kill(member.pid, signal.SIGCONT)


def _compared(storm: Storm, setup: Setup) -> None:
    run_dir = storm.folder / "run"
    storm.expect_quiet(DELIVERY_S)
    for _ in range(3):
        if (run_dir / "job.json").exists():
            command = storm.run("resume", "run")
        else:
            run_dir.exists() and run_dir.rename(run_dir.with_name("empty"))
            command = storm.run("run", *setup.overrides, *_LIMITS, "hydra.run.dir=run")
        if command.code == 0:
            break
    else:
        storm.problems.append(f"does not go on after the frost: {command.said()[-600:]}")
        return
    storm.check_store([run_dir])
    storm.compare(run_dir, setup)
    storm.expect_quiet(RANKS_S)
    storm.numbers["kills_compared"] += storm.numbers["kills"]


def _pause(seconds: float) -> None:
    """How long somebody is frozen is a part of the fault, nothing is waited for."""
    time.sleep(seconds)
