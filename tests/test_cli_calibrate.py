"""`gnnexp calibrate`: real ranks, tiny sizes; the profile is one that runs and plans take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from gnnexp.cli.main import run_command
from gnnexp.config.compose import compose
from gnnexp.planning.figures import UNITS
from gnnexp.planning.machine import machine_named

ON_CPU = ["calibrate", "hardware.workers=2", "hardware.threads=1", "hardware.device=cpu", "--quick"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.slow
def test_a_calibrated_machine_is_a_hardware_profile(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = place / "conf" / "hardware" / "mine.yaml"
    assert run_command([*ON_CPU, "--out", str(file), "--json"]) == 0
    printed = capsys.readouterr()
    told = yaml.safe_load(file.read_text())
    measured = {"flops", "gather", "stream", "sampling", "step_s", "latency"}
    assert all(isinstance(told[name], float) and told[name] > 0 for name in measured)
    assert told["links"]["network"] > 0 and told["links"]["h2d"] is None
    assert (told["workers"], told["threads"], told["device"]) == (2, 1, "cpu")
    assert "2 ranks of 1 threads at once, exchanges by gloo" in told["source"] and "QUICK" in told["source"]

    config_dir = str(file.parent.parent)
    machine = machine_named("mine", config_dir)
    assert (machine.flops, machine.link, machine.step_s) == (told["flops"], told["links"]["network"], told["step_s"])
    assert compose(["hardware=mine"], config_dir).config["hardware"]["workers"] == 2

    record = json.loads(printed.out)
    assert len(record["ranks"]) == 2 and {figure["name"] for figure in record["figures"]} == measured | {"network"}
    assert all(len(values) == record["extent"]["repetitions"] for rank in record["ranks"] for values in rank.values())
    assert record["machine"]["versions"]["torch"] and record["command"].startswith("gnnexp calibrate")
    shown = printed.err
    assert all(UNITS[name].partition(" ")[0] in shown for name in measured) and "--hardware mine" in shown


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["train.epochs=3"], "train.epochs=3"),
        (["model=gat", "hardware.workers=2"], "model=gat"),
        (["hardware.throttle=1e9"], "hardware.throttle"),
        (["hardware=slurm_cpu"], "hardware"),
        (["hardware.workers=0"], "hardware.workers"),
        (["--out", "profile.txt"], "--out"),
        (["--out", "/dev/null/y.yaml"], "--out"),
    ],
)
def test_mistakes_end_with_2_and_nothing_is_written(
    place: Path, words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["calibrate", *words]) == 2
    told = capsys.readouterr().err
    assert named in told and "fix" in told
    assert not any(place.iterdir())


@pytest.mark.slow
def test_one_rank_has_nobody_to_exchange_with(place: Path) -> None:
    file = place / "alone.yaml"
    assert run_command(["calibrate", "hardware.device=cpu", "--quick", "--out", str(file)]) == 0
    told = yaml.safe_load(file.read_text())
    assert told["flops"] > 0 and "latency" not in told and told["links"]["network"] is None
