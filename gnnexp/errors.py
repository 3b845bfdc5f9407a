"""Errors for users. A problem names the key, the value, the allowed values and the fix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar


@dataclass(frozen=True)
class Problem:
    """One mistake of a user, with the information that is needed to fix it.

    Attributes:
        key: config key (`sampler.fanouts`) or file path.
        value: value that is wrong.
        allowed: allowed values.
        fix: what to type or do instead.
    """

    key: str
    value: object
    allowed: str
    fix: str

    def __str__(self) -> str:
        return f"{self.key}={self.value!r}: {self.allowed}\n    fix: {self.fix}"


@dataclass(frozen=True)
class Refusal:
    """Why something cannot be. A function that returns `Refusal | None` returns None if it can be.

    Attributes:
        reason: the reason in words, as a part of a sentence.
    """

    reason: str

    def __str__(self) -> str:
        return self.reason


class GnnexpError(Exception):
    """Base class of all errors for users; the command line returns `exit_code`."""

    exit_code = 1


class ProblemsError(GnnexpError):
    """Problems that were found before work started, reported together (exit code 2)."""

    exit_code = 2
    kind = "problem"

    def __init__(self, problems: Sequence[Problem] | Problem) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        assert self.problems, "an error without a problem is our bug"
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def raise_all(cls, problems: Sequence[Problem]) -> None:
        """Raise one error with all `problems` if there are any."""
        if problems:
            raise cls(problems)

    def __reduce__(self) -> tuple[type[ProblemsError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


class ConfigError(ProblemsError):
    """The configuration cannot be run."""

    kind = "configuration problem"


class DataError(ProblemsError):
    """A file or a dataset cannot be used."""

    kind = "data problem"


def unique(problems: Iterable[Problem]) -> list[Problem]:
    """`problems` in the same order, without repetitions."""
    kept: list[Problem] = []
    for problem in problems:
        if problem not in kept:
            kept.append(problem)
    return kept


class RunError(GnnexpError):
    """A started run failed; the message names the rank and the cause (exit code 1)."""


class DivergedError(RunError):
    """The loss is not finite: the same run would fail again."""


class UncountableError(RunError):
    """A count depends on values that a counting run does not compute."""


class CommandError(RunError):
    """An external command failed."""


class HangError(RunError):
    """A part of the run gave no sign of life for too long."""


P = ParamSpec("P")
T = TypeVar("T")


class Findings:
    """Data problems of several steps, collected so that they are raised together.

    Attributes:
        problems: problems found so far.
    """

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def attempt(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """What `step` returns for these arguments, or None if it found problems."""
        try:
            return step(*args, **kwargs)
        except DataError as error:
            self.problems += error.problems
            return None

    def raise_all(self) -> None:
        """Raise the collected problems, if there are any.

        Raises:
            DataError: at least one step found problems; it contains all of them.
        """
        if self.problems:
            raise DataError(unique(self.problems))
