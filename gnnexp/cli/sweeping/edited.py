"""A sweep's file that is edited while it runs: new cases are added, removed ones are named, finished ones stay."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gnnexp.cli.main import print_problems
from gnnexp.cli.running.prepare import CheckedConfig
from gnnexp.cli.sweeping.case import CaseState, QueuedCase
from gnnexp.cli.sweeping.definition import Case, Sweep
from gnnexp.cli.sweeping.known_runs import planned
from gnnexp.cli.sweeping.queue import Queue
from gnnexp.errors import ProblemsError

# At most this many cases are named.
_MOST_NAMED = 5


class FollowedFile:
    """Called between two cases: brings what was edited into the queue.

    Args:
        file: the sweep's file.
        cases: its cases, as the queue has them: the first case has position 0.
        read: reads the file again, with the overrides of the command.
        check: the configurations of all cases of a sweep; a mistake in the file leaves the queue as it is.
    """

    def __init__(
        self,
        file: Path,
        cases: Sequence[Case],
        read: Callable[[], Sweep],
        check: Callable[[Sweep], list[CheckedConfig]],
    ) -> None:
        self._file, self._read, self._check = file, read, check
        self._positions = {case.overrides: position for position, case in enumerate(cases)}
        self._digest = self._now()

    def __call__(self, queue: Queue) -> None:
        """Look at the file, and follow it if it has changed."""
        if (digest := self._now()) in ("", self._digest):  # an editor may have it for a moment
            return
        self._digest = digest
        try:
            sweep = self._read()
            new = [case for case in sweep.cases if case.overrides not in self._positions]
            checked = self._check(replace(sweep, cases=tuple(new)))
        except ProblemsError as error:
            print_problems(error)
            queue.console.print(f"{self._file} was edited and has mistakes: the sweep goes on as planned")
            return
        self._remove(queue, sweep)
        self._add(queue, new, checked)
        queue.sweep = replace(queue.sweep, description=sweep.description, report=sweep.report, cases=sweep.cases)

    def _now(self) -> str:
        """Digest of the file; empty if it cannot be read."""
        try:
            return hashlib.sha256(self._file.read_bytes()).hexdigest()
        except OSError:
            return ""

    def _add(self, queue: Queue, new: Sequence[Case], checked: Sequence[CheckedConfig]) -> None:
        sweep = queue.sweep
        cases = [
            QueuedCase(sweep.name, sweep.command, config, CaseState(case.label))
            for case, config in zip(new, checked, strict=True)
        ]
        for case, queued in zip(new, planned(cases, queue.reuse), strict=True):
            self._positions[case.overrides] = queue.append(queued)
        if new:
            queue.console.print(f"{self._file} was edited, new: {_named([case.label for case in new])}", soft_wrap=True)

    def _remove(self, queue: Queue, sweep: Sweep) -> None:
        """Take away what waits and is no longer in the file; labels follow the file."""
        labels = {case.overrides: case.label for case in sweep.cases}
        waiting, stay = [], []
        for overrides, position in self._positions.items():
            state = queue.states[position]
            if overrides in labels:
                queue.states[position] = replace(state, label=labels[overrides])
            elif queue.remove(position):
                waiting.append(state.label)
            elif state.status != "removed":
                stay.append(state.label)
        if waiting:
            queue.console.print(f"{self._file} was edited, removed: {_named(waiting)}", soft_wrap=True)
        if stay:
            queue.console.print(f"no longer in {self._file}, but run here already: {_named(stay)}", soft_wrap=True)


def _named(labels: Sequence[str]) -> str:
    more = len(labels) - _MOST_NAMED
    return ", ".join(labels if more <= 0 else (*labels[:_MOST_NAMED], f"{more} more"))
