"""Seconds from counts and figures, by hand; profiles say what they must, or what they lack."""

from __future__ import annotations

from typing import Any

import pytest

from gnnexp.errors import ConfigError
from gnnexp.planner.estimate import estimate
from gnnexp.planner.machine import machine_of
from gnnexp.planner.profiles import machine_named, machines_named
from gnnexp.planner.work import Work

WORK = Work(ranks=4, sampled_edges=640, loaded_bytes={"host": 1000, "peer": 500}, gathered_bytes=2000, flops=6000,
            sent_bytes={"frontier": 100, "features": 200, "activations": 300, "gradients": 400},
            rounds={"frontier": 1, "features": 2, "activations": 3, "gradients": 4, "sizes": 5}, crossing_bytes=50,
            device_bytes=999)
GPU = {"nodes": 1, "workers": 4, "device": "cuda", "flops": 100.0, "gather": 64.0, "latency": 0.5,
       "device_memory": 1000, "links": {"h2d": 10.0, "d2d": 20.0, "network": None}}


def test_parts_by_hand() -> None:
    told = estimate(WORK, machine_of("gpu", GPU))
    assert told.sample_s == pytest.approx(640 / (64 / 64) + 100 / 20 + (1 + 5) * 0.5)
    assert told.load_s == pytest.approx(1000 / 10 + 500 / 20 + 200 / 20 + 2 * 0.5)
    assert told.forward_backward_s == pytest.approx(2000 / 64 + 6000 / 100 + 50 / 10 + 300 / 20 + 3 * 0.5)
    assert told.sync_s == pytest.approx(400 / 20 + 4 * 0.5)
    assert told.epoch_s == pytest.approx(told.sample_s + told.load_s + told.forward_backward_s + told.sync_s)
    assert told.fits and not estimate(WORK.scaled(2), machine_of("gpu", GPU)).fits


@pytest.mark.parametrize(("changes", "link", "host"), [
    ({}, 20, 10),  # devices of a host, directly
    ({"links": {"h2d": 10.0, "d2d": None, "network": 5.0}}, 10, 10),  # through the host
    ({"nodes": 2, "workers": 2, "links": {"h2d": 10.0, "d2d": 20.0, "network": 5.0}}, 2.5, 10),  # ranks share a node's
    ({"device": "cpu", "links": {"h2d": None, "d2d": None, "network": 5.0}}, 5, 64),  # nothing crosses
])
def test_which_link_ranks_talk_over(changes: dict[str, Any], link: float, host: float) -> None:
    machine = machine_of("one", {**GPU, **changes})
    assert (machine.link, machine.host) == (link, host)


def test_a_host_that_computes_brings_nothing_to_a_device() -> None:
    on_host = machine_of("cpu", {**GPU, "device": "cpu", "links": {"h2d": None, "d2d": None, "network": 20.0}})
    assert estimate(WORK, on_host).forward_backward_s == pytest.approx(2000 / 64 + 60 + 300 / 20 + 1.5)


def test_a_measured_rate_of_sampling_wins() -> None:
    assert machine_of("gpu", {**GPU, "sampling": 7.0}).sampling == 7


def test_what_a_profile_lacks_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        machine_of("gpu", {**GPU, "flops": None, "gather": 0, "links": {}, "nodes": 2})
    assert [problem.key for problem in caught.value.problems] == [
        "hardware.flops", "hardware.gather", "hardware.links.network"]
    with pytest.raises(ConfigError) as caught:
        machines_named(["p3_8xlarg", "local"])
    text = str(caught.value)
    assert "p3_8xlarge" in text and "hardware.flops" in text


@pytest.mark.parametrize("name", ["p3_8xlarge", "p3_16xlarge", "t4x16_15gbps", "a100x4_nvlink", "a6000x4"])
def test_the_papers_machines_say_enough(name: str) -> None:
    machine = machine_named(name)
    assert machine.flops > 1e12 and machine.gather > 1e11 and 0 < machine.latency < 1e-3 and machine.link > 1e8
