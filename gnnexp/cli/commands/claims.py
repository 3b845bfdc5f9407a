"""`gnnexp claims`: the papers' claims, compared with the runs that were made here."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console

from gnnexp.cli.console import make_console
from gnnexp.cli.output import Answer
from gnnexp.cli.running.folders import folder_problems
from gnnexp.components.signature import unknown
from gnnexp.errors import ConfigError, Problem
from gnnexp.record.runs import REPORTS
from gnnexp.reports.claims import Claims, installed_papers, load_claims
from gnnexp.reports.sweep_runs import sweeps_run
from gnnexp.reports.tables.data import document_of
from gnnexp.reports.tables.save import save_table
from gnnexp.reports.tables.terminal import terminal_table

# Number of columns that fit on a terminal; the files have all columns.
_SHOWN = 8


def main(options: argparse.Namespace) -> Answer:
    """Show and save one table per paper. Papers whose package is damaged are reported after the others."""
    installed = installed_papers()
    if not installed:
        fix = "make setup in a checkout of gnnexp; elsewhere pip install the wheel gnnexp_papers (docs/install.md)"
        raise ConfigError(Problem("claims", " ".join(options.papers), "no package of papers' claims is installed", fix))
    papers = options.papers or list(installed)
    out = Path(options.out) if options.out else REPORTS / "claims"
    wrong = [unknown("claims", paper, paper, installed) for paper in papers if paper not in installed]
    ConfigError.raise_all(wrong + folder_problems("--out", out))
    console, answers, problems = make_console(), dict[str, Any](), list[Problem]()
    for paper in papers:
        try:
            claims = load_claims(paper, installed[paper])
        except ConfigError as error:
            problems += error.problems
        else:
            answers[paper] = _show(console, paper, claims, out)
    ConfigError.raise_all(problems)
    return Answer({"papers": answers})


def _show(console: Console, paper: str, claims: Claims, out: Path) -> dict[str, Any]:
    """Print and save the verdicts of a paper; returns them as a document."""
    runs = {sweep: ran.runs for sweep, ran in sweeps_run(claims.sweeps).items()}
    verdicts = claims.verdicts(runs)
    console.print(terminal_table(verdicts.table.first(_SHOWN), console.width, f"claims of {paper}"))
    missing = [sweep for sweep in claims.sweeps if not runs.get(sweep)]
    if missing:
        console.print(f"not run here: {', '.join(missing)} (gnnexp sweep NAME)", soft_wrap=True)
    files = save_table(verdicts.table, out, paper, ("md", "csv"))
    counts = Counter(verdicts.counts)
    console.print(", ".join(f"{count} {word}" for word, count in counts.most_common()), soft_wrap=True)
    console.print("saved: " + ", ".join(map(str, files)), soft_wrap=True)
    return {"verdicts": dict(counts), "not_run": missing, "table": document_of(verdicts.table), "files": files}
