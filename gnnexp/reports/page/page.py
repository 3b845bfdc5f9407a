"""The contents of a report's page as values: text, tables, figures and runs, with their provenance."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gnnexp.record.archive import imported_from
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.figures.paper_form import PAPER
from gnnexp.reports.tables.table import ReportTable

# Captions of figures that have none of their own, by file name.
_CAPTIONS = {
    "balance": "Edges computed (above) and bytes sent except for gradients (below), one bar per rank.",
    "splitting": "Loads (left) and cross edges (right) by layer and partitioner.",
    "replication": "Replication of the partitions.",
    "cost": "Seconds and memory for making the partitions.",
    "tasks": "Seconds by part of the work (left), and shares next to the paper's (right).",
}


@dataclass(frozen=True)
class NamedTable:
    """A table with its own heading.

    Attributes:
        name: the heading.
        table: the table.
        labels: its first columns, if each of its rows is shown as a card that they name; else None.
    """

    name: str
    table: ReportTable
    labels: int | None = None


@dataclass(frozen=True)
class PageFigure:
    """A figure of the page, from an SVG file.

    Attributes:
        file: the SVG file; it is read when the page is written.
        caption: text below the figure; empty if the caption is drawn into the figure.
        alt: description for readers who cannot see the figure.
        data: the drawn numbers as a table, or None if they are not kept.
    """

    file: Path
    caption: str
    alt: str
    data: ReportTable | None = None


@dataclass(frozen=True)
class RunLine:
    """A run, or a case of a sweep that has no run yet.

    Attributes:
        label: what distinguishes the run from the others.
        status: `finished`, `failed`, `waiting`, …
        reason: why it failed, or ended early.
        exact: `yes`, or what the run approximates; empty if the run ended before that was known.
        run_dir: directory of its files.
        command: the command that reproduces it.
    """

    label: str
    status: str
    reason: str = ""
    exact: str = ""
    run_dir: str = ""
    command: str = ""


@dataclass(frozen=True)
class Page:
    """The contents of a report's page.

    Attributes:
        title: the sweep's name.
        description: one sentence about the sweep.
        command: the command that makes the report again; empty if there is none.
        date: when the page was made.
        version: version of gnnexp that made the page.
        provenance: (fact, value) pairs about the runs: versions, dates, machines, libraries.
        tables: tables of the report.
        figures: figures drawn from the same runs.
        runs: all runs, including failed ones.
        notes: warnings that a reader must see first.
    """

    title: str
    description: str = ""
    command: str = ""
    date: str = ""
    version: str = ""
    provenance: Sequence[tuple[str, str]] = ()
    tables: Sequence[NamedTable] = ()
    figures: Sequence[PageFigure] = ()
    runs: Sequence[RunLine] = ()
    notes: Sequence[str] = ()

    def digest(self) -> str:
        """Digest of the content, without the date and the figures' bytes, which differ whenever they are drawn."""
        figures = [replace(figure, file=Path(figure.file.name)) for figure in self.figures]
        content = asdict(replace(self, date="", figures=figures))
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def run_line(run: RecordedRun, label: str = "") -> RunLine:
    """The line of a run that has ended; `label` is the label of its case in a sweep."""
    named = label or " ".join(run.value(key) for key in ("system", "dataset", "model")) + f" seed={run.value('seed')}"
    early = run.outcome.partition(": ")[2] if run.status == "finished" else ""
    return RunLine(
        named,
        run.status,
        f"ended early: {early}" if early else run.reason,
        _exactness(run),
        str(run.path),
        str(run.provenance.get("reproduce", "")),
    )


def _exactness(run: RecordedRun) -> str:
    if "exact" not in run.facts:
        return ""
    return "yes" if run.facts["exact"] else f"no: {run.facts.get('approximates') or 'it is not recorded what'}"


def page_figures(files: Sequence[Path], data: Mapping[str, ReportTable]) -> list[PageFigure]:
    """The page's figures from the SVG files among `files`. `data` has the numbers of figures with a drawn caption."""
    return [
        _figure(file, data.get(file.stem)) for file in files if file.suffix == ".svg" and not file.stem.endswith(PAPER)
    ]


def _figure(file: Path, data: ReportTable | None) -> PageFigure:
    name = file.stem.replace("_", " ").capitalize()
    if data is None:
        caption = _CAPTIONS.get(file.stem, f"{name}.")
        return PageFigure(file, caption, f"Figure: {caption} Its numbers are in the tables of this page.")
    return PageFigure(file, "", f"Figure: {name}. {data.caption} Its numbers are in the table below it.", data)


def provenance(runs: Sequence[RecordedRun]) -> list[tuple[str, str]]:
    """Versions, dates, machines and libraries of `runs`. If values differ, each has the number of its runs."""
    dates = sorted(str(run.provenance["date"])[:16].replace("T", " ") for run in runs if run.provenance.get("date"))
    facts = [
        ("gnnexp", _told(_version(run) for run in runs)),
        ("not reproducible by the commit alone", _dirty(runs)),
        ("runs made (UTC)", " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else ""),
        ("imported from", _told(imported_from(run.provenance) for run in runs)),
        ("machine", _told(_machine(run) for run in runs)),
        ("operating system", _told(str(run.provenance.get("hardware", {}).get("system", "")) for run in runs)),
        (
            "libraries",
            _told(
                ", ".join(f"{name} {version}" for name, version in run.provenance.get("libraries", {}).items())
                for run in runs
            ),
        ),
        (
            "data",
            _told(f"{run.value('dataset')} {str(run.provenance.get('dataset_key', ''))[:12]}".strip() for run in runs),
        ),
    ]
    return [(what, value) for what, value in facts if value]


def _dirty(runs: Sequence[RecordedRun]) -> str:
    count = sum(_version(run).endswith("-dirty") for run in runs)
    return f"{count} of {len(runs)} runs were made by code that differs from its commit (-dirty)" if count else ""


def _version(run: RecordedRun) -> str:
    return str(run.provenance.get("code_version", ""))


def _machine(run: RecordedRun) -> str:
    hardware = run.provenance.get("hardware", {})
    if not hardware:
        return ""
    parts = [
        hardware.get("cpu"),
        f"{hardware.get('cores')} cores ({hardware.get('threads')} threads)",
        f"{hardware.get('ram_bytes', 0) / 2**30:.1f} GiB memory",
        *hardware.get("gpus", []),
    ]
    return f"{hardware.get('host')}: " + ", ".join(str(part) for part in parts if part)


def _told(values: Iterable[str]) -> str:
    """A single value as it is, several values with the number of runs that have each."""
    counted = Counter(value for value in values if value)
    if len(counted) < 2:
        return "".join(counted)
    return "; ".join(f"{value} ({count} run{'s' if count > 1 else ''})" for value, count in counted.items())


def several_versions(runs: Sequence[RecordedRun]) -> list[str]:
    """A note with all versions of gnnexp that made `runs`, if there are several: their times may differ."""
    counts = Counter(version.partition("+")[0] for run in runs if (version := _version(run)))
    num_versions = len({_version(run) for run in runs})
    if num_versions < 2:
        return []
    named = ", ".join(counts) if len(counts) > 1 else "the Provenance of report.html names them"
    return [f"Runs were made by {num_versions} versions of gnnexp ({named}): times may differ."]


def notes(lines: Sequence[RunLine], runs: Sequence[RecordedRun]) -> list[str]:
    """Warnings for the reader of the tables: runs that are missing, approximate or not comparable."""
    missing = Counter(line.status for line in lines if line.status != "finished")
    texts = [
        f"{count} of {len(lines)} runs {status}: the tables do not contain them." for status, count in missing.items()
    ]
    texts += several_versions(runs)
    if len({run.machine for run in runs}) > 1:
        texts.append("Runs were made on several kinds of machines: their times are not comparable.")
    inexact = dict.fromkeys(
        f"{run.value('system')} approximates: {run.facts.get('approximates')}."
        for run in runs
        if run.facts.get("exact") is False
    )
    return [*texts, *inexact]
