"""A report's page (`report.html`), and the delivery of a sweep's report to the tracker of its runs."""

from __future__ import annotations

import datetime
import hashlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from gnnexp.cli.console import marked
from gnnexp.cli.running.provenance import code_version
from gnnexp.cli.tracking import tracker_of
from gnnexp.record.runs import RUNS, Run
from gnnexp.reports.page.html import write_html
from gnnexp.reports.page.page import NamedTable, Page, PageFigure, RunLine, notes, page_figures, provenance, run_line
from gnnexp.reports.table import Table, save_table
from gnnexp.trackers.follow import follow
from gnnexp.trackers.report_record import ReportRecord, undelivered_reports

STATES = RUNS / "sweeps"
# MLflow's tags hold 8000 characters, in an index of the database fewer.
_MOST_CHARACTERS = 5000
_TITLES = {"table": "comparison"}


@dataclass(frozen=True)
class Subject:
    """What a page is of.

    Attributes:
        name: of the report's folder.
        query: by its name; empty for the comparison table.
        sweep: whose own report this is; empty for any other.
        folder: of the report's files.
        delivered: whether the tracker gets it; a report in a folder of the user's choice stays there.
        state: what the sweep's last call left; empty for other reports.
    """

    name: str
    query: str
    sweep: str
    folder: Path
    delivered: bool
    state: Mapping[str, Any] = field(default_factory=dict)


def publish(
    subject: Subject, runs: Sequence[Run], tables: Mapping[str, Table], data: Mapping[str, Table],
    files: Sequence[Path], console: Console,
) -> Path:
    """Write the page of a report whose other `files` are there; a sweep's report is delivered. The page's file.

    Args:
        subject: what it is of.
        runs: all of them.
        tables: by the name of their files.
        data: of figures, by the name of theirs.
        files: of the tables and figures.
        console: that is told of the delivery.
    """
    page = make_page(subject, runs, tables, page_figures(files, data))
    file = subject.folder / f"{'report' if subject.sweep or not subject.query else subject.query}.html"
    write_html(page, file)
    if subject.sweep and subject.delivered:
        saved = [path for name, table in tables.items()
                 for path in save_table(table, subject.folder, name, ("md", "csv"))]
        deliver(subject, page, runs, list(dict.fromkeys([*files, *saved, file])), console)
    return file


def make_page(
    subject: Subject, runs: Sequence[Run], tables: Mapping[str, Table], figures: Sequence[PageFigure],
) -> Page:
    """The report as a value; `tables` by the name of their files."""
    state = subject.state
    lines = _lines(state, runs)
    heading = f"{subject.name}: {subject.query}" if subject.query and not subject.sweep else subject.name
    named = [NamedTable(_TITLES.get(name, name).capitalize(), table) for name, table in tables.items()]
    return Page(
        title=heading, description=str(state.get("description", "")), command=str(state.get("command", "")),
        date=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC", version=code_version(),
        provenance=provenance(runs), tables=named, figures=figures, runs=lines, notes=notes(lines, runs))


def _lines(state: Mapping[str, Any], runs: Sequence[Run]) -> list[RunLine]:
    """A line per case, also of those that have no run; without cases a line per run."""
    by_path = {str(run.path): run for run in runs}
    return [
        run_line(by_path[case["run_dir"]], case["label"]) if case["run_dir"] in by_path
        else RunLine(case["label"], case["status"], case["reason"])
        for case in state.get("cases", ())
    ] or [run_line(run) for run in runs]


def deliver(subject: Subject, page: Page, runs: Sequence[Run], files: Sequence[Path], console: Console) -> None:
    """Hand the report to the tracker of its runs: in a process of its own, not waited for for ever, and once."""
    chosen = tracker_of(runs)
    if chosen is None:
        return
    node, tracker = chosen
    done = all(line.status == "finished" for line in page.runs)
    ReportRecord(
        uid=_uid(subject.sweep), sweep=subject.sweep, digest=page.digest(), status="finished" if done else "failed",
        note=_note(page), files=[file.name for file in files], tracker=node, code_version=page.version,
    ).save(subject.folder)
    if not undelivered_reports(subject.folder, tracker.where()):
        return
    reason = follow(subject.folder).finish(tracker.timeout_s)
    away = marked("tracking is away", "yellow", f" ({reason}); deliver the report later with: gnnexp report --sync")
    console.print(away if reason else f"delivered to the dashboard as `sweep {subject.sweep}`", soft_wrap=True)


def _uid(sweep: str) -> str:
    """The same for a sweep of this name in this folder of this machine, whatever becomes of the report's folder."""
    return hashlib.sha256(f"{platform.node()}:{(STATES / sweep).resolve()}".encode()).hexdigest()[:32]


def _note(page: Page) -> str:
    """Markdown: what it is, how to make it again, the tables as far as they fit; the files have everything."""
    parts = [page.description, f"```\n{page.command}\n```" if page.command else "",
             "".join(f"- {note}\n" for note in page.notes), "Files: `report.html` has everything (Artifacts)."]
    for named in page.tables:
        if len("\n\n".join([*parts, named.table.markdown()])) < _MOST_CHARACTERS:
            parts.append(named.table.markdown())
    return "\n\n".join(filter(None, parts))
