"""Cores and GPUs of cases that run side by side."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from experiments import experiment_in

from gnnexp.cli.sweeping import side_by_side
from gnnexp.cli.sweeping.side_by_side import make_slots, visible_gpus
from gnnexp.errors import ConfigError
from gnnexp.experiment.experiment import Experiment
from gnnexp.provenance.machine import this_node


def asking(workers: int, **hardware: Any) -> Experiment:
    return experiment_in({"hardware": {"workers": workers, **hardware}})


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of eight cores with two threads each, and of four GPUs."""
    threads = [[number, number + 8] for number in range(8)]
    monkeypatch.setattr(side_by_side, "cores_by_threads", lambda: threads)
    node = this_node().__class__("n", "EPYC", 8, ("A100",) * 4, "2.13.0")
    monkeypatch.setattr(side_by_side, "this_node", lambda: node)
    monkeypatch.setattr(side_by_side, "visible_gpus", lambda: ["4", "5", "6", "7"])


def test_cores_and_gpus_are_shared_out_evenly(large: None) -> None:
    found = make_slots(3, [asking(1, device="auto")])
    assert [slot.cores for slot in found] == [((0, 8), (1, 9)), ((2, 10), (3, 11)), ((4, 12), (5, 13))]
    assert [slot.gpus for slot in found] == [("4",), ("5",), ("6",)]
    assert {slot.node.kind for slot in found} == {"2 cores of EPYC, 4 x A100, torch 2.13.0, 3 cases side by side"}
    assert found[1].environment["CUDA_VISIBLE_DEVICES"] == "5"


@pytest.mark.parametrize(
    ("num_cases", "workers", "device", "said"),
    [
        (
            5,
            2,
            "cpu",
            [
                "5 cases with 2 ranks each need 10 cores of their own, and this machine has 8",
                "--jobs 4, or hardware.workers=1",
            ],
        ),
        (9, 1, "cpu", ["9 cases with 1 rank each need 9 cores", "--jobs 8"]),
        (3, 2, "cuda", ["need 6 GPUs of their own, and this machine has 4", "--jobs 2, or hardware.workers=1"]),
        (5, 2, "auto", ["10 cores", "10 GPUs", "--jobs 2"]),
        (2, 4, "cpu", []),
        (2, 2, "cuda", []),
        (8, 1, "cpu", []),
    ],
)
def test_a_machine_that_is_too_small_is_named_with_the_fix(
    large: None, num_cases: int, workers: int, device: str, said: list[str]
) -> None:
    experiments = [asking(1, device="cpu"), asking(workers, device=device)]
    if not said:
        assert len(make_slots(num_cases, experiments)) == num_cases
        return
    with pytest.raises(ConfigError) as caught:
        make_slots(num_cases, experiments)
    assert [words for words in said if words not in str(caught.value)] == []


@pytest.mark.interpreter
def test_a_process_inherits_the_cores_of_its_slot() -> None:
    before = os.sched_getaffinity(0)
    (slot,) = make_slots(1, [asking(1)])
    one = side_by_side.Slot((slot.cores[0],), (), 2)
    with one.inherited():
        code = (
            "import os; from gnnexp.provenance.machine import this_node as node\n"
            "print(sorted(os.sched_getaffinity(0)), node().cores, node().kind)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=one.environment | {"SLURM_CPUS_ON_NODE": "64"},
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stdout.strip() == f"{sorted(one.cores[0])} 1 {one.node.kind}"
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    ("named", "found"), [(None, ["0", "1"]), ("3,5", ["3", "5"]), ("GPU-a,GPU-b", ["GPU-a", "GPU-b"])]
)
def test_gpus_keep_the_names_that_they_were_given(
    monkeypatch: pytest.MonkeyPatch, named: str | None, found: list[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert visible_gpus() == found
