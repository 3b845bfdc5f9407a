"""Little memory: a control group that is small from the start, or gets small while ranks train. Needs root.

What does not fit is refused or blamed in words, and the run goes on where there is memory.
"""

from __future__ import annotations

import json
import math
import signal
import time
from pathlib import Path

from torture.campaigns.kills import recorded
from torture.processes.control_group import NoControlGroupsError, control_group, kills_of, tighten
from torture.setups import Setup, random_setup
from torture.storm import DELIVERY_S, RANKS_S, Command, Storm

# Of the whole command: its forks share most of their memory with the campaign, so that some megabytes are little.
_LEAST, _MOST = 8 << 20, 1500 << 20
_WORDS = ("memory", "GiB")


def run(storm: Storm) -> None:
    """One run with little memory; then resumed with enough, and compared."""
    setup = random_setup(storm.random)
    storm.undisturbed(setup)
    storm.put_store()
    try:
        command = (_for_one_rank if storm.random.random() < 0.5 else _from_the_start)(storm, setup)
    except NoControlGroupsError:
        storm.numbers["memory_not_run"] += 1
        return
    storm.expect_quiet(DELIVERY_S)
    _goes_on(storm, setup, command)


def _from_the_start(storm: Storm, setup: Setup) -> Command:
    limit = int(math.exp(storm.random.uniform(math.log(_LEAST), math.log(_MOST))))
    storm.history.append(f"{setup.name} in {limit >> 20} MiB")
    with control_group(limit) as group:
        command = storm.start(
            "run",
            *setup.overrides,
            "preflight=warn" if storm.random.random() < 0.5 else "preflight=refuse",
            "tracker=none",
            "hydra.run.dir=run",
            group=group,
        )
        storm.done(command)
        killed = kills_of(group)
    storm.numbers["memory_little"] += 1
    _said(storm, command, killed)
    return command


def _for_one_rank(storm: Storm, setup: Setup) -> Command:
    """While ranks train, memory gets so small that the kernel kills one; the record must name it, and memory."""
    run_dir, epochs = storm.folder / "run", storm.random.randrange(8)
    with control_group(_MOST) as group:
        command = storm.start("run", *setup.overrides, "tracker=none", "hydra.run.dir=run", group=group)
        storm.until(lambda: recorded(run_dir) > epochs, command, 60)
        ranks = sorted(member.pid for member in storm.members("rank", command))
        rank = storm.random.randrange(setup.workers)
        if len(ranks) == setup.workers and _first_to_be_killed(ranks[rank]):
            storm.history.append(f"{setup.name}: {tighten(group) >> 10} KiB after epoch {epochs}")
        storm.done(command)
        killed = kills_of(group)
    storm.numbers["memory_gets_little"] += 1
    _said(storm, command, killed)
    if killed == 1 and command.code == 1:
        result = json.loads((run_dir / "result.json").read_text())
        if not str(result["reason"]).startswith(f"rank {rank} ") or result["kind"] != "out of memory":
            storm.problems.append(
                f"rank {rank} was out of memory, and the reason is {result['kind']}: {result['reason']}"
            )
    return command


def _first_to_be_killed(pid: int) -> bool:
    """The kernel takes this process first, if memory is out; False if it has ended."""
    try:
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
    except OSError:
        return False
    return True


def _said(storm: Storm, command: Command, killed: int) -> None:
    """Exit codes are those of the page, and whoever lives says that it was memory."""
    storm.numbers["killed_by_the_kernel"] += killed
    storm.numbers["memory_refused"] += command.code == 2
    if command.code in (0, -signal.SIGKILL):
        return
    said = command.said()
    if command.code not in (1, 2):
        storm.problems.append(f"exit {command.code}: {said[-600:]}")
    elif not any(word in said for word in _WORDS):
        storm.problems.append(f"exit {command.code} after {killed} kills for memory, not named: {said[-600:]}")


def _goes_on(storm: Storm, setup: Setup, command: Command) -> None:
    run_dir = storm.folder / "run"
    if command.code != 0:
        begun = (run_dir / "job.json").exists()
        if run_dir.exists() and not begun:
            run_dir.rename(run_dir.with_name(f"empty-{time.monotonic_ns()}"))
        again = ["resume", "run"] if begun else ["run", *setup.overrides, "tracker=none", "hydra.run.dir=run"]
        if storm.run(*again).code != 0:
            storm.problems.append(f"does not go on with enough memory: {storm.commands[-1].said()[-600:]}")
            return
    storm.expect_quiet(DELIVERY_S)
    storm.compare(run_dir, setup)
    storm.expect_quiet(RANKS_S)
