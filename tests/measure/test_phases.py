"""Phases are exclusive and explain the whole epoch, on a clock that the test winds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.measure.ledger import all_reduce_bytes
from gnnexp.measure.phases import PHASES, PhaseTimer, PhaseTimes, Stretch
from gnnexp.measure.record import TIME_NAMES, RankRecord, reduce_times


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_inner_phases_stop_the_outer_clock():
    timer = PhaseTimer(clock=(clock := Clock()))
    clock.now += 1  # unaccounted
    with timer.phase("forward"):
        clock.now += 2
        with timer.phase("wait"):
            clock.now += 4
        clock.now += 8
        with timer.phase("sync"), timer.phase("wait"):
            clock.now += 16
    clock.now += 32  # unaccounted
    times = timer.end_epoch()
    assert times.epoch_s == 63
    assert times.phases["forward"] == 10
    assert times.phases["wait"] == 20
    assert times.phases["sync"] == 0
    assert times.unaccounted_s == 33


spans = st.recursive(st.just([]), lambda inner: st.lists(st.tuples(st.sampled_from(PHASES), inner), max_size=4))


@given(spans)
def test_phases_always_add_up(tree):
    timer = PhaseTimer(clock=(clock := Clock()))

    def walk(nodes):
        clock.now += 1
        for name, children in nodes:
            with timer.phase(name):
                walk(children)
            clock.now += 1

    walk(tree)
    times = timer.end_epoch()
    depth_zero = 1 + len(tree)
    assert times.unaccounted_s == depth_zero
    assert sum(times.phases.values()) + times.unaccounted_s == times.epoch_s


def test_a_failure_inside_a_phase_closes_it():
    timer = PhaseTimer(clock=(clock := Clock()))
    with pytest.raises(ValueError, match="x"), timer.phase("load"):
        clock.now += 5
        raise ValueError("x")
    assert timer.current is None
    assert timer.end_epoch().phases["load"] == 5


def test_what_the_loop_waited_for_is_exposed_and_the_rest_hidden():
    timer = PhaseTimer(clock=(clock := Clock()))
    records: list[list[Stretch]] = []

    def prepare() -> None:
        with timer.aside() as stretches:
            with timer.phase("sample"):
                clock.now += 4  # 100 to 104
                with timer.phase("wait"):
                    clock.now += 1  # to 105
                timer.note_collective(105.0, 107.0)
                clock.now += 2  # to 107
            with timer.phase("load"):
                clock.now += 3  # to 110
            records.append(stretches)

    thread = Thread(target=prepare)
    thread.start()
    thread.join()
    timer.start_epoch()
    asked = clock.now - 4  # the loop asked at 106 and got it at 110: the last of the sampling, all of the loading
    with timer.phase("sample"):
        clock.now += 4
    timer.charge_wait(records[0], "sample", asked, asked + 4)
    times = timer.end_epoch()
    assert times.phases["sample"] == 1
    assert times.phases["load"] == 3
    assert times.hidden == {"sample": 5.0, "wait": 1.0, "comm": 1.0, "load": 0.0}
    assert times.unaccounted_s == 0


@given(st.integers(0, 10**12), st.integers(1, 64))
def test_all_reduce_shares_add_up_exactly(payload, num_ranks):
    shares = [all_reduce_bytes(payload, rank, num_ranks) for rank in range(num_ranks)]
    assert sum(shares) == 2 * (num_ranks - 1) * payload
    assert max(shares) - min(shares) <= 1


def test_a_thread_that_nobody_asked_for_enters_no_phase() -> None:
    """Autograd's threads of a GPU are such: their phases would be nobody's."""
    timer, wrong = PhaseTimer(), []

    def enter(what):
        with pytest.raises(AssertionError, match="training loop's thread") as found:
            what()
        wrong.append(str(found.value))

    for what in (lambda: timer.phase("forward"), lambda: timer.note_collective(0.0, 1.0)):
        thread = Thread(target=enter, args=(what,), name="of autograd")
        thread.start()
        thread.join()
    assert len(wrong) == 2 and all("of autograd" in message for message in wrong)


def test_the_innermost_phase_that_an_error_left_is_known() -> None:
    timer = PhaseTimer()
    assert timer.failed_in is None
    with pytest.raises(ValueError, match="here"), timer.phase("forward"), timer.phase("wait"):
        raise ValueError("here")
    assert timer.failed_in == "wait"


def test_an_error_of_another_thread_keeps_its_phase_and_leaves_the_thread_ready_for_more() -> None:
    timer = PhaseTimer()

    def prepare() -> None:
        with timer.aside(), timer.phase("sample"), timer.phase("load"):
            raise OSError("the disk does not read")

    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(OSError, match="does not read"), timer.phase("sample"):
            pool.submit(prepare).result()
        assert timer.failed_in == "load"
        with pytest.raises(AssertionError, match="outside of `aside`"):
            pool.submit(lambda: timer.phase("load")).result()
    with pytest.raises(ValueError, match="later"), timer.phase("forward"):
        raise ValueError("later")
    assert timer.failed_in == "forward"


def test_what_is_not_timed_is_left_out_and_never_time_that_was_spent() -> None:
    times = PhaseTimes(3.0, {"forward": 3.0, "wait": 0.0, "sync": 0.0})
    assert times.without({"wait", "sync"}) == PhaseTimes(3.0, {"forward": 3.0})
    assert times.without({"wait"}).joined(times.without({"wait"})).phases == {"forward": 6.0, "sync": 0.0}
    with pytest.raises(AssertionError):
        times.without({"forward"})


def test_names_of_times_are_known_before_there_is_a_record() -> None:
    times = PhaseTimes(
        1.0,
        dict.fromkeys(PHASES, 0.0),
        dict.fromkeys((*PHASES, "comm"), 0.5),
        {"h2d": 0.1, "d2h": 0.1, "host_add": 0.1},
    )
    assert reduce_times([RankRecord(0, times, {}, {}, {})] * 2).keys() <= TIME_NAMES


def test_a_piece_of_an_earlier_version_is_joined() -> None:
    early = PhaseTimes(3.0, {"forward": 1.0, "backward": 2.0})
    later = PhaseTimes(4.0, {**dict.fromkeys(PHASES, 0.0), "forward": 1.0, "decode": 3.0})
    whole = {**dict.fromkeys(PHASES, 0.0), "forward": 2.0, "backward": 2.0, "decode": 3.0}
    assert early.joined(later) == later.joined(early) == PhaseTimes(7.0, whole)
