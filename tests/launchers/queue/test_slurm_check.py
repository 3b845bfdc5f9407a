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
from gnnexp.experiment.build import hardware_of, read
from gnnexp.launchers.queue.slurm_check import read_partitions
from gnnexp.launchers.slurm import SlurmLauncher


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path / "bin"


def problems() -> tuple[Problem, ...]:
    return SlurmLauncher(mem_gb=1.0).fit(hardware_of(compose(["hardware=slurm_cpu"]).config)).problems


@pytest.mark.parametrize(
    "script",
    [
        "echo 'slurm_load_partitions: Unable to contact slurm controller' >&2; exit 1",
        "echo '<html>'",
        "yes",
        r"printf '\377\000|infinite|1|1|1|(null)\n'; exit 1",
        f"echo 'debug*|infinite|2|2|{'9' * 400}|(null)'",
        "echo 'debug*|infinite|2|2|-1|(null)'",
        "echo 'debug*|x|2|2|6000|(null)'",
    ],
)
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


SINFO = (
    "cat <<'END'\ncpu*|1:00:00|8|64|256000|(null)\ngpu|1-00:00:00|4|64|256000|gpu:a100:4\nold|infinite|2|8|1|gpu:2\nEND"
)


def keys(commands: Path, *overrides: str) -> set[str]:
    """The keys of all problems, and those of doubts with a question mark."""
    install(commands, "sinfo", SINFO)
    experiment = read(compose(["hardware=slurm_cpu", *overrides]).config)
    assert not experiment.problems and isinstance(experiment.launcher, SlurmLauncher)
    fit = experiment.launcher.fit(experiment.hardware)
    return {problem.key.rpartition(".")[2] for problem in fit.problems} | {
        f"{doubt.key.rpartition('.')[2]}?" for doubt in fit.doubts
    }


LAUNCHER = "hardware.launcher."
ON_GPUS = ["hardware.device=cuda", "hardware.workers=4", f"{LAUNCHER}partition=gpu"]


@pytest.mark.parametrize(
    "request_",
    [
        ["gpus_per_task=1"],
        ["gpus_per_task=1", "gpus=node"],
        ["gpus_per_task=1", "gpus=gres", "gpu_type=a100"],
        ["parameters.gres='gpu:4'"],
        ["parameters.gpus_per_node='a100:4'"],
        ["parameters.gpus=4"],
        ["parameters.gpus_per_task=1"],
    ],
)
def test_gpus_count_however_they_are_requested(commands: Path, request_: list[str]) -> None:
    typed = ["+" * one.startswith("parameters.") + LAUNCHER + one for one in request_]
    assert keys(commands, *ON_GPUS, *typed) == set()


def test_gpus_that_no_node_has_are_a_problem(commands: Path) -> None:
    assert keys(commands, *ON_GPUS) == {"gpus_per_task"}, "none are requested"
    assert keys(commands, *ON_GPUS, f"+{LAUNCHER}parameters.gres='gpu:8'") == {"gpus_per_task"}


def test_a_job_fits_if_it_fits_one_of_its_partitions(commands: Path) -> None:
    several = f"{LAUNCHER}partition='cpu,gpu'"
    assert keys(commands, several, f"{LAUNCHER}time_min=2:30:00") == set()
    assert keys(commands, several, f"{LAUNCHER}time_min=2-00:00:00") == {"time_min"}
    assert keys(commands, f"{LAUNCHER}partition='cpu,gpuu'") == {"partition"}


def test_memory_counts_in_the_words_of_sbatch(commands: Path) -> None:
    assert keys(commands, f"{LAUNCHER}mem_gb=240G") == set()
    assert keys(commands, f"{LAUNCHER}mem_gb=300G") == {"mem_gb"}
    assert keys(commands, f"{LAUNCHER}mem_gb=300G", f"{LAUNCHER}partition=old") == set(), "nobody has set RealMemory"


def test_what_sinfo_cannot_know_is_a_doubt(commands: Path) -> None:
    assert keys(commands, f"{LAUNCHER}time_min=90") == {"time_min"}
    assert keys(commands, f"{LAUNCHER}time_min=90", f"{LAUNCHER}qos=long") == {"time_min?"}
    assert keys(commands, f"{LAUNCHER}partition=theirs", f"+{LAUNCHER}parameters.clusters=other") == {"partition?"}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("time_min", "soon"),
        ("mem_gb", "much"),
        ("container", "apptainer"),
        ("image", "x.sif"),
        ("time_min", "0:10"),
    ],
)
def test_words_that_sbatch_does_not_know_are_problems(option: str, value: str) -> None:
    (problem,) = read(compose(["hardware=slurm_cpu", f"{LAUNCHER}{option}={value}"]).config).problems
    assert problem.key == LAUNCHER + {"container": "image", "image": "container"}.get(option, option)
