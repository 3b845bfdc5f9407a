"""`gnnexp report`: table and figure of a sweep or of single runs, and late delivery to the tracker."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from gnnexp.cli.console import make_console, states_table
from gnnexp.cli.prepare import check_folder
from gnnexp.config.build import build
from gnnexp.config.compose import compose
from gnnexp.config.signature import unknown
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.planner.profiles import machine_named
from gnnexp.reports.estimated import with_estimates
from gnnexp.reports.figures.draw import draw_all, usual_figures
from gnnexp.reports.kinds import KINDS
from gnnexp.reports.layout import Layout, layout_of
from gnnexp.reports.published import beside
from gnnexp.reports.table import Table, group_runs, make_columns, make_table, row_keys, save_table
from gnnexp.runs import RUNS, Run, find_runs, read_run
from gnnexp.trackers.base import Tracker, TrackingError
from gnnexp.trackers.delivery import read_run as read_record
from gnnexp.trackers.delivery import undelivered

REPORTS = Path("reports")
STATES = RUNS / "sweeps"


def main(options: argparse.Namespace) -> int:
    """List runs, show some of them, or deliver what is not delivered."""
    console = make_console()
    if options.sync:
        return sync(console, [Path(name) for name in options.names] or [RUNS])
    if not options.names:
        return list_runs(console)
    if options.rows and options.names[0] in KINDS:
        raise ConfigError(Problem("--rows", options.rows, f"{options.names[0]} has rows of its own", "leave it out"))
    choice = choose(options.names)
    if options.out and (problems := check_folder("--out", Path(options.out))):
        raise ConfigError(problems)
    if options.rows:  # asks for the comparison table
        choice = replace(choice, layout=Layout(tuple(options.rows.split(","))))
    formats = [suffix for suffix, wanted in (("md", options.markdown), ("csv", options.csv)) if wanted]
    show(console, choice, Path(options.out) if options.out else None, formats)
    return 0


def list_runs(console: Console) -> int:
    """Every run below `runs/` that has ended."""
    runs = find_runs()
    if not runs:
        raise DataError(Problem(str(RUNS), "", "holds no run that has ended", "gnnexp run, or gnnexp sweep quickstart"))
    rows = [
        (" ".join(run.value(key) for key in ("system", "dataset", "model")), run.status, run.reason or str(run.path))
        for run in runs
    ]
    console.print(states_table(rows, "runs"))
    return 0


@dataclass(frozen=True)
class Choice:
    """What a report is about.

    Attributes:
        name: of its folder.
        paths: run directories.
        layout: what it shows.
    """

    name: str
    paths: Sequence[Path]
    layout: Layout = field(default_factory=Layout)


def choose(names: Sequence[str]) -> Choice:
    """A sweep by its name, or run directories; after a kind several of them, or every run."""
    if names[0] not in KINDS:
        return _choose(names)
    chosen = [_choose([name]) for name in names[1:]] or [Choice(names[0], _below(RUNS))]
    return Choice(chosen[0].name, [path for one in chosen for path in one.paths], Layout(kind=names[0]))


def _choose(names: Sequence[str]) -> Choice:
    if len(names) == 1 and not Path(names[0]).is_dir():
        sweeps = {file.stem: file for file in STATES.glob("*.json")}
        if names[0] not in sweeps:
            raise ConfigError(unknown("report", names[0], names[0], [*sweeps, *KINDS]))
        state = json.loads(sweeps[names[0]].read_text(encoding="utf-8"))
        paths = [Path(case["run_dir"]) for case in state["cases"] if case["run_dir"]]
        return Choice(names[0], paths, layout_of(state))
    paths = [Path(name) for name in names]
    wrong = [Problem("report", str(path), "must be a run directory", "gnnexp report lists them")
             for path in paths if not path.is_dir()]
    if wrong:
        raise ConfigError(wrong)
    # A folder of runs stands for all of them.
    found = [run for path in paths for run in ([path] if (path / "job.json").exists() else _below(path))]
    return Choice(paths[0].resolve().name, found)


def _below(folder: Path) -> list[Path]:
    found = [run.path for run in find_runs(folder)]
    if not found:
        raise DataError(Problem("report", str(folder), "holds no run that has ended", "gnnexp report lists them"))
    return found


def show(
    console: Console, choice: Choice, out: Path | None = None, formats: Sequence[str] = ("md", "csv"),
) -> None:
    """Print the table and save it with the figure in `reports/<name>`."""
    runs = [read_run(path) for path in choice.paths]
    if not runs:
        console.print("no run has ended: nothing to compare")
        return
    folder, tables, figures = out or REPORTS / choice.name, {}, []
    if choice.layout.kind:
        kind = KINDS[choice.layout.kind]
        tables[choice.layout.kind] = kind.make_table(runs)
        figures += kind.draw(runs, folder, choice.name) if kind.draw else []
    if choice.layout.compares:
        tables["table"] = _comparison(choice.layout, runs)
    keys = row_keys(runs, choice.layout.rows)
    usual = [] if choice.layout.kind or choice.layout.figures is not None else usual_figures(runs, keys)
    figures += draw_all(choice.layout.figures or usual, runs, keys, folder, choice.name)
    for table in tables.values():
        console.print(table.rich(f"report {choice.name}"))
    files = [*figures, *(file for name, table in tables.items() for file in save_table(table, folder, name, formats))]
    if files:
        console.print("saved: " + ", ".join(map(str, files)), soft_wrap=True)
    console.print("next: `gnnexp ui` (or `make ui`) for the dashboard, `gnnexp report` for all runs", soft_wrap=True)


def _comparison(layout: Layout, runs: Sequence[Run]) -> Table:
    keys = row_keys(runs, layout.rows)
    groups = group_runs(runs, keys)
    if layout.published:
        table = beside.make_table(groups, keys, layout.published)
    elif layout.columns:
        table = make_columns(groups, keys, layout.columns)
    else:
        table = make_table(groups, keys)
    if layout.estimate:
        return with_estimates(table, groups, machine_named(layout.estimate), layout.published)
    return table


def sync(console: Console, folders: Sequence[Path]) -> int:
    """Deliver what is not delivered, each record once; 1 if the store is away."""
    default = compose([]).config["tracker"]
    code = 0
    runs = sorted({run for folder in folders for run in (path.parent for path in folder.rglob("job.json"))})
    count = 0
    for run in runs:
        node = read_record(run).job["config"].get("tracker", default)
        tracker = build(node, Tracker)
        if not tracker.where() or not undelivered(run, tracker.where()):
            continue
        if not (run / "result.json").exists():
            continue  # still running, or its launcher was killed: nobody knows its end
        try:
            tracker.deliver(run)
            count += 1
        except TrackingError as error:
            console.print(f"{run}: {error}", soft_wrap=True, markup=False)
            code = 1
    console.print(f"{count} runs delivered")
    return code
