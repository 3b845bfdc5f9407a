"""What is wrong with a user's files, gathered over several steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from gnnexp.errors import DataError, Problem, unique

P = ParamSpec("P")
T = TypeVar("T")


class Findings:
    """Data problems of several steps, gathered so that they are raised together.

    Attributes:
        problems: those found so far.
    """

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def attempt(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """What `step` returns for these arguments, or None when it found problems."""
        try:
            return step(*args, **kwargs)
        except DataError as error:
            self.problems += error.problems
            return None

    def raise_all(self) -> None:
        """Raise what was found, if anything was.

        Raises:
            DataError: with all problems.
        """
        if self.problems:
            raise DataError(unique(self.problems))
