"""Every command of README, CONTRIBUTING and docs: read, composed and checked here; executed in `make test-slow`.

A command is looked at by the code of the command line itself, up to where a run would start. Whatever stands for many
commands (`gnnexp run …`) must name a command and options that there are.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import pytest
from documented_commands import ROOT, Command, commands_of, documented
from documents_place import linked_place

import gnnexp.cli.commands.sweep
import gnnexp.cli.main as command_line
from gnnexp.cli.running.prepare import checked_config
from gnnexp.cli.sweeping.definition import load_sweep
from gnnexp.config.compose import expand_values
from gnnexp.config.folders import product_folder, product_sweeps
from gnnexp.datasets.base import ROOT_VARIABLE
from gnnexp.errors import ConfigError
from gnnexp.reports.claims import installed_papers
from gnnexp.reports.query import query_names

COMMANDS = documented()
SHOWN = [command for command in COMMANDS if not command.is_usage]
USAGE = [command for command in COMMANDS if command.is_usage]
# What this machine lacks may be all that is wrong with a command for a cluster.
NO_CLUSTER = ("sbatch and srun are not on PATH", "no CUDA device is visible")


def named(command: Command) -> str:
    return f"{command.place} {command.text}"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which the names that the documentation uses lead somewhere."""
    with pytest.MonkeyPatch.context() as patch:
        folder = linked_place(tmp_path_factory.mktemp("documents"))
        patch.setenv("GNNEXP_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(sys, "path", [*sys.path])
        yield folder


# --- by the command line's own code, up to the start of a run ------------------------------------------------------
def check_run(options: argparse.Namespace) -> int:
    for line in product(*expand_values(options.overrides)):
        checked_config(line, options.config_dir)
    return 0


def check_sweep(options: argparse.Namespace) -> int:
    """Dry, with the first case of every value that is typed: `tests/test_conf.py` looks at the file's own cases."""
    sweep = load_sweep(options.name, options.overrides, full=options.full)
    typed = {value for values in expand_values(options.overrides) for value in values}
    chosen = {next(n for n, case in enumerate(sweep.cases) if value in case.overrides) for value in typed} | {0}
    few = replace(sweep, cases=tuple(sweep.cases[number] for number in sorted(chosen)), report={})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gnnexp.cli.commands.sweep, "load_sweep", lambda *_, **__: few)
        options.dry_run = True
        return gnnexp.cli.commands.sweep.main(options)


def check_report(options: argparse.Namespace) -> int:
    """Words are queries, sweeps, or places where runs are."""
    sweeps = {*product_sweeps()}
    known = {*query_names(), *sweeps, *(f"{sweep}_full" for sweep in sweeps), "RUN_DIR", "runs", "compare"}
    strange = {name for name in options.names if not name.endswith(".sql")} - known
    assert not strange, f"no query, no sweep and no place: {strange}"
    return 0


def check_plan(options: argparse.Namespace) -> int:
    folders = [product_folder("conf"), *map(Path, filter(None, [getattr(options, "config_dir", None)]))]
    profiles = {file.stem for folder in folders for file in (folder / "hardware").glob("*.yaml")}
    assert set(options.hardware.split(",")) <= {*profiles, "all"}
    return check_report(options)


def check_claims(options: argparse.Namespace) -> int:
    assert set(options.papers) <= set(installed_papers())
    return 0


CHECKS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": check_run,
    "partition": check_run,
    "sweep": check_sweep,
    "report": check_report,
    "planner": check_plan,
    "claims": check_claims,
}


@pytest.fixture
def checking(monkeypatch: pytest.MonkeyPatch) -> None:
    """`run_command` parses and guards as always; instead of a command its check is called. No cluster is asked."""
    monkeypatch.setattr(command_line, "_lazy", lambda name, *_: CHECKS.get(name, lambda options: 0))
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, *more: None if name in ("sbatch", "srun") else which(name, *more))


@pytest.mark.parametrize("command", [one for one in SHOWN if one.program == "gnnexp"], ids=named)
def test_a_command_is_right(
    command: Command, place: Path, checking: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not os.environ.get(ROOT_VARIABLE):
        pytest.skip(f"the documentation uses real data: set {ROOT_VARIABLE} to its root")
    monkeypatch.chdir(place / command.folder)
    monkeypatch.setattr(sys, "path", [str(place / command.folder), *sys.path])
    with contextlib.suppress(SystemExit):
        code = command_line.run_command([word.replace("FOLDER", "graph") for word in command.words[1:]])
        said = capsys.readouterr().err
        problems = re.findall(r"^  (?=\S)(.*)$", said, re.MULTILINE)
        assert code == 0 or (problems and all(any(words in line for words in NO_CLUSTER) for line in problems)), said
        return
    pytest.fail(capsys.readouterr().err)


@pytest.mark.parametrize("command", [one for one in USAGE if one.program == "gnnexp"], ids=named)
def test_what_stands_for_many_names_a_command_and_its_options(command: Command) -> None:
    (commands,) = (action for action in command_line.make_parser()._actions if isinstance(action.choices, dict))
    assert commands.choices is not None
    first, *words = re.sub(r"[\[\]]", "", " ".join(command.words[1:])).split()
    options = {option for action in commands.choices[first]._actions for option in action.option_strings}
    assert {word for word in words if word.startswith("-")} <= options
    others = [word for bar, word in pairwise(words) if bar == "|" and word.islower()]
    assert set(others) <= set(commands.choices)


def test_make_knows_every_target() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {command.words[1] for command in COMMANDS if command.program == "make"} <= targets


def test_every_module_and_test_folder_is_there() -> None:
    for command in COMMANDS:
        if command.program == "python":
            module, *arguments = command.words[2:]
            assert importlib.util.find_spec(module), named(command)
            if module == "pytest":
                assert all((ROOT / one).exists() for one in arguments if not one.startswith("-")), named(command)


# --- controls -------------------------------------------------------------------------------------------------------
PAGE = """
Inline `gnnexp run a=1` and `make lint`, but no `gnnexp[core]` and no `gnnexp`.
```
cd examples/layer
$ gnnexp run b=1   # a comment
gnnexp status RUN_DIR      gnnexp logs RUN_DIR [--rank R] [-f]
gnnexp report x && gnnexp report y
```
```python
gnnexp = 1
```
`gnnexp resume runs/2026-11-20/21-…-gsplit`, `gnnexp run … --cfg`, `gnnexp sweep NAME`, `gnnexp run a=NAME`
"""


def test_commands_are_found_as_they_are_written() -> None:
    found = list(commands_of(PAGE, "page"))
    texts = [command.text for command in found if not command.is_usage]
    assert texts == [
        "gnnexp run a=1",
        "make lint",
        "gnnexp run b=1",
        "gnnexp status RUN_DIR",
        "gnnexp report x",
        "gnnexp report y",
        "gnnexp resume runs/2026-11-20/21-…-gsplit",
    ]
    usage = [command.text for command in found if command.is_usage]
    assert usage == [
        "gnnexp logs RUN_DIR [--rank R] [-f]",
        "gnnexp run … --cfg",
        "gnnexp sweep NAME",
        "gnnexp run a=NAME",
    ]
    assert [command.folder for command in found if command.text in ("gnnexp run a=1", "gnnexp run b=1")] == [
        ".",
        "examples/layer",
    ]
    (resumed,) = (command for command in found if "resume" in command.text)
    assert resumed.words == ["gnnexp", "resume", "RUN_DIR"]


@pytest.mark.parametrize(
    "wrong",
    [
        ["run", "system=gsplitt"],
        ["run", "train.epoch=1"],
        ["run", "--no-such-option"],
        ["sweep", "no_such_sweep"],
        ["partition", "partitioner.num_part=3"],
        ["no_such_command"],
    ],
)
def test_a_wrong_command_is_noticed(
    wrong: list[str], place: Path, checking: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    try:
        assert command_line.run_command(wrong) == 2
    except SystemExit as end:
        assert end.code == 2


def test_a_report_of_nothing_is_noticed() -> None:
    with pytest.raises(AssertionError, match="no_such_report"):
        check_report(argparse.Namespace(names=["no_such_report"]))
    with pytest.raises(ConfigError):
        load_sweep("no_such_sweep")
