"""The profile is checked against programs that answer as SLURM does: what does not fit is an error before sbatch."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnexp.cli.running.prepare import checked_config
from gnnexp.config.compose import compose
from gnnexp.errors import ConfigError
from gnnexp.experiment.build import hardware_of
from gnnexp.planning.machine import machine_of_profile

CONF = str(Path(__file__).parent.parent / "conf")
# What `sinfo -h -a -o "%P|%l|%D|%c|%m|%G"` prints: partition, time limit, nodes, and cores, MB and GPUs of a node.
SINFO = "cpu*|infinite|8|64|256000|(null)\ngpu|12:00:00|4|64|256000|gpu:v100:4"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, answer in (("sinfo", SINFO), ("sbatch", ""), ("srun", "")):
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\n")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


def problems_of(*overrides: str) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        checked_config(["hardware=our_cluster", *overrides], CONF)
    return {problem.key: problem.allowed for problem in caught.value.problems}


def test_it_fits_the_cluster(cluster: None) -> None:
    config = checked_config(["system=dgl", "hardware=our_cluster"], CONF).composed.config
    assert config["hardware"]["nodes"] * config["hardware"]["workers"] == 8


def test_what_no_node_has_is_told_before_anything_is_submitted(cluster: None) -> None:
    launcher = "hardware.launcher."
    found = problems_of("hardware.nodes=5", "hardware.workers=6", f"{launcher}time_min=900", f"{launcher}mem_gb=300")
    assert set(found) == {"hardware.nodes", *(launcher + key for key in ("time_min", "gpus_per_task", "mem_gb"))}
    assert "its nodes have 4" in found[launcher + "gpus_per_task"]
    assert "gpu" in problems_of(f"{launcher}partition=gpuu")[launcher + "partition"]


def test_without_a_cluster_that_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "sbatch and srun are not on PATH" in problems_of()["hardware"]


def test_an_estimate_finds_all_that_it_needs() -> None:
    machine = machine_of_profile("our_cluster", hardware_of(compose(["hardware=our_cluster"], CONF).config))
    assert (machine.nodes, machine.workers, machine.link) == (2, 4, 12.5e9 / 4), "four ranks share a node's network"
