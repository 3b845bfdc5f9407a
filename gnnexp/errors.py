"""What can go wrong for a user, and how it is said: key, value, what is allowed, and the fix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One mistake of a user, with all that is needed to fix it.

    Attributes:
        key: config key (`sampler.fanouts`) or file path that is wrong.
        value: what was found there.
        allowed: what would have been right.
        fix: what to type or do instead.
    """

    key: str
    value: object
    allowed: str
    fix: str

    def __str__(self) -> str:
        return f"{self.key}={self.value!r}: {self.allowed}\n    fix: {self.fix}"


class GnnexpError(Exception):
    """Base of every error that is meant for a user; `exit_code` is what the command line returns."""

    exit_code = 1


class ProblemsError(GnnexpError):
    """Several problems found before any work started, reported together (exit code 2)."""

    exit_code = 2
    kind = "problem"

    def __init__(self, problems: Sequence[Problem] | Problem) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        assert self.problems, "an error without a problem is our bug"
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def raise_all(cls, problems: Sequence[Problem]) -> None:
        """Raise one error of all problems, if there are any."""
        if problems:
            raise cls(problems)

    def __reduce__(self) -> tuple[type[ProblemsError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


class ConfigError(ProblemsError):
    """The configuration cannot be run as it is."""

    kind = "configuration problem"


class DataError(ProblemsError):
    """A file or a dataset cannot be used as it is."""

    kind = "data problem"


def unique(problems: Iterable[Problem]) -> list[Problem]:
    """`problems` in their order, each once."""
    kept: list[Problem] = []
    for problem in problems:
        if problem not in kept:
            kept.append(problem)
    return kept


class RunError(GnnexpError):
    """A run was started and failed; the message names the rank and the cause (exit code 1)."""


class DivergedError(RunError):
    """The loss is not finite: the same run would end so again."""
