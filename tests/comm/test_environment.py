"""Which rank a process is, by the variables of the program that started it."""

from __future__ import annotations

import pytest

from gnnexp.comm.environment import Environment, read_environment, rendezvous_address
from gnnexp.errors import ConfigError

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
SRUN = {
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "4",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
}
HOST = {"GNNEXP_NODE": "n1"}


@pytest.mark.parametrize("variables", [TORCHRUN, OPEN_MPI, SRUN, {**OPEN_MPI, **TORCHRUN, "OMPI_COMM_WORLD_RANK": "0"}])
def test_the_variables_of_every_starter_are_read(variables: dict[str, str]) -> None:
    assert read_environment(variables | HOST) == Environment(3, 4, 1, 2, "n1")


def test_a_process_that_nobody_started_is_the_only_rank() -> None:
    assert read_environment(HOST) == Environment(0, 1, 0, 1, "n1")
    batch_script = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
    assert read_environment(batch_script | HOST).num_ranks == 1, "a batch script is no rank"


@pytest.mark.parametrize("missing", TORCHRUN)
def test_a_missing_variable_is_never_guessed(missing: str) -> None:
    """A pod with one rank of eight must not believe that all eight are on its machine."""
    with pytest.raises(ConfigError) as caught:
        read_environment({name: value for name, value in TORCHRUN.items() if name != missing})
    (problem,) = caught.value.problems
    assert problem.key == missing and missing in problem.fix


@pytest.mark.parametrize("tasks", ["", "2", "x", "2(x1)"])
def test_tasks_of_a_node_that_srun_does_not_list_are_not_guessed(tasks: str) -> None:
    with pytest.raises(ConfigError, match="LOCAL_WORLD_SIZE"):
        read_environment({**SRUN, "SLURM_STEP_TASKS_PER_NODE": tasks})


def test_uneven_nodes_of_srun_are_read() -> None:
    assert read_environment({**SRUN, "SLURM_STEP_TASKS_PER_NODE": "1,3"}).local_ranks == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RANK", "4"),
        ("RANK", "-1"),
        ("RANK", "٣"),
        ("LOCAL_RANK", "2"),
        ("LOCAL_WORLD_SIZE", "5"),
        ("WORLD_SIZE", "two"),
    ],
)
def test_numbers_that_fit_no_rank_are_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError):
        read_environment({**TORCHRUN, name: value})


def test_ranks_that_cannot_meet_say_what_is_missing() -> None:
    with pytest.raises(ConfigError) as caught:
        rendezvous_address({"MASTER_ADDR": ""})
    assert [problem.key for problem in caught.value.problems] == ["MASTER_ADDR", "MASTER_PORT"]
    assert rendezvous_address({"MASTER_ADDR": "n1", "MASTER_PORT": "29500"}) == ("n1", 29500)
