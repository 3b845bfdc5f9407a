"""Exclusive phase times of one rank's epoch: every instant belongs to one phase, or is reported as unaccounted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Literal, NamedTuple, get_args

from gnnexp.measure.activity import Activity

# "negatives", "decode" (both ways) and "loss" are what a task does beside the GNN (NeutronTP, Table 4).
Phase = Literal["sample", "negatives", "load", "forward", "decode", "loss", "backward", "sync", "update", "wait"]
PHASES: tuple[Phase, ...] = get_args(Phase)
FORWARD_BACKWARD: tuple[Phase, ...] = ("forward", "decode", "loss", "backward")  # the task's part included
# Host memory to the device tier, back, and adding up on the host what came back.
Crossing = Literal["h2d", "d2h", "host_add"]


class Stretch(NamedTuple):
    """What another thread did from `start` to `end` (clock), phases exclusive; `comm` = time inside collectives."""

    what: Phase | Literal["comm"]
    start: float
    end: float


@dataclass(frozen=True)
class PhaseTimes:
    """One rank's times of one epoch, in seconds.

    Attributes:
        epoch_s: wall time.
        phases: exclusive time by phase, without those that the paradigm cannot tell from others (`Paradigm.untimed`);
            they and `unaccounted_s` add up to `epoch_s`.
        hidden: work done behind the phases by other threads, by phase, and the `comm` in it; never part of the sum.
        crossings: between the memories, wherever in the phases it was (on a GPU: beside them); never part of the sum.
    """

    epoch_s: float
    phases: dict[Phase, float]
    hidden: dict[Phase | Literal["comm"], float] = field(default_factory=dict)
    crossings: dict[Crossing, float] = field(default_factory=dict)

    @property
    def unaccounted_s(self) -> float:
        """Wall time outside every phase."""
        return self.epoch_s - sum(self.phases.values())

    def without(self, phases: Container[Phase]) -> PhaseTimes:
        """Times of a paradigm that never entered `phases`."""
        assert not any(self.phases[phase] for phase in self.phases if phase in phases), "it did"
        return replace(self, phases={phase: spent for phase, spent in self.phases.items() if phase not in phases})

    def joined(self, later: PhaseTimes) -> PhaseTimes:
        """Times of two pieces of an epoch together."""
        return PhaseTimes(
            self.epoch_s + later.epoch_s,
            {phase: self.phases.get(phase, 0.0) + later.phases.get(phase, 0.0)
             for phase in PHASES if phase in self.phases or phase in later.phases},
            {what: self.hidden.get(what, 0.0) + later.hidden.get(what, 0.0)
             for what in self.hidden.keys() | later.hidden.keys()},
            {what: self.crossings.get(what, 0.0) + later.crossings.get(what, 0.0)
             for what in self.crossings.keys() | later.crossings.keys()},
        )


class PhaseTimer:
    """Times nested phases exclusively: entering an inner phase stops the clock of the outer one.

    The thread that starts the epoch is the one that is timed. Another thread may enter phases inside `aside`, which
    records what it did and when; `settle` then tells what the training loop waited for from what was hidden behind it.

    Args:
        synchronize: called at every boundary, so that asynchronous device work is charged to the phase that issued it.
        clock: seconds, monotonic.

    Attributes:
        activity: what this rank is doing, for other threads.
    """

    def __init__(
        self,
        synchronize: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._synchronize, self._clock = synchronize, clock
        self._stack: list[Phase] = []
        self._others = threading.local()
        self._failed: tuple[Phase, BaseException | None] | None = None
        self._failed_aside: list[tuple[Phase, BaseException | None]] = []
        self.activity = Activity()
        self.start_epoch()

    def start_epoch(self) -> None:
        """Forget everything and start the epoch's wall clock."""
        self._totals: dict[Phase, float] = dict.fromkeys(PHASES, 0.0)
        self._hidden: dict[Phase | Literal["comm"], float] = {}
        self._crossings: dict[Crossing, float] = {}
        self._thread = threading.get_ident()
        self._boundary()
        self._started = self._mark = self._clock()

    def end_epoch(self) -> PhaseTimes:
        """Times since `start_epoch`."""
        assert not self._stack, f"epoch ended inside phase {self._stack}"
        self._boundary()
        return PhaseTimes(
            self._clock() - self._started, dict(self._totals), dict(self._hidden), dict(self._crossings)
        )

    def phase(self, name: Phase) -> _Span:
        """Context manager: what runs inside, inner phases excepted, is charged to `name`."""
        return _Span(self if threading.get_ident() == self._thread else self._record(), name)

    @contextmanager
    def aside(self) -> Iterator[list[Stretch]]:
        """Record what the calling thread, not the training loop's, does inside; phases may be entered there only."""
        record = _Record(self._clock, self._failed_aside)
        self._others.record = record
        try:
            yield record.stretches
        finally:
            del self._others.record

    def _record(self) -> _Record:
        """What the calling thread, not the training loop's, has recorded so far."""
        record: _Record | None = getattr(self._others, "record", None)
        assert record is not None, (
            f"thread {threading.current_thread().name} enters a phase outside of `aside`: exchanges, and backward "
            "passes with exchanges, belong to the training loop's thread")
        return record

    def note_collective(self, start: float, end: float) -> None:
        """Tell `settle` when a collective ran, if another thread than the training loop's ran it."""
        if threading.get_ident() != self._thread:
            self._record().stretches.append(Stretch("comm", start, end))

    def note_crossing(self, what: Crossing, seconds: float) -> None:
        """A stretch of the current phase that went into a crossing."""
        self._crossings[what] = self._crossings.get(what, 0.0) + seconds

    @property
    def current(self) -> Phase | None:
        """The innermost phase the training loop is in."""
        return self._stack[-1] if self._stack else None

    def move(self, source: Phase, target: Phase, seconds: float) -> None:
        """Charge `seconds` that were timed as `source` to `target` instead."""
        self._totals[source] -= seconds
        self._totals[target] += seconds

    def charge_wait(self, stretches: Sequence[Stretch], waiting: Phase, asked: float, got: float) -> None:
        """Account for a result of another thread that the training loop waited for from `asked` to `got`.

        What the thread did meanwhile was exposed: the wait, timed as `waiting`, is charged to those phases. All it did
        before was hidden.
        """
        for what, start, end in stretches:
            exposed = max(0.0, min(end, got) - max(start, asked))
            if what != "comm":
                self.move(waiting, what, exposed)
            self._hidden[what] = self._hidden.get(what, 0.0) + end - start - exposed

    @property
    def failed_in(self) -> Phase | None:
        """The innermost phase that the last error left, in the thread that raised it first."""
        return None if self._failed is None else self._failed[0]

    def _fail(self, name: Phase, error: BaseException | None) -> None:
        if self._failed is None or self._failed[1] is not error:
            aside = (found for found in self._failed_aside if found[1] is error)
            self._failed = next(aside, (name, error))

    def _boundary(self) -> None:
        if self._synchronize is not None:
            self._synchronize()

    def _enter(self, name: Phase) -> None:
        self._boundary()
        now = self._clock()
        if self._stack:
            self._totals[self._stack[-1]] += now - self._mark
        self._stack.append(name)
        self._mark = now
        self.activity.marks += 1

    def _exit(self) -> None:
        self._boundary()
        now = self._clock()
        self._totals[self._stack.pop()] += now - self._mark
        self._mark = now


class _Record:
    """The exclusive phases of another thread, each stretch with its place in time."""

    def __init__(self, clock: Callable[[], float], failed: list[tuple[Phase, BaseException | None]]) -> None:
        self.stretches: list[Stretch] = []
        self._failed = failed
        self._stack: list[Phase] = []
        self._clock = clock
        self._mark = 0.0

    def _fail(self, name: Phase, error: BaseException | None) -> None:
        """For the training loop, which raises it again: the innermost phase comes first."""
        self._failed.append((name, error))

    def _enter(self, name: Phase) -> None:
        self._cut()
        self._stack.append(name)

    def _exit(self) -> None:
        self._cut()
        self._stack.pop()

    def _cut(self) -> None:
        now = self._clock()
        if self._stack:
            self.stretches.append(Stretch(self._stack[-1], self._mark, now))
        self._mark = now


class _Span:
    """The context manager of one entry into a phase."""

    __slots__ = ("_name", "_timer")

    def __init__(self, timer: PhaseTimer | _Record, name: Phase) -> None:
        self._timer, self._name = timer, name

    def __enter__(self) -> None:
        self._timer._enter(self._name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._timer._fail(self._name, error)
        self._timer._exit()
