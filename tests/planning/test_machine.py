"""What an estimate needs of a hardware profile, and what it does without."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gnnexp.config.compose import compose
from gnnexp.errors import ConfigError
from gnnexp.experiment.build import hardware_of
from gnnexp.planning.machine import Machine, machine_of_profile

ALONE: dict[str, Any] = {
    "nodes": 1,
    "workers": 1,
    "device": "cuda",
    "flops": 5e13,
    "gather": 2e12,
    "links": {"h2d": 5e10},
}


def described(name: str, hardware: dict[str, Any]) -> Machine:
    return machine_of_profile(name, hardware_of({"hardware": hardware}))


def test_a_rank_that_is_alone_needs_neither_latency_nor_link() -> None:
    """A GPU that `make gpu-proof` has measured."""
    machine = described(
        "mine",
        {
            **ALONE,
            "links": {"h2d": 5e10, "d2h": 5e10, "duplex": 9e10, "h2d_gather": 3e10},
            "l2": 6e12,
            "launch_s": 3e-6,
            "flops_tf32": 4e14,
        },
    )
    assert (machine.host, machine.latency, machine.is_filled_by(1)) == (5e10, 0, True)
    assert described("on a host", {**ALONE, "device": "cpu"}).link == math.inf, "nothing is sent"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"workers": 2}, "hardware.latency"),
        ({"nodes": 2}, "hardware.links.network"),
        ({"flops": None}, "hardware.flops"),
        ({"workers": 2, "links": {}}, "hardware.links.network"),
    ],
)
def test_several_ranks_need_both(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        described("mine", {**ALONE, **change})


def test_new_figures_are_null_in_profiles_that_do_not_say_them() -> None:
    hardware = compose(["hardware=a100x4_nvlink"]).config["hardware"]
    assert [hardware[name] for name in ("flops_tf32", "l2", "launch_s")] == [None] * 3
    assert hardware["links"] == {
        "h2d": 31.5e9,
        "d2d": 200e9,
        "network": None,
        "d2h": None,
        "duplex": None,
        "h2d_gather": None,
    }
