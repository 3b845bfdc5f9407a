"""`gnnexp sweep`: every case checked first, finished ones skipped, failures kept, a table at the end."""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from rich.console import Console

from gnnexp.cli.console import make_console, states_table
from gnnexp.cli.execute import execute
from gnnexp.cli.prepare import checked, dataset_of
from gnnexp.cli.report import Choice, show
from gnnexp.config.build import missing_module
from gnnexp.config.compose import Composed
from gnnexp.errors import ConfigError, Problem, ProblemsError
from gnnexp.records import write_json
from gnnexp.reports.runs import RUNS, find_runs, finished_by_key
from gnnexp.sweep import Case, Sweep, load_sweep, run_key

STATES = RUNS / "sweeps"


@dataclass(frozen=True)
class State:
    """Where a case stands.

    Attributes:
        label: of the case.
        key: of its configuration and data.
        run_dir: of its run, empty before it has one.
        status: `waiting`, `finished before`, `finished`, `failed`, `interrupted` or `submitted`.
        reason: why it failed.
    """

    label: str
    key: str
    run_dir: str = ""
    status: Literal["waiting", "finished before", "finished", "failed", "interrupted", "submitted"] = "waiting"
    reason: str = ""


def main(options: argparse.Namespace) -> int:
    """Run what has not finished; 0 only if everything has."""
    console = make_console()
    sweep = load_sweep(options.name, options.overrides)
    composed, states = check_all(sweep, options.config_dir)
    console.print(f"sweep {sweep.name}: {len(states)} runs, "
                  f"{sum(state.status != 'waiting' for state in states)} finished before. {sweep.description}",
                  soft_wrap=True)
    if not options.dry_run:
        states = run_all(sweep, composed, states, console)
    rows = [(state.label, state.status, state.reason or state.run_dir) for state in states]
    console.print(states_table(rows, f"sweep {sweep.name}"))
    if options.dry_run:
        return 0
    paths = [Path(state.run_dir) for state in states if state.run_dir]
    show(console, Choice(sweep.name, paths, sweep.report.get("rows", ()), sweep.report.get("kind") or ""))
    if any(state.status == "interrupted" for state in states):
        return 130
    return 0 if all(state.status.startswith("finished") for state in states) else 1


def check_all(sweep: Sweep, config_dir: str | None) -> tuple[list[Composed], list[State]]:
    """Compose and check every case, and find the runs that are done.

    Raises:
        ConfigError: every problem of every case, each named by its case.
    """
    composed: list[Composed] = []
    problems: list[Problem] = []
    for number, case in enumerate(sweep.cases):
        try:
            composed.append(checked([*case.overrides, f"hydra.run.dir={_run_dir(sweep, case, number)}"], config_dir))
        except ProblemsError as error:
            problems += [replace(problem, key=f"[{case.label}] {problem.key}") for problem in error.problems]
    if problems:
        raise ConfigError(problems)
    keys = _keys_of(composed)
    done = finished_by_key(find_runs())
    return composed, [
        State(case.label, key, str(done[key].path), "finished before") if key in done else State(case.label, key)
        for case, key in zip(sweep.cases, keys, strict=True)
    ]


def _keys_of(composed: list[Composed]) -> list[str]:
    """The key of every case; each dataset is read for it once."""
    known: dict[str, str] = {}
    keys = []
    for item in composed:
        node = json.dumps(item.config["dataset"], sort_keys=True)
        if node not in known:
            try:
                known[node] = dataset_of(item.config).key()
            except ModuleNotFoundError as error:
                raise ConfigError(missing_module("dataset", item.config["dataset"]["_target_"], error)) from error
        keys.append(run_key(item.config, known[node]))
    return keys


def _run_dir(sweep: Sweep, case: Case, number: int) -> Path:
    """A folder of its own for every case, under a name without characters that Hydra's grammar gives a meaning."""
    now = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
    label = re.sub(r"[^A-Za-z0-9_.-]+", "_", case.label)[:80].strip("_.")
    return RUNS / re.sub(r"[^A-Za-z0-9_.-]+", "_", sweep.name) / f"{now}-{number:03d}-{label}"


def run_all(sweep: Sweep, composed: list[Composed], states: list[State], console: Console) -> list[State]:
    """Run the waiting cases in order; one that fails does not stop the others, Ctrl-C does."""
    states = list(states)
    _save(sweep, states)
    for position, state in enumerate(states):
        if state.status != "waiting":
            continue
        console.print(f"\n[bold]{position + 1}/{len(states)}[/bold] {state.label}", soft_wrap=True)
        states[position] = _run_one(sweep, composed[position], state, console)
        _save(sweep, states)
        if states[position].status == "interrupted":
            break
    return states


def _run_one(sweep: Sweep, composed: Composed, state: State, console: Console) -> State:
    try:
        outcome = execute(composed, console, sweep.name)
    except ProblemsError as error:  # found in the data, which is only read when its turn comes
        print(f"gnnexp: {error}", file=sys.stderr)
        return replace(state, status="failed", reason=str(error.problems[0]).splitlines()[0])
    return replace(state, status=outcome.status, reason=outcome.reason, run_dir=str(composed.run_dir))


def _save(sweep: Sweep, states: list[State]) -> None:
    """What `gnnexp report NAME` reads."""
    write_json(STATES / f"{sweep.name}.json", {
        "schema": 1, "name": sweep.name, "rows": list(sweep.report.get("rows", ())), "kind": sweep.report.get("kind"),
        "cases": [asdict(state) for state in states],
    })
