"""`gnnexp report`: table and figure of a sweep or of single runs, and late delivery to the tracker."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from gnnexp.cli.console import make_console, states_table
from gnnexp.config.build import build
from gnnexp.config.compose import compose
from gnnexp.config.signature import unknown
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.reports.figure import draw_breakdown
from gnnexp.reports.runs import RUNS, find_runs, read_run
from gnnexp.reports.table import group_runs, make_table, row_keys, save_table
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
    name, paths, rows = choose(options.names)
    rows = options.rows.split(",") if options.rows else rows
    formats = [suffix for suffix, wanted in (("md", options.markdown), ("csv", options.csv)) if wanted]
    show(console, name, paths, rows, Path(options.out) if options.out else None, formats)
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


def choose(names: Sequence[str]) -> tuple[str, list[Path], Sequence[str]]:
    """Name of the report, run directories and row keys, from a sweep's name or from directories."""
    if len(names) == 1 and not Path(names[0]).is_dir():
        sweeps = {file.stem: file for file in STATES.glob("*.json")}
        if names[0] not in sweeps:
            raise ConfigError(unknown("report", names[0], names[0], sweeps))
        state = json.loads(sweeps[names[0]].read_text(encoding="utf-8"))
        paths = [Path(case["run_dir"]) for case in state["cases"] if case["run_dir"]]
        return names[0], paths, state["rows"]
    paths = [Path(name) for name in names]
    wrong = [Problem("report", str(path), "must be a run directory", "gnnexp report lists them")
             for path in paths if not path.is_dir()]
    if wrong:
        raise ConfigError(wrong)
    # A folder of runs stands for all of them.
    found = [run for path in paths for run in ([path] if (path / "job.json").exists() else _below(path))]
    return paths[0].resolve().name, found, ()


def _below(folder: Path) -> list[Path]:
    found = [run.path for run in find_runs(folder)]
    if not found:
        raise DataError(Problem("report", str(folder), "holds no run that has ended", "gnnexp report lists them"))
    return found


def show(
    console: Console, name: str, paths: Sequence[Path], rows: Sequence[str], out: Path | None = None,
    formats: Sequence[str] = ("md", "csv"),
) -> None:
    """Print the table and save it with the figure in `reports/<name>`."""
    runs = [read_run(path) for path in paths]
    if not any(run.status == "finished" for run in runs):
        console.print("no run has finished: nothing to compare")
        return
    keys = row_keys(runs, rows)
    groups = group_runs(runs, keys)
    table = make_table(groups, keys)
    console.print(table.rich(f"report {name}"))
    folder = out or REPORTS / name
    figures = [folder / "breakdown.png", folder / "breakdown.svg"]
    draw_breakdown(groups, figures, name)
    files = [*figures, *save_table(table, folder, "table", formats)]
    console.print("saved: " + ", ".join(map(str, files)), soft_wrap=True)
    console.print("next: `gnnexp ui` (or `make ui`) for the dashboard, `gnnexp report` for all runs", soft_wrap=True)


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
