"""`gnnexp report`: table and figure of a sweep or of single runs, and late delivery to the tracker."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from gnnexp.cli.console import make_console, states_table
from gnnexp.cli.page import Subject, publish
from gnnexp.cli.prepare import check_folder
from gnnexp.config.build import build
from gnnexp.config.compose import compose
from gnnexp.config.signature import unknown
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.reports.accuracy import curve_table, curves, draw_curves
from gnnexp.reports.figure import draw_breakdown
from gnnexp.reports.kinds import KINDS
from gnnexp.reports.published import beside
from gnnexp.reports.table import Table, group_runs, make_table, row_keys, save_table
from gnnexp.runs import RUNS, Run, find_runs, read_run
from gnnexp.trackers.base import Tracker, TrackingError
from gnnexp.trackers.delivery import read_run as read_record
from gnnexp.trackers.delivery import undelivered
from gnnexp.trackers.report_record import REPORT_FILE, read_report, undelivered_reports

REPORTS = Path("reports")
STATES = RUNS / "sweeps"


def main(options: argparse.Namespace) -> int:
    """List runs, show some of them, or deliver what is not delivered."""
    console = make_console()
    if options.sync:
        return sync(console, [Path(name) for name in options.names] or [RUNS, REPORTS])
    if not options.names:
        return list_runs(console)
    if options.rows and options.names[0] in KINDS:
        raise ConfigError(Problem("--rows", options.rows, f"{options.names[0]} has rows of its own", "leave it out"))
    choice = choose(options.names)
    if options.out and (problems := check_folder("--out", Path(options.out))):
        raise ConfigError(problems)
    if options.rows:  # asks for the comparison table
        choice = replace(choice, rows=options.rows.split(","), kind="", published=None)
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
        rows: config keys that name a row; empty: those that differ.
        kind: one of `KINDS`, empty for the comparison table.
        published: what of a paper stands beside the comparison (`Beside`), or None.
        sweep: whose own report this is; empty for any other.
    """

    name: str
    paths: Sequence[Path]
    rows: Sequence[str] = ()
    kind: str = ""
    published: Mapping[str, Any] | None = None
    sweep: str = ""


def choose(names: Sequence[str]) -> Choice:
    """A sweep by its name, or run directories; after a kind several of them, or every run."""
    if names[0] not in KINDS:
        return _choose(names)
    chosen = [_choose([name]) for name in names[1:]] or [Choice(names[0], _below(RUNS))]
    return Choice(chosen[0].name, [path for one in chosen for path in one.paths], kind=names[0])


def _choose(names: Sequence[str]) -> Choice:
    if len(names) == 1 and not Path(names[0]).is_dir():
        sweeps = {file.stem: file for file in STATES.glob("*.json")}
        if names[0] not in sweeps:
            raise ConfigError(unknown("report", names[0], names[0], [*sweeps, *KINDS]))
        state = json.loads(sweeps[names[0]].read_text(encoding="utf-8"))
        paths = [Path(case["run_dir"]) for case in state["cases"] if case["run_dir"]]
        return Choice(names[0], paths, state["rows"], state.get("kind") or "", state.get("published"),
                      sweep=names[0])
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
    folder = out or REPORTS / choice.name
    table, figures = (_of_kind if choice.kind else _comparison)(choice, runs, folder)
    console.print(table.rich(f"report {choice.name}"))
    files = [*figures, *save_table(table, folder, choice.kind or "table", formats)]
    subject = Subject(choice.name, choice.kind, choice.sweep, folder, delivered=out is None)
    files.append(publish(subject, runs, table, files, console))
    if files:
        console.print("saved: " + ", ".join(map(str, files)), soft_wrap=True)
    console.print("next: `gnnexp ui` (or `make ui`) for the dashboard, `gnnexp report` for all runs", soft_wrap=True)


def _comparison(choice: Choice, runs: Sequence[Run], folder: Path) -> tuple[Table, list[Path]]:
    keys = row_keys(runs, choice.rows)
    absent = [key for key in keys if runs and all(run.value(key) == "null" and not run.knows(key) for run in runs)]
    if choice.rows and absent:
        raise ConfigError([Problem("rows", key, "is no key of these runs' configurations",
                                   "a config key such as dataset, system, model.layers") for key in absent])
    groups = group_runs(runs, keys)
    finished = [group for group in groups if group.runs]
    figures = [folder / "breakdown.png", folder / "breakdown.svg"] if finished else []
    if finished:
        draw_breakdown(finished, figures, choice.name)
    if found := curves(finished, keys):
        lines = [folder / "accuracy.png", folder / "accuracy.svg"]
        draw_curves(found, lines, choice.name)
        figures += [*lines, *save_table(curve_table(found), folder, "accuracy", ("csv",))]
    if choice.published:
        return beside.make_table(groups, keys, beside.read_beside(choice.published)), figures
    return make_table(groups, keys), figures


def _of_kind(choice: Choice, runs: Sequence[Run], folder: Path) -> tuple[Table, list[Path]]:
    kind = KINDS[choice.kind]
    return kind.make_table(runs), kind.draw(runs, folder, choice.name) if kind.draw else []


def sync(console: Console, folders: Sequence[Path]) -> int:
    """Deliver what is not delivered, each record once; 1 if the store is away."""
    default = compose([]).config["tracker"]
    waiting: list[tuple[Path, Callable[[], bool]]] = []
    for run in sorted({path.parent for folder in folders for path in folder.rglob("job.json")}):
        tracker = build(read_record(run).job["config"].get("tracker", default), Tracker)
        # Without a result it is still running, or its launcher was killed: nobody knows its end.
        if tracker.where() and undelivered(run, tracker.where()) and (run / "result.json").exists():
            waiting.append((run, partial(tracker.deliver, run)))
    num_runs = len(waiting)
    for report in sorted({path.parent for folder in folders for path in folder.rglob(REPORT_FILE)}):
        tracker = build(read_report(report).tracker, Tracker)
        if tracker.where() and undelivered_reports(report, tracker.where()):
            waiting.append((report, partial(tracker.deliver_report, report)))
    delivered = [_delivered(console, *one) for one in waiting]
    reports = sum(delivered[num_runs:])
    console.print(f"{sum(delivered[:num_runs])} runs delivered"
                  + (f", {reports} report{'s' if reports > 1 else ''}" if reports else ""))
    return 0 if all(delivered) else 1


def _delivered(console: Console, folder: Path, deliver: Callable[[], bool]) -> bool:
    try:
        deliver()
    except TrackingError as error:
        console.print(f"{folder}: {error}", soft_wrap=True, markup=False)
        return False
    return True
