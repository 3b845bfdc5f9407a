"""What a stage is given, and how a check that fails becomes a row."""

from __future__ import annotations

import statistics
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from benchmarks.gpu.ceilings import Ceiling
from benchmarks.gpu.report import Report, Row
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import Environment
from gnnexp.measure.phases import PhaseTimer
from gnnexp.planning.probes import QUICK, Bench, Extent, on_gpu

_WORDS = 2000  # of a traceback's end


@dataclass(frozen=True, eq=False)
class Stage:
    """Where a stage works.

    Attributes:
        report: where its rows go.
        device: the GPU.
        emulated: whether it is emulated: nothing that is timed says anything.
        quick: whether sizes and cases are those of a rehearsal.
        ceiling: of the device.
        ends: when it must be over, on `time.monotonic`.
    """

    report: Report
    device: torch.device
    emulated: bool
    quick: bool
    ends: float
    ceiling: Ceiling

    @property
    def left_s(self) -> float:
        """Seconds until it must be over."""
        return self.ends - time.monotonic()

    def bench(self) -> Bench:
        """One rank, alone; sizes by the device's memory."""
        alone = Environment()
        free, _ = torch.cuda.mem_get_info(self.device)
        extent = QUICK if self.quick or self.emulated else on_gpu(Extent(), free)
        return Bench(extent, Communicator(alone, PhaseTimer(), self.device), self.device)

    def check(self, name: str, work: Callable[[], Row | Iterable[Row]]) -> None:
        """Write down what `work` finds, or that it failed; nothing is done that an earlier call found good.

        Args:
            name: of the row, or of all rows together where there are several.
            work: is called once.
        """
        if self.report.has(name):
            return
        try:
            found = work()
        except Exception:  # whatever a check of a new machine raises is its result
            self.report.add([Row(name, ok=False, words=traceback.format_exc()[-_WORDS:])])
            return
        rows = [found] if isinstance(found, Row) else list(found)
        self.report.add(rows if any(row.name == name for row in rows) else [*rows, Row(name)])


def rate(
    name: str, values: Iterable[float], unit: str, ceiling: float | None = None, share: float | None = None
) -> Row:
    """The median of repetitions; the target is a share of the ceiling."""
    found = tuple(values)
    target = None if ceiling is None or share is None else ceiling * share
    return Row(name, value=statistics.median(found), unit=unit, target=target, ceiling=ceiling, values=found)
