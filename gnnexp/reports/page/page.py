"""What a report's page holds, as values: text, tables, figures and runs, with where they come from."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gnnexp.provenance.imported import imported_from
from gnnexp.record.runs import Run
from gnnexp.reports.table import Table

# Of figures without one of their own.
_CAPTIONS = {
    "balance": "Edges computed (above) and bytes sent but for gradients (below), a bar per rank.",
    "splitting": "Loads (left) and cross edges (right) by layer and partitioner.",
    "replication": "Replication of the partitions.",
    "cost": "Seconds and memory of making the partitions.",
    "tasks": "Seconds by part of the work (left), and shares beside the paper's (right).",
}


@dataclass(frozen=True)
class NamedTable:
    """A table under a heading of its own."""

    name: str
    table: Table


@dataclass(frozen=True)
class PageFigure:
    """An SVG file.

    Attributes:
        file: that is read when the page is written.
        caption: below it, empty where it is drawn into the figure.
        alt: for those who cannot see it.
        data: the numbers that are drawn, where they are kept as a table.
    """

    file: Path
    caption: str
    alt: str
    data: Table | None = None


@dataclass(frozen=True)
class RunLine:
    """A run, or a case of a sweep that has none yet.

    Attributes:
        label: what sets it apart.
        status: `finished`, `failed`, `waiting`, …
        reason: why it failed.
        exact: `yes`, or what it approximates; empty where it did not get so far.
        run_dir: of its files.
        command: the one that makes it again.
    """

    label: str
    status: str
    reason: str = ""
    exact: str = ""
    run_dir: str = ""
    command: str = ""


@dataclass(frozen=True)
class Page:
    """A report.

    Attributes:
        title: the sweep's name.
        description: a sentence.
        command: that makes it again, empty where there is none.
        date: when this page was made.
        version: of gnnexp, that made it.
        provenance: (what, value) of the runs: versions, dates, machines, libraries.
        tables: the report's own.
        figures: drawn of the same runs.
        runs: all of them, those that failed too.
        notes: what a reader must be warned of.
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
        """Of what it says; not of its date, nor of the figures' bytes, which differ each time they are drawn."""
        figures = [replace(figure, file=Path(figure.file.name)) for figure in self.figures]
        content = asdict(replace(self, date="", figures=figures))
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def run_line(run: Run, label: str = "") -> RunLine:
    """Of a run that has ended; with the label of its case where it is one of a sweep's."""
    named = label or " ".join(run.value(key) for key in ("system", "dataset", "model")) + f" seed={run.value('seed')}"
    return RunLine(named, run.status, run.reason, _exactness(run), str(run.path),
                   str(run.provenance.get("reproduce", "")))


def _exactness(run: Run) -> str:
    if "exact" not in run.facts:
        return ""
    return "yes" if run.facts["exact"] else f"no: {run.facts.get('approximates') or 'not said what'}"


def page_figures(files: Sequence[Path], data: Mapping[str, Table]) -> list[PageFigure]:
    """Of the SVG files among `files`; `data` has the numbers of some, with a caption that is drawn into the figure."""
    return [_figure(file, data.get(file.stem)) for file in files if file.suffix == ".svg"]


def _figure(file: Path, data: Table | None) -> PageFigure:
    name = file.stem.replace("_", " ").capitalize()
    if data is None:
        caption = _CAPTIONS.get(file.stem, f"{name}.")
        return PageFigure(file, caption, f"Figure: {caption} Its numbers are in the tables of this page.")
    return PageFigure(file, "", f"Figure: {name}. {data.caption} Its numbers are in the table below it.", data)


def provenance(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Versions, dates, machines and libraries of `runs`; where these differ, each with the number of its runs."""
    dates = sorted(str(run.provenance["date"])[:16].replace("T", " ") for run in runs if run.provenance.get("date"))
    facts = [
        ("gnnexp", _told(_version(run) for run in runs)),
        ("runs made (UTC)", " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else ""),
        ("imported from", _told(imported_from(run.provenance) for run in runs)),
        ("machine", _told(_machine(run) for run in runs)),
        ("operating system", _told(str(run.provenance.get("hardware", {}).get("system", "")) for run in runs)),
        ("libraries", _told(", ".join(f"{name} {version}" for name, version in
                                      run.provenance.get("libraries", {}).items()) for run in runs)),
        ("data", _told(f"{run.value('dataset')} {str(run.provenance.get('dataset_key', ''))[:12]}".strip()
                       for run in runs)),
    ]
    return [(what, value) for what, value in facts if value]


def _version(run: Run) -> str:
    return str(run.provenance.get("code_version", ""))


def _machine(run: Run) -> str:
    found = run.provenance.get("hardware", {})
    if not found:
        return ""
    parts = [found.get("cpu"), f"{found.get('cores')} cores ({found.get('threads')} threads)",
             f"{found.get('ram_bytes', 0) / 2**30:.1f} GiB memory", *found.get("gpus", [])]
    return f"{found.get('host')}: " + ", ".join(str(part) for part in parts if part)


def _told(values: Iterable[str]) -> str:
    """One value as it is, several with how often each occurs."""
    counted = Counter(value for value in values if value)
    if len(counted) < 2:
        return "".join(counted)
    return "; ".join(f"{value} ({count} run{'s' if count > 1 else ''})" for value, count in counted.items())


def notes(lines: Sequence[RunLine], runs: Sequence[Run]) -> list[str]:
    """What a reader must know before believing the tables: what is missing, approximate, or not comparable."""
    missing = Counter(line.status for line in lines if line.status != "finished")
    found = [f"{count} of {len(lines)} runs {status}: the tables have no numbers of theirs."
             for status, count in missing.items()]
    if len({_version(run) for run in runs}) > 1:
        found.append("Runs were made by several versions of gnnexp: see provenance.")
    if any(_version(run).endswith("-dirty") for run in runs):
        found.append("Some runs were made by code that differs from its commit (-dirty): the commit alone does not "
                     "make them again.")
    if len({run.machine for run in runs}) > 1:
        found.append("Runs were made on several kinds of machines: their times are not comparable.")
    inexact = dict.fromkeys(f"{run.value('system')} approximates: {run.facts.get('approximates')}." for run in runs
                            if run.facts.get("exact") is False)
    return [*found, *inexact]
