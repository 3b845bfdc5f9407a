"""`gnnexp sweep`: checks all cases first, skips finished ones, continues begun ones, and records failures."""

from __future__ import annotations

import argparse
import datetime
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from gnnexp.cli.commands.listing import sweeps_answer
from gnnexp.cli.console import make_console
from gnnexp.cli.output import Answer
from gnnexp.cli.running.prepare import CheckedConfig, checked_config
from gnnexp.cli.running.scripts import print_scripts
from gnnexp.cli.sweeping.case import CaseState, QueuedCase
from gnnexp.cli.sweeping.command import (
    add_and_work,
    check_added,
    check_options,
    command_of,
    finish_sweep,
    reuse_rules_of,
)
from gnnexp.cli.sweeping.definition import Case, Sweep, load_sweep, sweep_file
from gnnexp.cli.sweeping.edited import FollowedFile
from gnnexp.cli.sweeping.known_runs import planned
from gnnexp.cli.sweeping.queue import Queue
from gnnexp.cli.sweeping.until import check_until, work_until_decided
from gnnexp.components.signature import unknown
from gnnexp.config.compose import ComposedConfig
from gnnexp.config.folders import PRIMARY
from gnnexp.errors import ConfigError, Problem, ProblemsError
from gnnexp.launchers.base import Launchers
from gnnexp.record.runs import RUNS
from gnnexp.reports.layout import layout_problems, read_layout


def main(options: argparse.Namespace) -> Answer:
    """Run the cases that have not finished. The exit code is 0 only if all have finished."""
    if options.list:
        return sweeps_answer()
    if options.name is None:
        raise ConfigError(Problem("sweep", None, "needs the name or the file of a sweep", "gnnexp list sweeps"))
    check_options(options)
    sweep = load_sweep(options.name, options.overrides, full=options.full)
    words = ["sweep", options.name, *options.overrides, *["--full"] * options.full]
    queue = Queue(replace(sweep, command=command_of(options, words)), reuse_rules_of(options), make_console())
    queue.retries = sweep.retries if options.retries is None else options.retries
    for note in sweep.notes:
        queue.console.print(note, soft_wrap=True)
    where = {"config_dir": options.config_dir, "config_name": options.config_name}
    if options.until:
        check_until(options, sweep)
    checked = check_all(sweep, **where)
    if options.print_script:
        cases = [
            QueuedCase(sweep.name, sweep.command, config, CaseState(case.label))
            for case, config in zip(sweep.cases, checked, strict=True)
        ]
        return print_scripts(
            [
                (case.experiment, Path(case.state.run_dir or case.checked.composed.run_dir))
                for case in planned(cases, queue.reuse)
                if case.state.status == "waiting"
            ]
        )
    with Launchers() as launchers:
        if options.until:
            work_until_decided(queue, options, launchers, partial(check_all, **where))
            return finish_sweep(queue, options)
        labelled = [(case.label, config) for case, config in zip(sweep.cases, checked, strict=True)]
        read = partial(load_sweep, options.name, options.overrides, full=options.full)

        def check(edited: Sweep) -> list[CheckedConfig]:
            added = check_all(edited, **where)
            check_added(checked, added, options.jobs)
            return added

        queue.follow = FollowedFile(sweep_file(options.name), sweep.cases, read, check)
        add_and_work(queue, labelled, options, launchers)
    return finish_sweep(queue, options)


def check_all(sweep: Sweep, config_dir: str | None, config_name: str = PRIMARY) -> list[CheckedConfig]:
    """The configurations of all cases, with their experiments.

    Raises:
        ConfigError: every problem of every case, each named by its case.
    """
    checked: list[CheckedConfig] = []
    wrong: dict[str, list[tuple[Case, Problem]]] = {}
    for number, case in enumerate(sweep.cases):
        try:
            lines = [*case.overrides, f"hydra.run.dir={run_dir_of(sweep, case, number)}"]
            checked.append(checked_config(lines, config_dir, config_name))
        except ProblemsError as error:
            for problem in error.problems:
                wrong.setdefault(str(problem), []).append((case, problem))
    problems = [_of_cases(problem_set, len(sweep.cases)) for problem_set in wrong.values()]
    if not problems:
        known = {key for config in checked for key in known_keys(config.composed)}
        layout, where = read_layout(sweep.report), f"sweep {sweep.name}: "
        problems = [*layout_problems(layout, known, where), *_rival_problems(layout.against, checked, where)]
    ConfigError.raise_all(problems)
    return checked


def _rival_problems(against: str, checked: Sequence[CheckedConfig], where: str) -> list[Problem]:
    """The problem of a sweep whose report compares with a system that no case has."""
    systems = dict.fromkeys(config.composed.system for config in checked)
    return [unknown(f"{where}report.against", against, against, systems)] if against and against not in systems else []


def _of_cases(found: Sequence[tuple[Case, Problem]], num_cases: int) -> Problem:
    """One problem that some cases share, with these cases in its key."""
    (first, problem), count = found[0], len(found)
    where = "all cases" if count == num_cases > 1 else first.label
    more = f", and {count - 1} more" if 1 < count < num_cases else ""
    return replace(problem, key=f"[{where}{more}] {problem.key}")


def known_keys(composed: ComposedConfig) -> set[str]:
    """The names by which a report may label rows: configuration keys, groups of keys, and groups of choices."""
    known = {"system", *composed.choices}
    nodes: list[tuple[str, object]] = [("", composed.config)]
    while nodes:
        path, node = nodes.pop()
        if isinstance(node, dict):
            below = [(f"{path}.{key}".lstrip("."), value) for key, value in node.items()]
            known |= {key for key, _ in below}
            nodes += below
    return known


def run_dir_of(sweep: Sweep, case: Case, number: int) -> Path:
    """A folder for the case, with a name that has no special characters of Hydra's grammar."""
    now = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
    label = re.sub(r"[^A-Za-z0-9_.-]+", "_", case.label)[:80].strip("_.")
    return RUNS / re.sub(r"[^A-Za-z0-9_.-]+", "_", sweep.name) / f"{now}-{number:03d}-{label}"
