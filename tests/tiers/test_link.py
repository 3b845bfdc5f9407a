"""A link that is slowed down takes the time of its bytes, in all and in each direction; a fast one takes none."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from gnnexp.measure.phases import PhaseTimer
from gnnexp.tiers.link import HostLink
from gnnexp.tiers.tier import DeviceTier

CPU = torch.device("cpu")


class Clock:
    """A clock that only sleeping moves; sleeps last a little longer than asked, as those of a system do."""

    def __init__(self) -> None:
        self.now, self.sleeps = 0.0, 0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now, self.sleeps = self.now + seconds + 2e-4, self.sleeps + 1


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr("gnnexp.tiers.link.time", found)
    return found


def test_many_small_crossings_take_the_time_of_their_bytes(clock):
    link = HostLink(1e6)
    for count in range(1, 5001):
        link.crossed("h2d", 100)
        assert abs(count * 1e-4 - clock.now) < 1.001e-3
    assert clock.sleeps < 500, "short debts are paid together"


def test_directions_have_the_full_bandwidth_each(clock):
    link = HostLink(1e6)
    for _ in range(10):
        link.crossed("h2d", 450)
        link.crossed("d2h", 450)
    assert clock.now < 2 * 4.5e-3 + 1e-3
    assert clock.sleeps >= 6


def test_time_that_a_crossing_took_is_not_waited_for_again(clock):
    link = HostLink(1e6)
    link.crossed("h2d", 10_000, seconds=0.008)
    assert clock.now == pytest.approx(0.002, abs=3e-4)
    link.crossed("h2d", 10_000, seconds=5.0)
    assert clock.now == pytest.approx(0.002, abs=3e-4), "slower than the link: nothing is owed or given back"


def test_a_long_sleep_gives_little_back(clock):
    link = HostLink(1e6)
    link.crossed("h2d", 5_000)
    clock.now += 1.0  # nothing crossed meanwhile
    link.crossed("h2d", 5_000)
    assert clock.now == pytest.approx(1.010, abs=1e-3)


def test_a_link_without_a_throttle_never_waits(clock):
    link = HostLink()
    link.crossed("h2d", 1 << 60)
    assert clock.sleeps == 0


def test_threads_share_the_link():
    link = HostLink(1e6)
    start = time.perf_counter()
    threads = [threading.Thread(target=link.crossed, args=("h2d", 20_000)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.perf_counter() - start >= 0.079


def test_crossings_of_the_tier_and_topology_wait(clock, monkeypatch):
    """12,000 bytes to the device and 4,000 back."""
    monkeypatch.setattr("gnnexp.tiers.tier.time", clock)
    timer = PhaseTimer()
    tier = DeviceTier(CPU, timer, link=HostLink(1e6))
    host, ids = torch.zeros(500, 2), torch.arange(500)
    with tier.chunk(4000, ()):
        rows = tier.enter(host)
        tier.place(tier.fetch(host, ids), torch.empty(500, 2), ids, "tier/rows")
        tier.leave(rows, host)
    assert clock.now == pytest.approx(0.016, abs=1e-3)
    counts = tier.take_counts()
    assert (counts["tier/h2d_bytes"], counts["tier/d2h_bytes"]) == (12_000, 4_000)
