"""A report's page (`report.html`), and the delivery of a sweep's report to the tracker of its runs."""

from __future__ import annotations

import datetime
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from gnnexp.cli.console import marked
from gnnexp.cli.running.place import sweep_uid
from gnnexp.cli.running.store import prepare_store
from gnnexp.config.compose import default_of
from gnnexp.experiment.build import build
from gnnexp.provenance.versions import code_version
from gnnexp.record.archive import imported_from
from gnnexp.record.runs import REPORTS, RUNS, RecordedRun
from gnnexp.reports.layout import ReportLayout
from gnnexp.reports.page.html import write_html
from gnnexp.reports.page.page import NamedTable, Page, PageFigure, RunLine, notes, page_figures, provenance, run_line
from gnnexp.reports.paired.fastest import ANSWER, FASTEST, HEADING
from gnnexp.reports.paired.settings import SETTINGS
from gnnexp.reports.tables.markdown import markdown_of
from gnnexp.reports.tables.save import save_table
from gnnexp.reports.tables.table import ReportTable
from gnnexp.trackers.base import Tracker
from gnnexp.trackers.delivery import VERDICT, ReportRecord, undelivered_reports
from gnnexp.trackers.follow import start_delivery


def tracker_node(
    config: Mapping[str, Any], provenance: Mapping[str, Any], default: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The tracker that a run was configured with; for an imported run it is `default`, whatever its record says."""
    own: Mapping[str, Any] = default if imported_from(provenance) else config.get("tracker", default)
    return own


def latest_tracker(runs: Sequence[RecordedRun]) -> tuple[Mapping[str, Any], Tracker] | None:
    """The tracker of the latest run whose tracker delivers anywhere. Imported runs use the tracker of this folder."""
    default: Mapping[str, Any] = {}
    for run in reversed(runs):
        if not default and (imported_from(run.provenance) or "tracker" not in run.config):
            default = default_of("tracker")
        node = tracker_node(run.config, run.provenance, default)
        if (tracker := build(node, Tracker)).where():
            return node, tracker
    return None


STATES = RUNS / "sweeps"
# MLflow's tags hold 8000 characters, and fewer in an index of the database.
_MOST_CHARACTERS = 5000
_TITLES = {"table": "comparison", SETTINGS: "answer"}


@dataclass(frozen=True)
class ReportSubject:
    """The subject of a report.

    Attributes:
        name: name of the report's folder.
        runs: runs that have ended.
        layout: the contents of the report.
        sweep: name of the sweep if this is the sweep's own report, else empty.
        going_on: number of runs of the sweep that have not ended.
        state: contents of the sweep's state file, as its last call left it.
    """

    name: str
    runs: Sequence[RecordedRun]
    layout: ReportLayout = field(default_factory=ReportLayout)
    sweep: str = ""
    going_on: int = 0
    state: Mapping[str, Any] = field(default_factory=dict)

    @property
    def query(self) -> str:
        """The name of the query; empty for the comparison table."""
        return Path(self.layout.query).stem


def publish(
    choice: ReportSubject,
    out: Path | None,
    tables: Mapping[str, ReportTable],
    data: Mapping[str, ReportTable],
    files: Sequence[Path],
    console: Console,
) -> Path:
    """Write the page of a report whose other `files` exist, deliver a sweep's report, and return the page's file.

    Args:
        choice: the subject of the report.
        out: folder of the user's choice. A report there is not delivered.
        tables: tables by the name of their files.
        data: data of figures by the name of their files.
        files: files of the tables and figures.
        console: where the delivery is reported.
    """
    folder = out or REPORTS / choice.name
    page = make_page(choice, tables, page_figures(files, data))
    file = folder / f"{'report' if choice.sweep or not choice.query else choice.query}.html"
    write_html(page, file)
    if choice.sweep and out is None:
        saved = [path for name, table in tables.items() for path in save_table(table, folder, name, ("md", "csv"))]
        _deliver(choice, page, list(dict.fromkeys([*files, *saved, file])), console)
    return file


def make_page(choice: ReportSubject, tables: Mapping[str, ReportTable], figures: Sequence[PageFigure]) -> Page:
    """The page of a report as a value; `tables` are given by the name of their files."""
    state, runs = choice.state, choice.runs
    lines = _lines(state, runs)
    heading = f"{choice.name}: {choice.query}" if choice.query and not choice.sweep else choice.name
    named = [
        NamedTable(_title(name, tables), table, table.header.index(FASTEST) if name == ANSWER else None)
        for name, table in tables.items()
    ]
    return Page(
        title=heading,
        description=str(state.get("description", "")),
        command=str(state.get("command", "")),
        date=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
        version=code_version(),
        provenance=provenance(runs),
        tables=named,
        figures=figures,
        runs=lines,
        notes=notes(lines, runs),
    )


def _title(name: str, tables: Container[str]) -> str:
    """The heading of a table."""
    return "Setting by setting" if name == ANSWER and SETTINGS in tables else _TITLES.get(name, name).capitalize()


def _lines(state: Mapping[str, Any], runs: Sequence[RecordedRun]) -> list[RunLine]:
    """A line per case, including cases without a run; if there are no cases, a line per run."""
    by_path = {str(run.path): run for run in runs}
    return [
        run_line(by_path[case["run_dir"]], case["label"])
        if case["run_dir"] in by_path
        else RunLine(case["label"], case["status"], case["reason"])
        for case in state.get("cases", ())
    ] or [run_line(run) for run in runs]


def _deliver(choice: ReportSubject, page: Page, files: Sequence[Path], console: Console) -> None:
    """Give the report to the tracker of its runs, once, in a process of its own that gets `timeout_s` at most."""
    chosen, folder = latest_tracker(choice.runs), REPORTS / choice.name
    if chosen is None:
        return
    node, tracker = chosen
    done = all(line.status == "finished" for line in page.runs)
    ReportRecord(
        uid=sweep_uid(choice.sweep),
        sweep=choice.sweep,
        digest=page.digest(),
        status="finished" if done else "failed",
        note=_note(page),
        files=[file.name for file in files],
        tracker=node,
        code_version=page.version,
        verdicts=verdicts_of(page.tables),
    ).save(folder)
    if not undelivered_reports(folder, tracker.where()):
        return
    reason = prepare_store(tracker, console) or start_delivery(folder).finish(tracker.timeout_s)
    away = marked("tracking is away", "yellow", f" ({reason}); deliver the report later with: gnnexp report --sync")
    console.print(away if reason else f"delivered to the dashboard as `sweep {choice.sweep}`", soft_wrap=True)


def verdicts_of(tables: Sequence[NamedTable]) -> dict[str, str]:
    """The answers of a report in short: the fastest system, and each paired verdict."""
    verdicts: dict[str, str] = {}
    for named in tables:
        table, rows = named.table, named.table.texts
        if table.heading.startswith(HEADING):
            verdicts[FASTEST] = table.heading.removeprefix(HEADING).partition(". ")[0].rstrip(".")
        elif table.header[-1:] == (VERDICT,):
            place = table.header.index("quantity")
            for row in rows:
                cells = dict(zip(table.header, row, strict=True))
                estimate = f"{cells['kind']} {cells['estimate']} ({cells['95 % interval']})"
                verdicts[f"{VERDICT} {' '.join(row[: place + 1])}"] = f"{estimate}: {cells[VERDICT]}"
    return verdicts


def _note(page: Page) -> str:
    """A note in Markdown: what the report is, how to make it again, and tables if they fit. Files have everything."""
    parts = [
        page.description,
        f"```\n{page.command}\n```" if page.command else "",
        "".join(f"- {note}\n" for note in page.notes),
        "Files: `report.html` has everything (Artifacts).",
    ]
    for named in page.tables:
        if len("\n\n".join([*parts, markdown_of(named.table)])) < _MOST_CHARACTERS:
            parts.append(markdown_of(named.table))
    return "\n\n".join(filter(None, parts))
