"""Machines have kinds: equal nodes are one, and seconds of two kinds are not mixed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unkillable import unkillable

from gnnexp.provenance import machine
from gnnexp.provenance.machine import (
    UNKNOWN,
    Node,
    hardware,
    kind_of_nodes,
    machine_of,
    node_of_launch,
    read_node,
    this_node,
)

__all__ = ["unkillable"]

NODE = Node("n1", "EPYC", 64, ("A100",), "2.13.0")
LOCAL = {"hardware": {"launcher": {"_target_": "gnnexp.launchers.local.LocalLauncher"}}}


def test_all_but_the_name_makes_a_kind() -> None:
    assert kind_of_nodes([NODE, replace(NODE, host="n2")]) == NODE.kind == "64 cores of EPYC, A100, torch 2.13.0"
    others = [replace(NODE, cpu="Xeon"), replace(NODE, cores=32), replace(NODE, gpus=()), replace(NODE, torch="2.12")]
    assert len({kind_of_nodes([other]) for other in (NODE, *others)}) == 5
    assert kind_of_nodes([others[0], NODE]) == kind_of_nodes([NODE, others[0]]) == f"{NODE.kind} + {others[0].kind}"
    assert kind_of_nodes([]) == UNKNOWN


def test_a_record_is_read_back() -> None:
    assert read_node(NODE.to_json()) == NODE and "num_cases" not in NODE.to_json()
    shared = replace(NODE, num_cases=4)
    assert read_node(shared.to_json()) == shared and shared.kind == f"{NODE.kind}, 4 cases side by side"
    with pytest.raises(KeyError):
        read_node({"host": "n1"})


def test_cores_are_those_that_may_be_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("psutil.cpu_count", lambda logical=True: 64 if logical else 32)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(64)))
    monkeypatch.setattr(machine, "_of_container", lambda file: 0)
    assert machine._cores() == 32
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {3})
    assert machine._cores() == 1, "taskset"
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "8")
    assert machine._cores() == 8, "a rank sees its own CPUs only, and its job has more"
    monkeypatch.setattr(machine, "_of_container", lambda file: 2)
    assert machine._cores() == 2


@pytest.mark.parametrize(
    ("words", "count"), [("200000 100000", 2), ("150000 100000", 2), ("50000 100000", 1), ("max 100000", 0), ("", 0)]
)
def test_a_container_has_a_quota_of_cpus(tmp_path: Path, words: str, count: int) -> None:
    (tmp_path / "cpu.max").write_text(words)
    assert machine._of_container(tmp_path / "cpu.max") == count and machine._of_container(tmp_path / "none") == 0


def test_this_machine_is_known() -> None:
    node = this_node()
    assert node.cores > 0 and node.torch.startswith("2.") and node.host == hardware()["host"]


@pytest.mark.parametrize(
    ("nodes", "config", "kind"),
    [
        ([NODE.to_json()], {}, NODE.kind),
        ([], LOCAL, "64 cores of EPYC, 2 x A100, torch 2.13.0"),
        ([], {"hardware": {"launcher": {"_target_": "gnnexp.launchers.slurm.SlurmLauncher"}}}, UNKNOWN),
        ([], {}, UNKNOWN),
    ],
)
def test_older_records_say_it_where_they_can(nodes: list[dict[str, Any]], config: dict[str, Any], kind: str) -> None:
    launched = {
        "hardware": {"host": "n1", "cpu": "EPYC", "cores": 64, "gpus": ["A100", "A100"]},
        "libraries": {"torch": "2.13.0"},
    }
    assert machine_of(nodes, config, launched) == kind
    assert node_of_launch({}) is None
    launched["hardware"]["side_by_side"] = {"num_cases": 2, "cores": [0], "gpus": ""}
    assert machine_of([], LOCAL, launched).endswith(", 2 cases side by side")


@pytest.mark.interpreter
def test_a_command_that_does_not_end_says_nothing(
    monkeypatch: pytest.MonkeyPatch, unkillable: list[subprocess.Popen[Any]]
) -> None:
    """As `nvidia-smi` on a driver that hangs, and git on a dead disk: not even SIGKILL ends them."""
    monkeypatch.setattr(machine, "_ANSWER_S", 0.2, raising=False)
    assert machine.output_of([sys.executable, "-c", "import time; time.sleep(600)"]) == "" and len(unkillable) == 1


def test_what_is_no_utf8_is_no_fault() -> None:
    """A difference of a file in Latin-1, for example."""
    assert machine.output_of(["printf", r"caf\351 au lait"]) == "caf\ufffd au lait"
