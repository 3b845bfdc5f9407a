"""`gnnexp export` and `gnnexp import`: records of sweeps as one file, to be kept or given to others."""

from __future__ import annotations

import argparse
from pathlib import Path

from gnnexp.cli.console import make_console
from gnnexp.cli.running.folders import new_file_problems
from gnnexp.cli.sweeping.definition import load_sweep, sweep_name
from gnnexp.config.folders import papers_with
from gnnexp.errors import ConfigError, Problem
from gnnexp.files.regular import why_unreadable
from gnnexp.record.archive import pack_records
from gnnexp.record.columnar import SUFFIX, Records, read_records
from gnnexp.record.importing import restore, unpack_records
from gnnexp.reports.sweep_runs import RECORDS_FILE


def export(options: argparse.Namespace) -> int:
    """Write the records of all named sweeps to one file."""
    names = [sweep_name(name, "export") for name in options.names]
    file = Path(options.out or f"{names[0]}{SUFFIX}")
    problems = new_file_problems("--out", file)
    if not file.name.endswith(SUFFIX):
        problems.append(Problem("--out", str(file), f"must end with {SUFFIX}", f"--out {file}{SUFFIX}"))
    ConfigError.raise_all(problems)
    count = pack_records(names, file, words=options.names)
    make_console().print(f"{count} runs, {file.stat().st_size / 1e3:.0f} kB: {file}", soft_wrap=True)
    return 0


def bring_kept(file: Path) -> tuple[int, int]:
    """Import the records that a paper's folder keeps (see `unpack_records`). Reports use the sweep files of today."""
    records = read_records(file)
    states = {name: {**state, "report": dict(load_sweep(name).report)} for name, state in records.states.items()}
    return restore(Records(states, records.results), file)


def bring(options: argparse.Namespace) -> int:
    """Make runs below `runs/` from exported files, or from the records that papers' folders keep."""
    kept = papers_with(RECORDS_FILE)
    wrong = [
        Problem(
            "import", name, f"must be a file of `gnnexp export`, or one of {', '.join(kept)}: {why}", "correct the path"
        )
        for name in options.files
        if name not in kept and (why := why_unreadable(Path(name)))
    ]
    ConfigError.raise_all(wrong)
    for name in options.files:
        new, known = bring_kept(kept[name]) if name in kept else unpack_records(Path(name))
        make_console().print(f"{name}: {new} new runs, {known} were already here", soft_wrap=True)
    return 0
