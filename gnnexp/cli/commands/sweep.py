"""`gnnexp sweep`: every case checked first, finished ones skipped, begun ones gone on with, failures kept."""

from __future__ import annotations

import argparse
import datetime
import re
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from gnnexp.cli.commands.report import of_sweep, show
from gnnexp.cli.console import make_console, marked, states_table
from gnnexp.cli.running.execute import complete
from gnnexp.cli.running.prepare import check_folder, checked, inputs_of
from gnnexp.cli.running.provenance import with_root
from gnnexp.cli.sweeping.cases import State, begun_jobs, keep_states, save_states
from gnnexp.cli.sweeping.definition import Case, Sweep, load_sweep
from gnnexp.cli.sweeping.known_runs import Looking, all_there, known_runs, stand
from gnnexp.cli.sweeping.once import looked_at_the_end, run_once
from gnnexp.cli.sweeping.plan import disk_of, tell_plan
from gnnexp.cli.sweeping.side_by_side import run_side_by_side
from gnnexp.cli.sweeping.submitted import run_submitted, submits
from gnnexp.config.compose import Composed
from gnnexp.errors import ConfigError, Problem, ProblemsError
from gnnexp.experiment.build import experiment_of, tracker_of
from gnnexp.experiment.experiment import target_of
from gnnexp.experiment.locate import missing_module
from gnnexp.launchers.kept import Launchers
from gnnexp.provenance.code import code_of_config
from gnnexp.provenance.run_key import run_key
from gnnexp.record.runs import RUNS
from gnnexp.reports.layout import check_named, read_layout


def main(options: argparse.Namespace) -> int:
    """Run what has not finished; 0 only if everything has."""
    if options.jobs < 1:
        raise ConfigError(Problem("--jobs", options.jobs, "must be at least 1", "--jobs 2"))
    out = Path(options.out) if options.out else None
    if out and (problems := check_folder("--out", out)):
        raise ConfigError(problems)
    console = make_console()
    sweep = replace(load_sweep(options.name, options.overrides, full=options.full), command=_command(options))
    looking = Looking(options.accept_foreign, all_there() if options.rerun else frozenset())
    composed, states = check_all(sweep, options.config_dir, looking)
    tell_plan(console, sweep, states, disk_of(composed, states))
    if not options.dry_run:
        states = run_all(sweep, composed, states, console, options.jobs, looking)
    rows = [(state.label, _standing(state), state.reason or state.run_dir) for state in states]
    console.print(states_table(rows, f"sweep {sweep.name}"))
    if options.dry_run:
        return 0
    counted = Counter(state.status for state in states)
    console.print(", ".join(f"{count} {status}" for status, count in counted.items()))
    if counted["submitted"]:
        console.print(f"when the jobs have ended: gnnexp sweep {sweep.name}, which runs what is left, and reports")
        return 0
    show(console, of_sweep(sweep.name, [state.run_dir for state in states], read_layout(sweep.report)), out)
    if counted["interrupted"]:
        return 130
    return 0 if counted["finished"] + counted["finished before"] == len(states) else 1


def _command(options: argparse.Namespace) -> str:
    """That makes the same sweep again, whatever has been done of it."""
    more = [*(["--config-dir", options.config_dir] if options.config_dir else []), *["--full"] * options.full]
    return with_root(shlex.join(["gnnexp", "sweep", options.name, *options.overrides, *more]))


def _standing(state: State) -> str:
    return "to go on with" if state.status == "waiting" and state.run_dir else state.status


def check_all(sweep: Sweep, config_dir: str | None, looking: Looking) -> tuple[list[Composed], list[State]]:
    """Compose and check every case, and find the runs that are done and those that were begun.

    Args:
        sweep: expanded.
        config_dir: the user's folder of configurations.
        looking: which runs that are there count.

    Raises:
        ConfigError: every problem of every case, each named by its case.
    """
    composed: list[Composed] = []
    wrong: dict[str, list[tuple[Case, Problem]]] = {}
    for number, case in enumerate(sweep.cases):
        try:
            composed.append(checked([*case.overrides, f"hydra.run.dir={_run_dir(sweep, case, number)}"], config_dir))
        except ProblemsError as error:
            for problem in error.problems:
                wrong.setdefault(str(problem), []).append((case, problem))
    problems = [_of_cases(found, len(sweep.cases)) for found in wrong.values()]
    if not problems:
        problems = check_named(read_layout(sweep.report), {key for item in composed for key in known_keys(item)},
                               f"sweep {sweep.name}: ")
    if problems:
        raise ConfigError(problems)
    known = known_runs(looking)
    states = [State(case.label, *keys) for case, keys in zip(sweep.cases, _keys_of(composed), strict=True)]
    return composed, [stand(one, state, known, accept_foreign=looking.accept_foreign)
                      for one, state in zip(composed, states, strict=True)]


def _of_cases(found: Sequence[tuple[Case, Problem]], num_cases: int) -> Problem:
    """One problem that some cases have in common, named by them."""
    (first, problem), count = found[0], len(found)
    where = "all cases" if count == num_cases > 1 else first.label
    more = f", and {count - 1} more" if 1 < count < num_cases else ""
    return replace(problem, key=f"[{where}{more}] {problem.key}")


def known_keys(composed: Composed) -> set[str]:
    """What a report may call a row by: keys of the configuration, groups of keys, and groups of choices."""
    known = {"system", *composed.choices}
    nodes: list[tuple[str, object]] = [("", composed.config)]
    while nodes:
        path, node = nodes.pop()
        if isinstance(node, dict):
            below = [(f"{path}.{key}".lstrip("."), value) for key, value in node.items()]
            known |= {key for key, _ in below}
            nodes += below
    return known


def _keys_of(composed: list[Composed]) -> list[tuple[str, str]]:
    """The key of every case and of its data; each dataset is read for it once."""
    known: dict[str, str] = {}
    keys = []
    for item in composed:
        experiment = experiment_of(item.config)
        node = experiment.config.group("dataset").text()
        if node not in known:
            try:
                known[node] = experiment.dataset.key()
            except ModuleNotFoundError as error:
                raise ConfigError(missing_module("dataset", target_of(experiment.dataset), error)) from error
        key = run_key(item.config, known[node], code_of_config(item.config), inputs_of(experiment))
        keys.append((key, known[node]))
    return keys


def _run_dir(sweep: Sweep, case: Case, number: int) -> Path:
    """A folder of its own for every case, under a name without characters that Hydra's grammar gives a meaning."""
    now = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
    label = re.sub(r"[^A-Za-z0-9_.-]+", "_", case.label)[:80].strip("_.")
    return RUNS / re.sub(r"[^A-Za-z0-9_.-]+", "_", sweep.name) / f"{now}-{number:03d}-{label}"


def run_all(
    sweep: Sweep, composed: list[Composed], states: list[State], console: Console, jobs: int, looking: Looking
) -> list[State]:
    """Run the waiting cases: in a cluster's queue, side by side, or one by one."""
    save = partial(keep_states, sweep)
    save_states(sweep, states)  # where this cannot be written, nothing is started
    for one, state in zip(composed, states, strict=True):
        if state.status == "finished before":  # an earlier call may have been killed before it was delivered
            complete(Path(state.run_dir), tracker_of(one.config))
    if all(submits(one) for one in composed):
        states = run_submitted(sweep, composed, states, console, save, looking)
    elif jobs > 1:
        states = run_side_by_side(sweep, composed, states, jobs, console, save, looking)
    else:
        states = _run_one_by_one(sweep, composed, states, console, save, looking)
    states = looked_at_the_end(composed, states, looking)
    save(states)
    return states


def _run_one_by_one(
    sweep: Sweep, composed: list[Composed], states: list[State], console: Console,
    save: Callable[[list[State]], None], looking: Looking,
) -> list[State]:
    """In order; one that fails does not stop the others, Ctrl-C does."""
    states = list(states)
    with Launchers() as launchers:
        launchers.controller.watch(begun_jobs(states))
        for position, state in enumerate(states):
            if state.status != "waiting":
                continue
            console.print(marked(f"\n{position + 1}/{len(states)}", "bold", f" {state.label}"), soft_wrap=True)
            states[position] = run_once(sweep, composed[position], state, console, launchers, looking)
            save(states)
            if states[position].status == "interrupted":
                break
    return states
