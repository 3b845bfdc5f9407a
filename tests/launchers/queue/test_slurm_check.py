"""A cluster whose `sinfo` answers nonsense, or not at all: a problem in words, before anything is submitted."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest
from fake_slurm import install
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.config.compose import compose
from gnnexp.errors import Problem
from gnnexp.experiment.build import hardware_of
from gnnexp.launchers.queue.slurm_check import check_against_cluster, read_partitions
from gnnexp.launchers.slurm import SlurmLauncher


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path / "bin"


def problems() -> list[Problem]:
    return check_against_cluster(SlurmLauncher(mem_gb=1.0), hardware_of(compose(["hardware=slurm_cpu"]).config))


@pytest.mark.parametrize("script", [
    "echo 'slurm_load_partitions: Unable to contact slurm controller' >&2; exit 1", "echo '<html>'", "yes",
    r"printf '\377\000|infinite|1|1|1|(null)\n'; exit 1", f"echo 'debug*|infinite|2|2|{'9' * 400}|(null)'",
    "echo 'debug*|infinite|2|2|-1|(null)'", "echo 'debug*|x|2|2|6000|(null)'",
])
def test_no_answer_is_a_problem_in_words(commands: Path, script: str) -> None:
    install(commands, "sinfo", script)
    (problem,) = problems()
    assert "does not answer" in problem.allowed and problem.allowed.isprintable()


def test_an_answer_is_read(commands: Path) -> None:
    install(commands, "sinfo", "echo 'debug*|1-00:00:00|2|64+|256000|gpu:a100:4(S:0-3),lustre:1'")
    assert not problems()


@given(st.lists(st.sampled_from([*"|*+-:9٤\x00", "infinite", "gpu:4", "debug"]), max_size=30).map("".join))
def test_whatever_it_says_is_read_or_refused(text: str) -> None:
    with suppress(ValueError):
        read_partitions(text)
