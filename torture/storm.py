"""One storm: a folder, a seed, gnnexp's commands in it, and what is counted and found wrong.

Every campaign is a function of a `Storm`. A storm runs in a process of its own, which adopts all orphans below it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from torture import checks
from torture.counts import Counts, Failure
from torture.processes import family
from torture.processes.warm import Surroundings, start_command
from torture.setups import Setup

POLL_S = 0.01
# How long a command of some seconds may take on a busy machine before it hangs.
PATIENCE_S = 240.0
# How long ranks may outlive a killed launcher, and a delivery its run (at the lowest priority).
RANKS_S, DELIVERY_S = 15.0, 60.0
STORE = "mlflow.db"


class HangError(Exception):
    """A command did not end in time."""


@dataclass
class Command:
    """A running `gnnexp …`.

    Attributes:
        pid: of its process.
        name: its arguments, shortened.
        log: what it says.
        code: how it ended, None while it runs; -n if signal n ended it.
    """

    pid: int
    name: str
    log: Path
    started: float = field(default_factory=time.monotonic)
    code: int | None = None

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code

    def wait(self, seconds: float = PATIENCE_S) -> int:
        """The exit code.

        Raises:
            HangError: it runs longer; it is killed then.
        """
        end = time.monotonic() + seconds
        while self.poll() is None:
            if time.monotonic() > end:
                living = "; ".join(map(family.describe, family.family()))
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                self.code = -signal.SIGKILL
                raise HangError(
                    f"`gnnexp {self.name}` lives {seconds:.0f} s on; alive: {living}; it said: …{self.said()[-600:]}"
                )
            time.sleep(POLL_S)
        assert self.code is not None
        return self.code

    def said(self) -> str:
        """Both streams so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""


@dataclass
class Storm:
    """What a campaign works with.

    Attributes:
        campaign: its name.
        seed: of all that is drawn.
        folder: of this storm alone; the working folder of its commands.
        shared: of all storms of a session: cache, undisturbed runs, an empty MLflow store.
        numbers: what was done and seen.
        problems: what was found wrong.
        history: what was done, in words, for whoever reads a problem.
    """

    campaign: str
    seed: int
    folder: Path
    shared: Path
    numbers: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)

    def __post_init__(self) -> None:
        """The seed decides everything, whether processes are forks (19 of 20 storms) or interpreters too."""
        self.random = Random(f"{self.campaign} {self.seed}")
        self.warm = self.random.random() < 0.95

    # --- commands ----------------------------------------------------------------------------------------------------
    def start(
        self,
        *arguments: str,
        spare: int = 3,
        cache: Path | None = None,
        folder: Path | None = None,
        group: Path | None = None,
        user: int | None = None,
    ) -> Command:
        """Start a command; its working folder is the storm's, its cache that of all storms, or others.

        It may be in a control group, and have the rights of another user (then it is always a fork).
        """
        log = self.folder / f"{len(self.commands):03d}-{arguments[0]}.log"
        environment = self.environment() | ({} if cache is None else {"GNNEXP_CACHE": str(cache)})
        warm = self.warm or user is not None
        around = Surroundings(folder or self.folder, environment, log, warm, spare, group, user)
        command = Command(start_command(arguments, around), " ".join(arguments)[:80], log)
        self.commands.append(command)
        return command

    def run(self, *arguments: str, seconds: float = PATIENCE_S) -> Command:
        """Run a command to its end."""
        command = self.start(*arguments)
        self.done(command, seconds)
        return command

    def done(self, command: Command, seconds: float = PATIENCE_S) -> int:
        """Wait for the end of a command, and look at what it said."""
        code = command.wait(seconds)
        self.history.append(f"gnnexp {command.name.split()[0]}: {code}")
        self.problems += checks.said_problems(command.said(), command.name)
        return code

    def environment(self) -> dict[str, str]:
        """Of every command: prepared data is shared, the tracker's store is the storm's own."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "GNNEXP_CACHE"))}
        return kept | {
            "GNNEXP_CACHE": str(self.shared / "cache"),
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MPLCONFIGDIR": str(self.shared / "matplotlib"),
        }

    def put_store(self) -> None:
        """An MLflow store without runs: making one takes MLflow seconds."""
        shutil.copy(self.shared / STORE, self.folder / STORE)

    def carry_out_one(self, kinds: Mapping[str, Callable[[Storm], None]]) -> None:
        """One of the campaign's kinds, drawn and counted; nobody may be left after it."""
        kind = self.random.choice(sorted(kinds))
        self.history.append(kind)
        self.numbers[f"{self.campaign}_{kind}"] += 1
        self.put_store()
        kinds[kind](self)
        self.expect_quiet(RANKS_S)

    # --- undisturbed runs --------------------------------------------------------------------------------------------
    def undisturbed(self, setup: Setup) -> Path:
        """The run directory of the same configuration that nobody disturbed; made when it is first asked for.

        Raises:
            RuntimeError: it cannot be made.
        """
        place = self.shared / "undisturbed"
        place.mkdir(exist_ok=True)
        with (place / f"{setup.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (place / setup.name / "result.json").exists():
                shutil.rmtree(place / setup.name, ignore_errors=True)
                command = self.start("run", *setup.overrides, "tracker=none", f"hydra.run.dir={place / setup.name}")
                if command.wait(300) != 0:
                    raise RuntimeError(f"the undisturbed run {setup.name} fails: {command.said()[-2000:]}")
                self.numbers["undisturbed_runs"] += 1
        return place / setup.name

    # --- disturbing --------------------------------------------------------------------------------------------------
    def until(self, holds: Callable[[], bool], command: Command, seconds: float) -> bool:
        """Wait until it holds; False if the command has ended before, or it takes longer."""
        end = time.monotonic() + seconds
        while not holds():
            if command.poll() is not None or time.monotonic() > end:
                return False
            time.sleep(POLL_S)
        return command.poll() is None

    def members(self, who: family.Role, command: Command) -> list[family.Member]:
        """Those of the command's processes that have this role; itself, if it is a `command`."""
        if who == "command":
            return [family.Member(command.pid, os.getpid(), "command")] if command.poll() is None else []
        return family.of_role(who)

    def send(self, number: signal.Signals, who: family.Role, command: Command) -> bool:
        """Send a signal to one of this role; False if there is none."""
        found = self.members(who, command)
        if not found:
            return False
        with suppress(ProcessLookupError):
            os.kill(self.random.choice(found).pid, number)
            self.history.append(f"{number.name} {who} at {time.monotonic() - command.started:.2f} s")
            if number == signal.SIGKILL:
                self.numbers["kills"] += 1
                self.numbers[f"kills_{who}"] += 1
            return True
        return False

    # --- checking ----------------------------------------------------------------------------------------------------
    def expect_quiet(
        self,
        seconds: float,
        roles: Sequence[family.Role] | None = None,
        but: Sequence[int] = (),
    ) -> None:
        """Nobody may be left of the commands that have ended (or nobody of these roles), `but` the storm's own."""
        pids = (*but, *(command.pid for command in self.commands if command.code is None))
        left = family.left_after(seconds, pids, None if roles is None else frozenset(roles))
        left = [member for member in left if member.pid not in pids]
        if left:
            self.numbers["orphans"] += len(left)
            self.problems += checks.orphan_problems(map(family.describe, left), seconds)

    def delivered(self, run_dir: Path) -> bool:
        """Whether the run's own book says that the store has everything."""
        file = run_dir / "delivery.json"
        return file.exists() and bool(json.loads(file.read_text())["done"])

    def compare(self, run_dir: Path, setup: Setup) -> None:
        """A finished run with its undisturbed one, bit by bit; after `check_store`, whose delivery tidies up."""
        self.numbers["runs_compared"] += 1
        self.problems += checks.run_problems(run_dir, self.undisturbed(setup), setup.epochs)

    def finished_without_a_checkpoint(self, run_dir: Path, setup: Setup) -> None:
        """A disk that was full did not take its last one: a command has said so, and the curve is right."""
        self.numbers["finished_without_a_checkpoint"] += 1
        if not any("no checkpoint of the last epoch" in command.said() for command in self.commands):
            self.problems.append("finished without its last checkpoint, and no command says so")
        self.problems += checks.curve_problems(run_dir, self.undisturbed(setup), setup.epochs)

    def check_store(self, run_dirs: Sequence[Path]) -> None:
        """What the store has of them, each once; `report --sync` first, where a killed delivery has left something."""
        if not all(map(self.delivered, run_dirs)):
            self.numbers["syncs"] += 1
            command = self.run("report", "--sync", *map(str, run_dirs))
            if command.code != 0:
                self.problems.append(f"report --sync: exit {command.code}: {command.said()[-500:]}")
        self.problems += checks.store_problems(self.folder / STORE, run_dirs)

    def counts(self) -> Counts:
        """Numbers, and one failure with all that was wrong."""
        how = f"python -m torture {self.campaign} --seed {self.seed}"
        if not self.problems:
            return Counts(dict(self.numbers))
        what = " | ".join([*self.problems, f"history: {', '.join(self.history)}"])
        return Counts(dict(self.numbers), (Failure(self.campaign, what, self.seed, how),))
