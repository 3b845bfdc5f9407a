"""Times with `measure=free`: phases between marks of the GPU, the epoch on the host's clock, and no wait inside."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch

from gnnexp.measure.marks import Marks
from gnnexp.measure.phases import PhaseTimer, Stretch


class Machine:
    """A host that launches work, and a GPU that does it later. The test moves the time."""

    def __init__(self) -> None:
        self.host, self.gpu, self.waits = 100.0, 100.0, 0

    def __call__(self) -> float:
        return self.host

    def launch(self, seconds: float) -> None:
        """The host goes on at once; the GPU starts when it is free."""
        self.gpu = max(self.gpu, self.host) + seconds

    # --- what `Marks` does -----------------------------------------------------------------------------------------
    def mark(self) -> float:
        self.gpu = max(self.gpu, self.host)
        return self.gpu

    def pass_all(self) -> None:
        self.host, self.waits = max(self.host, self.gpu), self.waits + 1

    def seconds(self, first: float, second: float) -> float:
        return second - first


def started() -> tuple[Machine, PhaseTimer]:
    machine = Machine()
    timer = PhaseTimer(clock=machine, marks=cast("Marks", machine), meets=False)
    timer.start_epoch()
    machine.waits = 0
    return machine, timer


def test_a_phase_lasts_as_long_as_its_work_and_the_host_never_waits():
    machine, timer = started()
    for _ in range(3):
        with timer.phase("forward"):
            machine.launch(2.0)
        with timer.phase("backward"):
            machine.launch(4.0)
            machine.host += 0.5
    assert machine.waits == 0
    times = timer.end_epoch()
    assert machine.waits == 1
    assert (times.phases["forward"], times.phases["backward"], times.epoch_s) == (6.0, 12.0, 18.0)
    assert times.unaccounted_s == 0


def test_a_gpu_without_work_shows_in_the_phase_of_the_host():
    machine, timer = started()
    with timer.phase("sample"):
        machine.host += 5.0
    with timer.phase("forward"):
        machine.launch(1.0)
    times = timer.end_epoch()
    assert (times.phases["sample"], times.phases["forward"], times.epoch_s) == (5.0, 1.0, 6.0)


@pytest.mark.parametrize(("busy", "exposed"), [(0.0, 4.0), (3.0, 1.0), (9.0, 0.0)])
def test_a_wait_for_another_thread_is_exposed_as_far_as_the_gpu_waits_too(busy, exposed):
    machine, timer = started()
    with timer.phase("backward"):
        machine.launch(busy)
    asked = machine.host
    with timer.phase("sample"):
        machine.host += 4.0
    timer.charge_wait([Stretch("load", asked - 2, asked + 4)], "sample", asked, machine.host)
    times = timer.end_epoch()
    assert times.phases["load"] == pytest.approx(exposed) and times.phases["sample"] == pytest.approx(0)
    assert times.hidden["load"] == pytest.approx(6 - exposed)
    assert sum(times.phases.values()) + times.unaccounted_s == pytest.approx(times.epoch_s)


def test_exchanges_are_timed_by_the_gpu_inside_of_an_epoch_only():
    machine, timer = started()
    for seconds in (1.0, 2.0):
        mark = timer.begin_exchange()
        machine.launch(seconds)
        timer.end_exchange("gradients", mark)
    timer.end_epoch()
    assert timer.take_exchanges() == {"gradients": 3.0} and timer.take_exchanges() == {}
    assert timer.begin_exchange() is None, "an evaluation's exchange is timed by the host"


def test_without_marks_the_host_times_exchanges():
    timer = PhaseTimer()
    timer.start_epoch()
    assert timer.begin_exchange() is None and timer.take_exchanges() == {}


@pytest.mark.gpu
def test_marks_of_a_gpu_are_in_order():
    marks: Any = Marks(torch.device("cuda", 0))
    first = marks.mark()
    torch.ones(1000, device="cuda").sum()
    second = marks.mark()
    marks.pass_all()
    assert marks.seconds(first, second) >= 0


def test_a_wait_for_another_thread_does_not_wait_for_what_that_thread_launched():
    """With `exact`, a boundary waits for all work of the GPU, also for that of the thread."""
    machine = Machine()
    timer = PhaseTimer(machine.pass_all, machine)
    timer.start_epoch()
    machine.launch(3.0)  # by the other thread, after the last phase
    asked = machine.host
    with timer.waiting("sample"):
        machine.host += 1.0
        got = machine.host
    timer.charge_wait([Stretch("load", asked, got)], "sample", asked, got)
    times = timer.end_epoch()
    assert times.phases["load"] == 1.0 and times.phases["sample"] >= 0 and times.hidden["load"] == 0
    assert sum(times.phases.values()) + times.unaccounted_s == times.epoch_s == 3.0


def test_a_wait_inside_of_a_phase_interrupts_it():
    machine = Machine()
    timer = PhaseTimer(clock=machine)
    with timer.phase("forward"):
        machine.host += 2.0
        with timer.waiting("sample"):
            machine.host += 4.0
    assert timer.end_epoch().phases["forward"] == 2.0
    with pytest.raises(ValueError, match="x"), timer.waiting("load"):
        raise ValueError("x")
    assert timer.failed_in == "load"


def test_a_replay_repeats_the_phases_and_exchanges_of_the_captured_step():
    class Graph(Machine):
        def in_graph(self) -> Graph:
            return self

    machine = Graph()
    timer = PhaseTimer(clock=machine, marks=cast("Marks", machine), meets=False)
    timer.start_epoch()
    with timer.capturing() as tape:
        with timer.phase("forward"):
            machine.launch(2.0)
            start = timer.begin_exchange()
            machine.launch(1.0)
            timer.end_exchange("activations", start)
        with timer.phase("backward"):
            machine.launch(4.0)
    nothing = timer.end_epoch()
    assert not any(nothing.phases.values()) and timer.take_exchanges() == {}, "it was captured, and not run"
    for _ in range(2):
        timer.start_epoch()
        timer.repeat(tape)
        with timer.phase("update"):
            machine.launch(0.5)
        times = timer.end_epoch()
        assert (times.phases["forward"], times.phases["backward"], times.phases["update"]) == (3.0, 4.0, 0.5)
        assert timer.take_exchanges() == {"activations": 1.0}
