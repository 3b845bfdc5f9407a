"""The queue of a sweep's cases: take the next one, skip it, resume it or start it, and record how it ended.

Several sweeps may work in one folder at once, and may share cases. Each case is run only once: a sweep holds the case's
lock while it runs the case, and first looks for an existing run.
"""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from rich.console import Console

from gnnexp.cli.console import marked
from gnnexp.cli.running.execute import complete
from gnnexp.cli.sweeping.case import CaseState, QueuedCase, failed, run_case
from gnnexp.cli.sweeping.definition import Sweep
from gnnexp.cli.sweeping.known_runs import ReuseRules, fails_again, key_now, known_runs, state_of
from gnnexp.cli.sweeping.pace import Pace
from gnnexp.cli.sweeping.processes import STATES, at_work, processes_of
from gnnexp.errors import DataError, ProblemsError
from gnnexp.files.disk import DiskError, file_lock, in_words, refusal, remove_temporary, shortened, try_lock
from gnnexp.launchers.base import Launchers
from gnnexp.launchers.queue.slurm_jobs import read_job_id
from gnnexp.record.records import write_json
from gnnexp.record.runs import read_run
from gnnexp.trackers.follow import Followers
from gnnexp.trackers.patience import Patience

_POLL_S = 0.5  # seconds between looks at cases of other launchers
_PATIENCE_S = 10.0  # seconds to wait for a lock that is held for milliseconds


class Executor(ABC):
    """A way to run cases; it is entered once for a queue.

    Attributes:
        running: positions of the cases that were started and have not ended.
        waits: whether it waits for the end of each case, so that those that have ended say how long the rest takes.
        slots: how many cases it runs at a time.
    """

    running: Collection[int] = ()
    waits: ClassVar[bool] = True
    slots: int = 1

    @abstractmethod
    def takes(self) -> bool:
        """Whether another case may be started now."""

    @abstractmethod
    def start(self, position: int, case: QueuedCase) -> CaseState:
        """Start a case, and return its state, which may be that it has ended."""

    def ended(self) -> dict[int, CaseState]:
        """Wait for a moment. Return the states of cases that have ended or were submitted, by position."""
        return {}

    def stop(self) -> dict[int, CaseState]:
        """Return the states of running cases after Ctrl-C; empty if Ctrl-C should end the command."""
        return {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:  # noqa: B027  most executors keep nothing
        """End the processes that are kept between cases."""


class OneByOne(Executor):
    """Runs cases in this process: `start` returns when the case has ended. After an interrupted case no other starts.

    Args:
        launchers: launchers of all cases.
        console: where progress is shown.
    """

    def __init__(self, launchers: Launchers, console: Console) -> None:
        self._launchers, self._console, self._interrupted = launchers, console, False
        self._followers = Followers()

    def __exit__(self, *error: object) -> None:
        """End the process that delivers the runs."""
        self._followers.close()

    def takes(self) -> bool:
        """See `Executor.takes`."""
        return not self._interrupted

    def start(self, position: int, case: QueuedCase) -> CaseState:
        """See `Executor.start`."""
        state = run_case(case, self._console, self._launchers, self._followers)
        self._interrupted = state.status == "interrupted"
        return state


@dataclass
class Queue:
    """The cases of a sweep, in the order in which they are taken.

    Attributes:
        sweep: the sweep of the cases.
        reuse: which existing runs count.
        console: where progress is shown.
        states: states of all cases.
        cases: cases by position, as they were planned. One that could not be composed is not here, and has failed.
        to_come: how many cases will be added later, at most.
        refused: how many cases have mistakes, which were found before any started.
        retries: how often a case that failed is tried again, unless it would fail in the same way.
        follow: called between two cases; it may append cases, and remove those that wait.
    """

    sweep: Sweep
    reuse: ReuseRules
    console: Console
    states: list[CaseState] = field(default_factory=list)
    cases: dict[int, QueuedCase] = field(default_factory=dict)
    to_come: int = 0
    refused: int = 0
    retries: int = 0
    follow: Callable[[Queue], None] | None = None
    _turns: dict[int, ExitStack] = field(default_factory=dict)
    _again: set[int] = field(default_factory=set)
    _left: deque[int] = field(default_factory=deque)
    _began: dict[int, float] = field(default_factory=dict)

    def case(self, position: int) -> QueuedCase:
        """The case at a position, with its present state."""
        return replace(self.cases[position], state=self.states[position])

    def add(self, case: QueuedCase) -> None:
        """Put a case at the end of the queue."""
        self.cases[len(self.states)] = case
        self.states.append(case.state)

    def append(self, case: QueuedCase) -> int:
        """Put a case at the end of a queue that is being worked on. Returns its position."""
        position = len(self.states)
        self.add(case)
        if case.state.status == "waiting":
            self._left.append(position)
        return position

    def remove(self, position: int) -> bool:
        """Take a case away if it still waits for its turn."""
        if position not in self._left:
            return False
        self._left.remove(position)
        self.states[position] = replace(self.states[position], status="removed", reason="no longer in the sweep's file")
        return True

    def work(self, executor: Executor, first: int = 0) -> None:
        """Run the waiting cases from the position `first` on; one that fails does not stop the others."""
        save_states(self.sweep, self.states)  # if this cannot be written, no case is started
        with at_work(self.sweep.name):
            self._work(executor, first)

    def _work(self, executor: Executor, first: int) -> None:
        new, patience = [position for position in self.cases if position >= first], Patience()
        for position in new:
            if self.states[position].status == "finished before":  # an earlier call may have been killed before
                complete(Path(self.states[position].run_dir), self.case(position).experiment.tracker, patience)
        self._left = deque(position for position in new if self.states[position].status == "waiting")
        try:
            with executor:
                self._drain(executor)
                while executor.waits and executor.takes() and self._wait_for_others(new):
                    self._drain(executor)
        finally:
            for turn in self._turns.values():
                turn.close()
        for position in new:  # cases that ran elsewhere may have finished in the meantime
            if (state := self.states[position]).status == "running elsewhere":
                now = look_again(self.case(position), self.reuse)
                self.states[position] = now if now.status == "finished before" else replace(state, run_dir=now.run_dir)
        keep_states(self.sweep, self.states)

    def _drain(self, executor: Executor) -> None:
        """Take the cases that are left, in order, and wait for all that run."""
        while executor.running or (self._left and executor.takes()):
            if self._left and executor.takes():
                self._take(self._left.popleft(), executor)
            else:
                self._listen(executor)
            if self.follow is not None and executor.takes():
                self.follow(self)

    def _wait_for_others(self, positions: Sequence[int]) -> bool:
        """Wait for cases that other launchers of this sweep run. True if one of them was left: it is taken over.

        A launcher that was killed holds its case no more. A case of another sweep is not waited for.
        """
        elsewhere = [position for position in positions if self.states[position].status == "running elsewhere"]
        while elsewhere:
            for position in [place for place in elsewhere if not _is_held(self.states[place].key)]:
                elsewhere.remove(position)
                now = look_again(self.case(position), self.reuse)
                if now.status == "finished before":
                    self.states[position] = replace(now, attempts=self.states[position].attempts)
                elif now.status == "waiting" and position not in self._again:
                    self._again.add(position)
                    self._left.append(position)
            if self._left:
                return True
            if elsewhere and len(processes_of(self.sweep.name)) < 2:
                return False
            if elsewhere:
                time.sleep(_POLL_S)
        return False

    def _take(self, position: int, executor: Executor) -> None:
        """Take the turn of a case: skip it, or let the executor resume or start it."""
        turn = self._turns[position] = ExitStack()
        try:
            with in_words():
                state = turn.enter_context(turn_of(self.case(position), self.reuse))
        except DiskError as error:
            state = failed(self.case(position), error)
        if state.status == "waiting":
            pace = self._pace(executor, position) if executor.waits else ""
            words, most = f" {state.label}" + f"  ({pace})" * bool(pace), len(self.states) + self.to_come
            self.console.print(marked(f"\n{position + 1}/{most}", "bold", words), soft_wrap=True)
            self._began[position] = time.monotonic()
            state = executor.start(position, replace(self.case(position), state=state))
        self._note(position, state)

    def _pace(self, executor: Executor, position: int) -> str:
        """How long the rest takes, with the case at `position`, in words."""
        ended = [(state.kind, state.seconds) for state in self.states if state.seconds]
        launchers = max(1, len(processes_of(self.sweep.name)))
        kinds = [self.states[one].kind for one in (position, *self._left)] + [""] * self.to_come
        now = time.monotonic()
        running = [(self.states[one].kind, now - self._began[one]) for one in executor.running]
        return Pace(ended, executor.slots * launchers).words(kinds, running)

    def _listen(self, executor: Executor) -> None:
        try:
            ended = executor.ended()
        except KeyboardInterrupt:
            if not (ended := executor.stop()):
                raise
        for position, state in ended.items():
            self._note(position, state)

    def _note(self, position: int, state: CaseState) -> None:
        """Record the state of a case. Its turn is over when it has ended, or when the job that works on it is known."""
        before = self.states[position]
        if state.status in ("finished", "failed") and position in self._began:
            state = replace(state, seconds=time.monotonic() - self._began.pop(position))
        self.states[position] = state = replace(state, kind=before.kind, attempts=before.attempts)
        if state.status != "waiting":
            self._turns.pop(position, ExitStack()).close()
            self.console.print(f"{state.status}: {state.label}  {state.reason or state.run_dir}", soft_wrap=True)
            if self._is_tried_again(state):
                self.states[position] = replace(state, attempts=(*state.attempts, state.reason))
                self._left.append(position)
                count = f"attempt {len(state.attempts) + 2} of {self.retries + 1}"
                self.console.print(f"tried again after the others: {state.label}, {count}", soft_wrap=True)
            keep_states(self.sweep, self.states)

    def _is_tried_again(self, state: CaseState) -> bool:
        """Whether a case has failed, has attempts left, and would not fail in the same way."""
        if state.status != "failed" or len(state.attempts) >= self.retries or not state.run_dir:
            return False
        with suppress(DataError):  # it has no result
            return not fails_again(read_run(Path(state.run_dir)))
        return True


@contextmanager
def turn_of(case: QueuedCase, reuse: ReuseRules) -> Iterator[CaseState]:
    """The present state of a case. If it is `waiting`, no other process starts it inside of this context.

    A sweep plans at its beginning. Runs that other sweeps of this folder have made of the case since then count. If the
    code of a case was edited since then, it is not the planned case: one table would mix two codes.
    """
    with _locked(STATES / ".cases" / f"{case.state.key}.lock") as mine:
        now = look_again(case, reuse)
        if now.status == "waiting" and not mine:
            now = replace(now, status="running elsewhere", reason="another sweep is running this case")
        elif now.status == "waiting" and not _is_as_planned(case):
            what = "code or its stored partition" if case.experiment.partitioner.reads_file else "code"
            now = replace(
                now,
                status="failed",
                run_dir="",
                reason=f"its {what} was edited since the sweep began: start the sweep again",
            )
        yield now


def _is_held(key: str) -> bool:
    """Whether a process holds the case with this key."""
    with _locked(STATES / ".cases" / f"{key}.lock") as mine:
        return not mine


def look_again(case: QueuedCase, reuse: ReuseRules) -> CaseState:
    """The state of a case by the files that exist now."""
    return state_of(case, known_runs({case.state.key}, reuse).get(case.state.key, []), reuse)


def _is_as_planned(case: QueuedCase) -> bool:
    """Whether neither the code of a case nor its stored partition was edited since the sweep was planned."""
    with suppress(ProblemsError):  # a file is missing
        return key_now(case, case.state.dataset_key) == case.state.key
    return False


@contextmanager
def _locked(file: Path) -> Iterator[bool]:
    """Whether this process got the lock `file`, which is removed at the end. If the process dies, the lock is free."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = try_lock(file)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            file.unlink()
            os.close(handle)


def begun_jobs(cases: Sequence[QueuedCase]) -> list[str]:
    """The SLURM jobs of runs that an earlier call began, so that SLURM is asked about all of them at once."""
    found = []
    for state in (case.state for case in cases):
        if state.status == "waiting" and state.run_dir:
            with suppress(DataError):  # a damaged note, which `made_ready` reports later
                job_id = read_job_id(Path(state.run_dir))
                found += [] if job_id is None else [job_id]
    return found


def save_states(sweep: Sweep, states: Sequence[CaseState]) -> None:
    """Write the state file that `gnnexp report NAME` reads, and remove unfinished files of killed processes.

    One process does this at a time. If a process holds the lock for too long, it is frozen. Then the state is written
    without the lock, and nothing is removed.
    """
    locks, file = STATES / ".cases", STATES / f"{sweep.name}.json"
    locks.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        with suppress(TimeoutError):
            held.enter_context(file_lock(locks / f"{shortened(sweep.name)}.states", _PATIENCE_S))
            remove_temporary(file)
        write_json(file, state_content(sweep, states))


def state_content(sweep: Sweep, states: Sequence[CaseState]) -> dict[str, Any]:
    """The content of a state file, for `gnnexp.record.records.read_state`."""
    return {
        "schema": 1,
        "name": sweep.name,
        "description": sweep.description,
        "command": sweep.command,
        "report": dict(sweep.report),
        "notes": list(sweep.notes),
        "cases": [asdict(state) for state in states],
        **({"looks": sweep.looks} if sweep.looks else {}),
    }


def keep_states(sweep: Sweep, states: Sequence[CaseState]) -> None:
    """The same as `save_states`, but a full disk does not end the sweep: the next call saves all states again."""
    try:
        save_states(sweep, states)
    except OSError as error:
        if (problem := refusal(error, sweep.command)) is None:
            raise
        print(f"gnnexp: {problem}", file=sys.stderr)
