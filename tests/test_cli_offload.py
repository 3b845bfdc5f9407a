"""Mistakes in the options of offloaded training, as a user makes them: refused before anything is launched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import place

from gnnexp.cli.main import run_command

__all__ = ["place"]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ("paradigm.chunks=0", ["paradigm.chunks=0", "at least 1", "fix: set paradigm.chunks=1", "1 config"]),
        ("paradigm.chunks=null", ["paradigm.chunks=None", "needs paradigm.device_memory", "1 config"]),
        ("paradigm.chunks=auto", ["paradigm.chunks='auto'", "integer or null", "1 config"]),
        (
            "paradigm.device_memory=90000",
            ["paradigm.chunks=8", "a budget decides", "fix: set paradigm.chunks=null", "1 config"],
        ),
        ("paradigm.chunks=null paradigm.device_memory=0", ["paradigm.device_memory=0", "positive number", "1 config"]),
        (
            "paradigm.chunks=null paradigm.device_memory=2000",
            [
                "paradigm.device_memory=2000",
                "largest vertices",
                "fix: set paradigm.device_memory=",
                "or more",
                "1 config",
            ],
        ),
        (
            "paradigm.keep=everything paradigm.host=disk",
            [
                "paradigm.keep='everything'",
                "cheapest or paper or outputs or sums",
                "paradigm.host='disk'",
                "ram or file",
                "2 config",
            ],
        ),
        ("paradigm.keep=sums model=gat", ["paradigm.keep='sums'", "learned weights", "set paradigm.keep=outputs"]),
        ("+paradigm.dedup.both=true", ["paradigm.dedup.both=True", "allowed: inter, intra", "1 config"]),
        ("paradigm.dedup.inter=3", ["paradigm.dedup.inter=3", "true or false", "1 config"]),
        ("paradigm.dedup.intra=false", ["paradigm.reorganise=True", "both kinds", "set paradigm.reorganise=false"]),
        ("sampler=fused sampler.fanouts=[5,5]", ["sampler=", "full graph", "choose sampler=full"]),
        ("partitioner=libra", ["partitioner=", "is a vertex-cut", "fix: choose partitioner="]),
        ("hardware.workers=2 partitioner.num_parts=3", ["partitioner.num_parts=3", "must be 2", "1 config"]),
        (
            "model=sage_pool paradigm.chunks=null paradigm.device_memory=9000000",
            ["paradigm.device_memory=9000000", "not known", "set paradigm.chunks=<number>", "1 config"],
        ),
    ],
    ids=lambda value: value.replace(" ", "_") if isinstance(value, str) else "",
)
def test_mistakes_end_with_2_name_the_fix_and_leave_nothing(
    place: Path, overrides: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["run", "system=hongtu", *overrides.split()]) == 2
    said = capsys.readouterr().err
    assert [word for word in words if word not in said] == [], said
    assert "Traceback" not in said


def test_too_little_host_memory_is_refused_with_needed_and_available_bytes(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["run", "system=hongtu", "model.hidden=2000000000"]) == 2
    said = capsys.readouterr().err
    assert "of host memory" in said and "are available" in said and "vertex data of all layers" in said, said


@pytest.mark.slow
def test_the_named_budget_works_and_the_plan_is_recorded(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    auto = [
        "run",
        "system=hongtu",
        "paradigm.chunks=null",
        "hardware.workers=2",
        "tracker=none",
        "train.epochs=2",
        "hydra.run.dir=run",
    ]
    assert run_command([*auto, "paradigm.device_memory=1"]) == 2
    said = capsys.readouterr().err
    budget = int(said.split("set paradigm.device_memory=")[1].split()[0])
    assert run_command([*auto, f"paradigm.device_memory={4 * budget}"]) == 0
    found = json.loads(Path("run/result.json").read_text())
    plan = found["paradigm"]
    assert plan["exact"] and plan["chunks"] > 1 and plan["chunk_bytes_bound"] <= 4 * budget
    assert plan["keeps"] == ["mixed sums", "mixed sums"] and len(plan["batches"]["original"]) == plan["chunks"]
    assert found["epochs"][-1]["metrics"]["memory/device_peak_bytes"] <= 4 * budget
    assert all(f"time/{what}_s" in found["epochs"][-1]["metrics"] for what in ("h2d", "d2h", "host_add"))
