"""A rank that starts late, or freezes for a while: within the time limit nothing happens, beyond it the rank is blamed.

Unlike `frozen`, the rank goes on after a while that is shorter or longer than `hardware.timeout_s`, and most strikes
come while ranks meet and make groups.
"""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from torture.campaigns.frozen import MARGIN_S
from torture.campaigns.kills import recorded
from torture.processes.family import Member
from torture.setups import Setup, random_setup
from torture.storm import DELIVERY_S, RANKS_S, Command, HangError, Storm

TIMEOUT_S = 6
# A rank that is late by less than this is in time, also on a busy machine.
_IN_TIME_S = 2.5
_LIMIT = f"hardware.timeout_s={TIMEOUT_S}"


def run(storm: Storm) -> None:
    """One run with a late rank; then resumed, and compared."""
    setup = random_setup(storm.random)
    storm.undisturbed(setup)
    storm.put_store()
    run_dir = storm.folder / "run"
    command = storm.start("run", *setup.overrides, _LIMIT, "tracker=none", "hydra.run.dir=run")
    at_start, epochs = storm.random.random() < 0.7, storm.random.randrange(8)
    seconds = storm.random.choice([storm.random.uniform(0, _IN_TIME_S), storm.random.uniform(TIMEOUT_S, 3 * TIMEOUT_S)])
    storm.history.append(f"{setup.name}: {'start' if at_start else f'epoch {epochs}'}, {seconds:.1f} s")
    if at_start:
        reached = storm.until(lambda: len(storm.members("rank", command)) == setup.workers, command, 60)
        _wait(storm, command, storm.random.uniform(0, 0.6))
    else:
        reached = storm.until(lambda: recorded(run_dir) > epochs, command, 60)
    late = _froze(storm, command) if reached else None
    if late is None:
        storm.done(command)
    else:
        storm.numbers["late_at_the_start" if at_start else "late_in_an_epoch"] += 1
        _ends(storm, command, run_dir, late, seconds)
    _goes_on(storm, setup, command)


def _froze(storm: Storm, command: Command) -> tuple[int, Member] | None:
    """The rank that is frozen now, and its process: ranks are forked in their order."""
    ranks = sorted(storm.members("rank", command), key=lambda member: member.pid)
    if not ranks:
        return None
    rank = storm.random.randrange(len(ranks))
    try:
        os.kill(ranks[rank].pid, signal.SIGSTOP)
    except ProcessLookupError:
        return None
    storm.history.append(f"rank {rank} frozen at {time.monotonic() - command.started:.2f} s")
    return rank, ranks[rank]


def _ends(storm: Storm, command: Command, run_dir: Path, late: tuple[int, Member], seconds: float) -> None:
    """The run finishes if the rank was in time; else its record says which rank hung."""
    rank, member = late
    _wait(storm, command, seconds)
    with suppress(ProcessLookupError):
        os.kill(member.pid, signal.SIGCONT)
    try:
        code = storm.done(command, TIMEOUT_S + MARGIN_S)
    except HangError as error:
        storm.problems.append(f"waits longer than hardware.timeout_s={TIMEOUT_S} s and {MARGIN_S} s: {error}")
        return
    if code == 0:
        storm.numbers["late_and_finished"] += 1
        return
    if seconds < _IN_TIME_S:
        storm.problems.append(f"late by {seconds:.1f} s only, exit {code}: {command.said()[-600:]}")
        return
    storm.numbers["late_and_blamed"] += 1
    reason = str(json.loads((run_dir / "result.json").read_text())["reason"])
    if not reason.startswith(f"rank {rank} "):
        storm.problems.append(f"rank {rank} was frozen, and the reason is: {reason}")


def _goes_on(storm: Storm, setup: Setup, command: Command) -> None:
    if command.code != 0 and storm.run("resume", "run").code != 0:
        storm.problems.append(f"does not go on: {storm.commands[-1].said()[-600:]}")
        return
    storm.expect_quiet(DELIVERY_S)
    storm.compare(storm.folder / "run", setup)
    storm.expect_quiet(RANKS_S)


def _wait(storm: Storm, command: Command, seconds: float) -> None:
    """How late somebody is belongs to the fault."""
    end = time.monotonic() + seconds
    storm.until(lambda: time.monotonic() > end, command, seconds + 5)
