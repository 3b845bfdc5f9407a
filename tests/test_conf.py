"""Every YAML file under conf/ and sweeps/ says something that can be run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gnnexp.cli.commands.sweep import known_keys
from gnnexp.cli.sweeping.definition import Case, Sweep, load_sweep
from gnnexp.config.compose import compose
from gnnexp.config.folders import find_folders, product_folder, product_sweeps
from gnnexp.config.overrides import choice_problem, is_group, parse
from gnnexp.errors import Problem
from gnnexp.experiment.build import read
from gnnexp.experiment.kinds import COMPONENTS, kind_of
from gnnexp.experiment.shape import node_problems
from gnnexp.reports.layout import layout_problems, read_layout

CONF = product_folder("conf")
FILES = sorted(path.relative_to(CONF) for path in CONF.glob("*/*.yaml"))
CHOSEN = compose([]).choices
DEFAULTS = set(CHOSEN)
# What a choice goes together with.
COMPANIONS = {
    "dataset/gnnexp_format.yaml": ["dataset.path=somewhere"],
    "partitioner/stored.yaml": ["partitioner.path=somewhere"],
    "hardware/slurm_apptainer.yaml": ["hardware.launcher.image=gnnexp.sif"],
    "hardware/slurm_pyxis.yaml": ["hardware.launcher.image=gnnexp.sqsh"],
    "train/neutrontp.yaml": ["model=gcn", "sampler=full"],
    "train/hongtu.yaml": ["model=gcn", "sampler=full"],
    "train/planetoid_gat.yaml": ["model=gat", "sampler=full"],
    "train/planetoid_gcn.yaml": ["model=gcn", "sampler=full"],
}


# Choices of these groups say what goes together; those of all others change their own group only.
WHOLE = ("train", "system", "hardware", "tracker", "experiment")


def of_group(group: str) -> list[Path]:
    return [file for file in FILES if file.parent.name == group]


@cache
def composed(files: tuple[Path, ...]) -> dict[str, Any]:
    """The configuration with these choices. No test changes it."""
    lines = []
    for file in files:
        group = file.parent.name
        lines += [f"{'' if group in DEFAULTS else '+'}{group}={file.stem}", *COMPANIONS.get(str(file), [])]
    return compose(lines).config


@pytest.mark.parametrize("file", FILES, ids=str)
def test_a_choice_composes_and_fits_its_class(file: Path) -> None:
    """One of every independent group at a time: the first of all, the second of all, …"""
    group = file.parent.name
    if group in WHOLE:
        config = composed((file,))
        assert read(config).problems == ()
    else:
        place = of_group(group).index(file)
        config = composed(
            tuple(of_group(one)[place] for one in sorted(DEFAULTS.difference(WHOLE)) if place < len(of_group(one)))
        )
    problems = [problem for name in COMPONENTS for problem in node_problems(name, config[name], kind_of(name))]
    assert problems == []


def test_groups_are_the_folders_of_conf() -> None:
    assert find_folders(None).groups() == {path.name for path in CONF.iterdir() if path.is_dir()}
    assert {*COMPONENTS, "optimizer", "scheduler", "hardware", "train", "system"} == DEFAULTS
    assert find_folders(None).groups() == DEFAULTS | {"experiment"}


SWEEPS = product_sweeps()
FOLDERS = sorted({file.parent.name for file in SWEEPS.values()})  # a paper's each, and that of all others
FEW = 4


def differing(sweep: Sweep) -> dict[tuple[str, ...], Case]:
    """Seeds of one case differ in nothing that is checked, nor do numbers of parts before there is a graph."""
    unchecked = ("seed=", "partitioner.num_parts=")
    return {tuple(o for o in case.overrides if not o.startswith(unchecked)): case for case in sweep.cases}


def covering(cases: Mapping[tuple[str, ...], Case], left: set[str]) -> Iterator[Case]:
    """Of many cases so many that every override is in one of them: the one with most that are left, again and again.

    There is at least one, also where none is left.
    """
    begun = False
    while left or not begun:
        best = max(cases, key=lambda overrides: len(left.intersection(overrides)))
        left -= {*best}
        begun = True
        yield cases[best]


def check_sweep(sweep: Sweep, cases: Iterable[Case], known: set[str]) -> None:
    """These cases are right, and the report names what they and those before know, which is added to `known`."""
    assert sweep.description and sweep.cases
    for case in cases:
        composed = compose(case.overrides)
        assert read(composed.config).problems == (), case.label
        known.update(known_keys(composed))
    assert layout_problems(read_layout(sweep.report), known) == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_sweep_is_right(folder: str) -> None:
    """A case of each, that with most overrides of which no sweep before has one; every choice; all: the test below."""
    seen: set[str] = set()
    known: set[str] = set()
    for name in (name for name, file in SWEEPS.items() if file.parent.name == folder):
        sweep = load_sweep(name)
        cases = differing(sweep)
        first = next(covering(cases, {override for one in cases for override in one} - seen))
        check_sweep(sweep, [first], known)
        seen.update(first.overrides)
        assert wrong_choices(override for one in cases for override in one) == [], name


def wrong_choices(overrides: Iterable[str]) -> list[Problem]:
    """Of files that are not there. What is no override at all is a problem, too."""
    folders = find_folders(None)
    groups = folders.groups()
    parsed, problems = parse(sorted({*overrides}))
    found = [choice_problem(one, folders, CHOSEN) for one in parsed if is_group(one, groups)]
    return [*problems, *filter(None, found)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "full"),
    [
        *((name, False) for name in SWEEPS),
        *((name, True) for name, file in SWEEPS.items() if "\nfull:" in file.read_text()),
    ],
    ids=lambda value: value if isinstance(value, str) else "full" if value else "small",
)
def test_every_case_of_a_sweep_is_right(name: str, full: bool) -> None:
    sweep = load_sweep(name, full=full)
    cases = differing(sweep)
    left = {override for one in cases for override in one}
    check_sweep(sweep, cases.values() if len(cases) <= FEW else covering(cases, left), set())
