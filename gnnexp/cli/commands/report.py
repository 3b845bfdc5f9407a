"""`gnnexp report`: table and figure of a sweep or of single runs, and late delivery to the tracker."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from gnnexp.cli.commands.listing import first_comment
from gnnexp.cli.console import make_console
from gnnexp.cli.output import Answer
from gnnexp.cli.page import STATES, ReportSubject, publish, tracker_node
from gnnexp.cli.running.folders import folder_problems
from gnnexp.cli.running.store import prepare_store
from gnnexp.cli.runs import named_run
from gnnexp.cli.sweeping.definition import is_sweep_file, load_sweep, sweep_name
from gnnexp.components.signature import unknown
from gnnexp.config.compose import default_of
from gnnexp.config.folders import product_folder, product_sweeps
from gnnexp.errors import ConfigError, DataError, Findings, Problem, ProblemsError, unique
from gnnexp.experiment.build import build
from gnnexp.files.regular import is_folder
from gnnexp.planning.machine import machine_named
from gnnexp.record.records import JOB_FILE, RESULT_FILE, run_dirs
from gnnexp.record.runs import REPORTS, RUNS, RecordedRun, find_runs, read_run
from gnnexp.reports import overview, paper_table
from gnnexp.reports.answer import answers_of, draw_answer, table_of
from gnnexp.reports.budgets import of_runs
from gnnexp.reports.compare import comparison_of
from gnnexp.reports.comparison import chosen_columns, make_columns, make_table, target_columns, usual_columns
from gnnexp.reports.estimates_column import with_estimates
from gnnexp.reports.figures.draw import draw_all, usual_figures
from gnnexp.reports.layout import ReportLayout, layout_of, read_layout
from gnnexp.reports.metrics import unrecorded
from gnnexp.reports.overview import ORDERS
from gnnexp.reports.page.page import several_versions
from gnnexp.reports.paired.fastest import ANSWER, FASTEST, answer_table, setting_answers
from gnnexp.reports.paired.settings import SETTINGS, settings_table
from gnnexp.reports.paired.statistics import ALPHA, level_of_look
from gnnexp.reports.paired.verdicts import paired_results, paired_table
from gnnexp.reports.query import is_query, query_names, read_query
from gnnexp.reports.sweep_runs import SweepRuns, sweeps_run
from gnnexp.reports.tables.data import document_of
from gnnexp.reports.tables.groups import RunGroup, group_runs, row_keys
from gnnexp.reports.tables.save import save_table
from gnnexp.reports.tables.table import ReportTable
from gnnexp.reports.tables.terminal import terminal_cards, terminal_table
from gnnexp.trackers.base import Tracker, TrackingError
from gnnexp.trackers.delivery import REPORT_FILE, read_report, undelivered, undelivered_reports
from gnnexp.trackers.delivery import read_run_record as read_record
from gnnexp.trackers.patience import Patience

COMPARE = "compare"
# At most so many systems are described below the answer.
_MOST_SYSTEMS = 4
# Endings of files, and the options that ask for them.
_FORMATS = (("md", "markdown"), ("csv", "csv"), ("tex", "latex"), ("parquet", "parquet"))


def main(options: argparse.Namespace) -> Answer:
    """List runs, show or compare some of them, or deliver records that are not delivered yet."""
    console = make_console()
    names = [str(named_run(name)) for name in options.names]
    if options.sync:
        return _sync(console, [Path(name) for name in names] or [RUNS, REPORTS])
    formats = [suffix for suffix, option in _FORMATS if getattr(options, option)]
    out = Path(options.out) if options.out else None
    if out and (problems := folder_problems("--out", out)):
        raise ConfigError(problems)
    if not names:
        return tell(console, _list_runs(options.sort), "runs", out, formats)
    if options.sort:
        raise ConfigError(Problem("--sort", options.sort, "orders the list of all runs", "gnnexp report --sort date"))
    if names[0] == COMPARE:
        return tell(console, compare_runs(names[1:]), COMPARE, out, formats)
    if options.rows and is_query(names[0]):
        raise ConfigError(Problem("--rows", options.rows, f"{names[0]} has rows of its own", "leave it out"))
    choice = choose(names)
    if options.rows:  # row keys are for the comparison table
        choice = replace(choice, layout=ReportLayout(tuple(options.rows.split(","))))
    if options.against:
        choice = replace(choice, layout=replace(choice.layout, against=options.against))
    return show(console, choice, out, formats, paper=options.pdf)


def _list_runs(sort: str | None) -> ReportTable:
    """A table of all runs below `runs/` that have ended."""
    if sort is not None and sort not in ORDERS:
        raise ConfigError(unknown("--sort", sort, sort, ORDERS))
    runs = find_runs()
    if not runs:
        raise DataError(Problem(str(RUNS), "", "holds no run that has ended", "gnnexp run, or gnnexp sweep quickstart"))
    return overview.make_overview(runs, sort or ORDERS[0])


def compare_runs(names: Sequence[str]) -> ReportTable:
    """The comparison of two run directories."""
    wrong = [
        Problem("report compare", name, "must be a run directory", "gnnexp report lists them")
        for name in names
        if not is_folder(Path(name))
    ]
    if len(names) != 2:
        wrong.insert(
            0, Problem("report compare", " ".join(names), "takes two run directories", "gnnexp report compare RUN RUN")
        )
    ConfigError.raise_all(wrong)
    findings = Findings()
    runs = [findings.attempt(read_run, Path(name)) for name in names]
    findings.raise_all()
    return comparison_of(*(run for run in runs if run is not None))


def tell(console: Console, table: ReportTable, name: str, out: Path | None, formats: Sequence[str]) -> Answer:
    """Print a table that belongs to no sweep, and save it if formats are given."""
    if table.heading:
        console.print(table.heading, soft_wrap=True)
    console.print(terminal_table(table, console.width, name))
    if files := save_table(table, out or REPORTS / name, name, formats) if formats else []:
        console.print("saved: " + ", ".join(map(str, files)), soft_wrap=True)
    return Answer({"report": name, "tables": {name: document_of(table)}, "files": files})


def of_sweep(name: str, ran: SweepRuns) -> ReportSubject:
    """The runs of a sweep that have ended or failed. Kept records are shown as the sweep's file says today."""
    layout = layout_of(ran.state) if ran.here else read_layout(load_sweep(name).report)
    begun = {case["run_dir"] for case in ran.state["cases"] if case["run_dir"]}
    return ReportSubject(name, ran.runs, layout, name, len(begun) - len(ran.runs), ran.state)


def choose(names: Sequence[str], command: str = "report") -> ReportSubject:
    """The runs of a sweep, or of run directories. After a query: of several of these, or all runs.

    Raises:
        ConfigError: there is nothing of this name; the problem's key is `command`.
    """
    if not is_query(names[0]):
        return _choose(names, command)
    chosen = [_choose([name], command) for name in names[1:]] or [
        ReportSubject(Path(names[0]).stem, _below(RUNS, command))
    ]
    return ReportSubject(
        chosen[0].name, _each_once(run for subject in chosen for run in subject.runs), ReportLayout(query=names[0])
    )


def _each_once(runs: Iterable[RecordedRun]) -> list[RecordedRun]:
    """The runs, each once, although several names may lead to one: its directory and a folder that contains it."""
    return list({run.path.resolve(): run for run in runs}.values())


def _choose(names: Sequence[str], command: str) -> ReportSubject:
    if len(names) == 1 and not is_folder(Path(names[0])):
        name = sweep_name(names[0], command)
        if (ran := sweeps_run([name]).get(name)) is None:
            raise ConfigError(_not_run(command, names[0], name))
        return of_sweep(name, ran)
    paths = [Path(name) for name in names]
    ConfigError.raise_all(
        [
            Problem(command, str(path), "must be a run directory", "gnnexp list runs")
            for path in paths
            if not is_folder(path)
        ]
    )
    # A folder that contains runs stands for all of them.
    runs = [
        run
        for path in paths
        for run in ([read_run(path)] if os.path.lexists(path / JOB_FILE) else _below(path, command))
    ]
    return ReportSubject(paths[0].resolve().name, _each_once(runs))


def _not_run(command: str, typed: str, name: str) -> Problem:
    """The problem of a word that names no sweep of which there are runs, and no folder."""
    of_full = name.removesuffix("_full")
    sweeps = product_sweeps()
    if name in sweeps or is_sweep_file(typed):
        return Problem(command, typed, "this sweep was not run here", f"gnnexp sweep {shlex.quote(typed)}")
    if of_full in sweeps:
        return Problem(command, typed, "this sweep was not run here", f"gnnexp sweep {of_full} --full")
    if "/" in typed or typed.startswith((".", "~")):
        return Problem(command, typed, "there is no such folder", "correct the path; gnnexp list runs shows the runs")
    own = sorted(file.stem for file in STATES.glob("*.json"))
    return unknown(command, typed, typed, [*own, *sweeps, *query_names()])


def _below(folder: Path, command: str) -> list[RecordedRun]:
    found = find_runs(folder)
    if not found:
        raise DataError(Problem(command, str(folder), "holds no run that has ended", "gnnexp report lists them"))
    return found


def show(
    console: Console,
    choice: ReportSubject,
    out: Path | None = None,
    formats: Sequence[str] = ("md", "csv"),
    *,
    paper: bool = False,
) -> Answer:
    """Print the tables, and save them and the figures in `reports/<name>`; with `paper`, figures for a paper, too."""
    runs = choice.runs
    if choice.going_on:
        console.print(f"without {choice.going_on} runs that have not ended")
    if not runs:
        console.print("no run has ended: nothing to compare")
        return Answer({"report": choice.name, "tables": {}, "files": []})
    folder, tables, figures = out or REPORTS / choice.name, {}, []
    query = read_query(choice.layout.query, "report.query") if choice.layout.query else None
    if query:
        answers = answers_of(query, runs, f"{choice.name}: report.query")
        tables[query.name] = table_of(answers)
        figures += draw_answer(query, answers, folder, choice.name)
    if choice.layout.compares:
        tables |= _comparison(choice.layout, runs, int(choice.state.get("looks", 0)))
    keys = row_keys(runs, choice.layout.rows)
    usual = [] if query or choice.layout.figures is not None else usual_figures(runs, keys)
    drawn, data = draw_all(choice.layout.figures or usual, runs, keys, folder, choice.name, paper=paper)
    asked = [
        *choice.layout.columns.values(),
        *(metric for figure in choice.layout.figures or () for metric in figure.y),
    ]
    slips = unrecorded(runs, asked)
    notes = [
        *(f"Warning: {slip}." for slip in slips),
        *side_by_side(runs),
        *filter(None, choice.state.get("notes") or [of_runs(runs)]),
    ]
    for line in several_versions(runs):
        console.print(line, soft_wrap=True)
    for name, table in tables.items():
        tables[name] = replace(table, caption=" ".join([table.caption, *notes]))
        title = f"report {choice.name}: {name}"
        cards = name == ANSWER
        if tables[name].heading and not cards:
            console.print(tables[name].heading, style="bold", soft_wrap=True, highlight=False, markup=False)
        console.print(
            terminal_cards(tables[name], tables[name].header.index(FASTEST), title)
            if cards
            else terminal_table(tables[name], console.width, title)
        )
    files = [*figures, *drawn]
    files += [file for name, table in tables.items() for file in save_table(table, folder, name, formats)]
    files.append(publish(choice, out, tables, data, files, console))
    if files:
        console.print("saved: " + ", ".join(map(str, files)), soft_wrap=True)
    console.print("next: `gnnexp ui` (or `make ui`) for the dashboard, `gnnexp report` for all runs", soft_wrap=True)
    return Answer(
        {"report": choice.name, "tables": {name: document_of(table) for name, table in tables.items()}, "files": files}
    )


def side_by_side(runs: Sequence[RecordedRun]) -> list[str]:
    """How runs shared their machine, since their times depend on it; empty if each had the machine alone."""
    nodes = {(int(node.get("num_cases", 1)), int(node["cores"])) for run in runs for node in run.nodes}
    return [
        f"Cases ran {count} side by side, each on {cores} core{'s' if cores > 1 else ''} of its own."
        for count, cores in sorted(nodes)
        if count > 1
    ]


def _comparison(layout: ReportLayout, runs: Sequence[RecordedRun], looks: int) -> dict[str, ReportTable]:
    """The first answer, the comparison table, and the verdicts of `report.against`, at the level of look `looks`."""
    keys = row_keys(runs, layout.rows)
    groups = group_runs(runs, keys)
    if layout.published:
        table = paper_table.make_paper_table(groups, keys, layout.published)
    elif layout.columns:
        table = make_columns(groups, keys, layout.columns, layout.target)
    else:
        table = make_table(groups, keys, layout.target)
    if layout.estimate:
        table = with_estimates(table, groups, machine_named(layout.estimate), layout.paper, layout.published)
    first = _first_answer(groups, keys, layout)
    if not layout.against:
        return {**first, "table": table}
    if layout.columns:
        columns = [*chosen_columns(layout.columns), *target_columns(layout.target)]
    else:
        columns = usual_columns(groups, layout.target)
    level = level_of_look(looks) if looks else ALPHA
    results = paired_results(groups, keys, columns, layout.against, layout.equal, level)
    return {**first, "verdicts": paired_table(results, keys, layout.against, looks), "table": table}


def _first_answer(groups: Sequence[RunGroup], keys: Sequence[str], layout: ReportLayout) -> dict[str, ReportTable]:
    """Which system is fastest: all settings at a glance if there are several, and each with its reasons."""
    answers = setting_answers(groups, keys, layout.equal)
    if not answers:
        return {}
    answer = answer_table(answers, groups, keys)
    answer = replace(answer, caption=f"{answer.caption} {_about_systems(groups)}".strip())
    glance = settings_table(answers, groups, keys, answer.heading)
    return {SETTINGS: glance, ANSWER: replace(answer, heading="")} if glance else {ANSWER: answer}


def _about_systems(groups: Sequence[RunGroup]) -> str:
    """What each system is, as `gnnexp list systems` says it, if they are few."""
    names = sorted({run.value("system") for group in groups for run in group.runs})
    if len(names) > _MOST_SYSTEMS:
        return "What each system is: gnnexp list systems."
    files = {name: product_folder("conf") / "system" / f"{name}.yaml" for name in names}
    return " ".join(f"{name}: {_first_sentence(file)}" for name, file in files.items() if file.is_file())


def _first_sentence(file: Path) -> str:
    """The first sentence of a file's comment, which may go on in the next line."""
    return first_comment(file).partition(". ")[0].rstrip(".") + "."


def _sync(console: Console, folders: Sequence[Path]) -> Answer:
    """Deliver all records that are not delivered, each once. The exit code is 1 if the store is unavailable.

    Raises:
        ProblemsError: some records are damaged, or name a tracker that cannot be built or lacks a package; all others
            are delivered.
    """
    default = default_of("tracker")
    deliveries = [
        (path, waits)
        for file, waits in ((JOB_FILE, _run_waits), (REPORT_FILE, _report_waits))
        for path in sorted({path for folder in folders for path in run_dirs(folder, file)})
    ]
    counts = dict.fromkeys((_run_waits, _report_waits), 0)
    away, problems, seen, patience = False, list[Problem](), set[str](), Patience()

    def ready(tracker: Tracker) -> None:
        """An existing store is complete before anything counts as delivered to it."""
        if tracker.where() not in seen and not tracker.check_here():
            if why := prepare_store(tracker, console, folders, make=False):
                raise TrackingError(why.reason)
            seen.add(tracker.where())

    for path, waits in deliveries:
        try:
            if (deliver := waits(path, default, ready, patience)) is not None:
                deliver()
                counts[waits] += 1
        except TrackingError as error:
            away = True
            console.print(f"{path}: {error}", soft_wrap=True)
        except ProblemsError as error:
            problems += error.problems
    reports = counts[_report_waits]
    console.print(
        f"{counts[_run_waits]} runs delivered" + (f", {reports} report{'s' if reports > 1 else ''}" if reports else "")
    )
    if problems:
        raise DataError(unique(problems))
    return Answer({"runs_delivered": counts[_run_waits], "reports_delivered": reports}, int(away))


def _run_waits(
    run: Path, default: Mapping[str, Any], ready: Callable[[Tracker], None], patience: Patience
) -> Callable[[], bool] | None:
    """A function that delivers the run, or None if there is nothing to deliver.

    A run without a result is still running, or its launcher was killed: its end is not known.
    """
    job = read_record(run).job
    tracker = build(tracker_node(job["config"], job["provenance"], default), Tracker)
    if not tracker.where() or not os.path.lexists(run / RESULT_FILE):
        return None
    ready(tracker)
    due = undelivered(run, tracker.where())
    return _delivery(tracker, partial(tracker.deliver, run), patience) if due else None


def _report_waits(
    folder: Path, default: Mapping[str, Any], ready: Callable[[Tracker], None], patience: Patience
) -> Callable[[], bool] | None:
    """The same as `_run_waits`, for a sweep's report."""
    tracker = build(read_report(folder).tracker, Tracker)
    if not tracker.where():
        return None
    ready(tracker)
    due = undelivered_reports(folder, tracker.where())
    return _delivery(tracker, partial(tracker.deliver_report, folder), patience) if due else None


def _delivery(tracker: Tracker, deliver: Callable[[], bool], patience: Patience) -> Callable[[], bool]:
    """`deliver`, with patience, if this Python has the packages that it needs.

    Raises:
        ConfigError: a package is missing.
    """
    ConfigError.raise_all(tracker.check_here())
    return partial(patience.ask, tracker, deliver)
