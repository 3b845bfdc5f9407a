"""`gnnexp claims`: the papers' claims, compared with the runs that were made here."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from gnnexp.cli.console import make_console
from gnnexp.cli.output import Answer
from gnnexp.cli.running.folders import check_folder
from gnnexp.components.signature import unknown
from gnnexp.errors import ConfigError
from gnnexp.record.runs import REPORTS
from gnnexp.reports.claims.claim import claiming_papers, claims_of
from gnnexp.reports.claims.page import evaluated, make_table, sweeps_of
from gnnexp.reports.sweep_runs import sweeps_run
from gnnexp.reports.table import save_table

# Number of columns that fit on a terminal; the files have all columns.
_SHOWN = 8


def main(options: argparse.Namespace) -> Answer:
    """Show and save one table per paper."""
    papers = options.papers or list(claiming_papers())
    wrong = [unknown("claims", paper, paper, claiming_papers()) for paper in papers if paper not in claiming_papers()]
    out = Path(options.out) if options.out else REPORTS / "claims"
    wrong += check_folder("--out", out)
    ConfigError.raise_all(wrong)
    console, found = make_console(), {}
    for paper in papers:
        claims = claims_of(paper)
        needed = sweeps_of(claims)
        runs = {sweep: ran.runs for sweep, ran in sweeps_run(needed).items()}
        outcomes = evaluated(claims, runs)
        table = make_table(outcomes)
        console.print(table.first(_SHOWN).rich(console.width, f"claims of {paper}"))
        missing = [sweep for sweep in needed if not runs.get(sweep)]
        if missing:
            console.print(f"not run here: {', '.join(missing)} (gnnexp sweep NAME)", soft_wrap=True)
        files = save_table(table, out, paper, ("md", "csv"))
        counts = Counter(one.verdict for one in outcomes)
        console.print(", ".join(f"{count} {word}" for word, count in counts.most_common()), soft_wrap=True)
        console.print("saved: " + ", ".join(map(str, files)), soft_wrap=True)
        found[paper] = {"verdicts": dict(counts), "not_run": missing, "table": table.document(), "files": files}
    return Answer({"papers": found})
