"""An external command is checked before the launch, and handed what the documentation says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gnnexp.comm.environment import Environment
from gnnexp.components.facts import GraphFacts
from gnnexp.config.compose import compose
from gnnexp.experiment.build import read
from gnnexp.paradigms.external.lines import NAMES
from gnnexp.paradigms.external.variables import Handed, variables_of
from gnnexp.preparation.preflight import estimate_memory
from gnnexp.testing.graphs import nasty_graph

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "external.md"
ECHO = "paradigm.command=[echo,hello]"


def reading(*overrides: str):
    return read(compose(["paradigm=external", "tracker=none", *overrides]).config)


def problems(*overrides: str) -> list[str]:
    return [problem.key for problem in reading(*overrides).problems]


def test_a_command_that_can_be_started_has_no_problem() -> None:
    assert problems(ECHO) == [] and problems("paradigm.command=[echo,3,0.1,--rate]") == []
    assert reading("paradigm.command=[echo,3,0.1]").experiment.paradigm.words == ("echo", "3", "0.1")
    assert problems(ECHO, "hardware.nodes=1", "partitioner=hdrf", "paradigm.partition=true") == []


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["paradigm.command=[]"], "paradigm.command"),
        (["paradigm.command=[no-such-program]"], "paradigm.command"),
        (["paradigm.command=['echo hello']"], "paradigm.command"),
        (["paradigm.command=[python,no_such_script.py]"], "paradigm.command"),
        (["paradigm.command=echo"], "paradigm.command"),
        (["paradigm.command=[echo,true]"], "paradigm.command"),
        ([ECHO, "paradigm.files=[nowhere]"], "paradigm.files"),
        ([ECHO, "paradigm.files=[/dev/null]"], "paradigm.files"),
        ([ECHO, f"paradigm.files=[{'n' * 3000}]"], "paradigm.files"),
        ([ECHO, "paradigm.uses=[modell]"], "paradigm.uses"),
        ([ECHO, "paradigm.silent_s=0"], "paradigm.silent_s"),
        ([ECHO, "hardware.throttle=1e9"], "hardware.throttle"),
        ([ECHO, "hardware=slurm_cpu", "hardware.nodes=2", "paradigm.processes=run"], "paradigm.processes"),
    ],
    ids=str,
)
def test_conflicts_are_named_before_the_launch(overrides: list[str], key: str) -> None:
    assert key in problems(*overrides)


def test_no_shell_reads_the_command() -> None:
    assert problems("paradigm.command=['echo;touch x']") == ["paradigm.command"]


def test_the_plan_has_a_label_and_a_partition_if_asked() -> None:
    for wanted, uses in ((False, ""), (True, "model,train")):
        experiment = reading(
            ECHO, f"paradigm.partition={wanted}", f"paradigm.uses=[{uses}]", "hardware.workers=3"
        ).experiment
        facts = GraphFacts.of(nasty_graph())
        plan = experiment.paradigm.plan(experiment, facts)
        assert plan.num_parts == (3 if wanted else None) and not plan.is_exact
        assert plan.approximates.startswith("external system: not checked by gnnexp")
        assert ("model, train" in plan.approximates) == wanted
        lines = estimate_memory(experiment, facts, plan, 10).lines("host")
        assert not [line for line in lines if "evaluation" in line or "parameters" in line], "of gnnexp's ranks only"


def handed(**changes: object) -> Handed:
    values = {
        "scratch": Path("s"),
        "graph": Path("g"),
        "partition": Path("p"),
        "config": Path("c"),
        "epochs": Path("e"),
        "seed": 7,
        "device": "cpu",
        "threads": 2,
        "resumed": True,
        "num_ranks": 2,
        "port": 99,
    }
    return Handed(**{**values, **changes})


def test_ranks_get_the_variables_of_torchrun() -> None:
    inherited = {"HOME": "h", "MASTER_PORT": "1", "GNNEXP_PARTITION": "of somebody else"}
    found = variables_of(inherited, handed(), Environment(1, 2, 1, 2), alone=False)
    assert (found["RANK"], found["WORLD_SIZE"], found["MASTER_PORT"], found["HOME"]) == ("1", "2", "99", "h")
    assert found["GNNEXP_EPOCHS"] == "/dev/null" and found["GNNEXP_RESUME"] == "1" and found["GNNEXP_PARTITION"] == "p"
    alone = variables_of(inherited, handed(partition=None), Environment(0, 2, 0, 2), alone=True)
    assert not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GNNEXP_PARTITION"} & alone.keys()
    assert alone["GNNEXP_EPOCHS"] == "e" and alone["GNNEXP_RANKS"] == "2"


def test_the_page_names_every_variable() -> None:
    made = variables_of({}, handed(), Environment(), alone=False).keys() - {"PATH"}
    table = PAGE.read_text().partition("## What the command gets")[2].partition("## ")[0]
    assert set(re.findall(r"`((?:GNNEXP_|MASTER_|LOCAL_)?[A-Z_]+)`", table)) == made


def test_the_page_names_keys_that_are_taken() -> None:
    table = PAGE.read_text().partition("## What the command reports")[2].partition("## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    keys = {key for cell in cells for key in re.findall(r"`([^`]+)`", cell)}
    assert {key for key in keys if "/" not in key} <= {"epoch", *NAMES}
