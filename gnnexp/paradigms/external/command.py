"""A system that is not gnnexp's: a command trains, and reports its epochs as JSON lines (docs/howto/external.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gnnexp.components.facts import GraphFacts
from gnnexp.components.plan import Drawn, Plan, Sizes
from gnnexp.components.signature import unknown
from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment, Method
from gnnexp.files.regular import is_file, is_folder
from gnnexp.paradigms.checks import uncountable_problems
from gnnexp.paradigms.external.files import files_of, program

# Groups that a command may obey. The data is handed on, so every command uses it.
GROUPS = ("feature_store", "model", "optimizer", "partitioner", "sampler", "scheduler", "seed", "task", "train")


@dataclass(frozen=True)
class Command(Method):
    """A command of the user trains. gnnexp prepares the data, starts and watches the command, and records its reports.

    Attributes:
        command: program and arguments, without a shell. `python` is the interpreter that runs gnnexp.
        processes: `rank` starts the command once for each rank, with torchrun's variables. `run` starts it once, and
            the command starts its own processes.
        partition: whether the command needs a partition, with one part for each rank.
        files: further files and folders of the system. An edit of any of them makes a new run.
        uses: groups of the configuration that the command obeys. Its author says so, and gnnexp does not check it.
        resumes: whether the command continues a stopped run from its own checkpoints. If not, it starts from its
            beginning.
        silent_s: seconds without a report and without output after which the command hangs; null =
            `hardware.timeout_s`.
    """

    takes_vertex_cut = True

    command: tuple[str | int | float, ...] = ()
    processes: Literal["rank", "run"] = "rank"
    partition: bool = False
    files: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    resumes: bool = False
    silent_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("command", "files", "uses"):  # a configuration has lists
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @property
    def words(self) -> tuple[str, ...]:
        """Program and arguments as texts."""
        return tuple(map(str, self.command))

    @property
    def approximates(self) -> str:
        """The label of the runs in reports."""
        says = f" (its author says that it uses {', '.join(sorted(self.uses))})" if self.uses else ""
        return f"external system: not checked by gnnexp{says}"

    @property
    def restart(self) -> str:
        """Where a resumed run starts, for the user."""
        if self.resumes:
            return "where its command continues (paradigm.resumes=true)"
        return "the beginning of its command (paradigm.resumes=false); epochs that are recorded keep their records"

    def wants_partition(self, experiment: Experiment) -> bool:
        """Whether the command asks for a partition."""
        return self.partition

    def check(self, experiment: Experiment) -> list[Problem]:
        """Conflicts: a command that cannot be started, missing files, and options that act on gnnexp's ranks only."""
        hardware, silent = experiment.hardware, self.silent_s
        problems = [
            *self._command_problems(),
            *uncountable_problems(experiment, "an external command counts for itself"),
            *(
                unknown("paradigm.uses", group, group, GROUPS, "paradigm.uses=")
                for group in self.uses
                if group not in GROUPS
            ),
        ]
        if silent is not None and not 0 < silent < math.inf:
            problems.append(
                Problem("paradigm.silent_s", silent, "must be positive and finite, or null", "paradigm.silent_s=null")
            )
        if hardware.throttle is not None:
            problems.append(
                Problem(
                    "hardware.throttle",
                    hardware.throttle,
                    "slows down exchanges of gnnexp's ranks, and an external command makes its own",
                    "set hardware.throttle=null",
                )
            )
        if hardware.throttle_h2d is not None:
            problems.append(
                Problem(
                    "hardware.throttle_h2d",
                    hardware.throttle_h2d,
                    "slows down what gnnexp's ranks copy to the device tier, and an external command copies its own",
                    "set hardware.throttle_h2d=null",
                )
            )
        if experiment.trace is not None:
            problems.append(
                Problem(
                    "trace", experiment.trace, "traces gnnexp's ranks, and not an external command", "set trace=null"
                )
            )
        if self.processes == "run" and hardware.nodes > 1:
            problems.append(
                Problem(
                    "paradigm.processes",
                    "run",
                    f"starts one command on one machine, but hardware.nodes={hardware.nodes}",
                    "set paradigm.processes=rank",
                )
            )
        return problems

    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        """The plan: a partition if the command asks for one. The memory of the command is not known."""
        return Plan(
            self.ranks_together(experiment) if self.partition else None,
            Drawn(0, 0, 0, 0),
            approximates=self.approximates,
        )

    def own_files(self) -> list[Path]:
        """The files of the command (`files_of`)."""
        return files_of(self.words, self.files)

    def _command_problems(self) -> list[Problem]:
        words = self.words
        if not words or not all(words):
            return [
                Problem(
                    "paradigm.command",
                    list(self.command),
                    "must be a program and its arguments",
                    "paradigm.command=[python,train.py]",
                )
            ]
        problems = []
        if program(words[0]) is None:
            fix = (
                "write the program and each argument as one item: paradigm.command=[python,train.py]"
                if " " in words[0]
                else f"install {words[0]}, or give the path of a program"
            )
            problems.append(
                Problem("paradigm.command", words[0], f"no such program is on the PATH or below {Path.cwd()}", fix)
            )
        problems += [
            Problem("paradigm.command", word, f"no such file below {Path.cwd()}", "give the path of the script")
            for word in words[1:]
            if word.endswith((".py", ".sh")) and not is_file(Path(word))
        ]
        return problems + [
            Problem("paradigm.files", name, "no such file or folder", "give files of the system, or leave it out")
            for name in self.files
            if not is_file(Path(name)) and not is_folder(Path(name))
        ]


def external_command(experiment: Experiment) -> Command | None:
    """The command that trains instead of gnnexp (`paradigm=external`); None if gnnexp trains."""
    return experiment.paradigm if isinstance(experiment.paradigm, Command) else None


def program_files(experiment: Experiment) -> list[Path]:
    """Files outside of gnnexp that the run executes as programs. Their content identifies it."""
    command = external_command(experiment)
    return [] if command is None else command.own_files()
