"""`make reproduce-small`: every published table and figure in its small variant, reports and records into docs/results.

Runs that have finished are found by their key, here or in `docs/results/records` from an earlier day: a call that was
stopped goes on. The latter are imported runs, and may be of another machine (`--accept-foreign`).

Sweeps are those whose name begins with a paper's; a sweep whose runs failed keeps its report, which names them, and the
exit code is 1. The systems' pages show the verdicts of the claims: write them again afterwards
(`PYTHONPATH=tests/support:. python tests/support/system_pages.py`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from gnnexp.cli.sweeping.definition import load_sweep
from gnnexp.config.folders import product_folder
from gnnexp.record.attempts import RANKS
from gnnexp.record.importing import unpack
from gnnexp.record.records import write_text
from gnnexp.record.runs import Run, runs_of_sweep
from gnnexp.reports.claims.claim import claiming_papers

RESULTS = Path(__file__).parents[1] / "docs" / "results"


def published_sweeps() -> list[str]:
    """Names of the sweeps that are a paper's table or figure, or decide its claims."""
    papers = tuple(f"{paper}_" for paper in claiming_papers())
    return sorted(file.stem for file in product_folder("sweeps").glob("*.yaml") if file.stem.startswith(papers))


def main() -> int:
    """Run, report, keep; the claims and the index last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", nargs="*", help="only these")
    parser.add_argument("--report-only", action="store_true", help="of the records there are: nothing is run")
    options = parser.parse_args()
    for archive in sorted((RESULTS / "records").glob("*.tar.xz")):
        unpack(archive)
    failed = []
    for name in options.sweeps or published_sweeps():
        print(f"== {name}", flush=True)
        out = ["--out", str(RESULTS / name)]
        if not options.report_only and _gnnexp("sweep", name, *out, "tracker=none", "--accept-foreign"):
            failed.append(name)
        if runs_of_sweep(name):
            if options.report_only:
                _gnnexp("report", name, "--markdown", "--csv", *out)
            _gnnexp("export", name, "--out", str(RESULTS / "records" / f"{name}.tar.xz"))
            for copy in [*(RESULTS / name).glob("*.png"), *(RESULTS / name).glob("*.html")]:  # of .svg and .md, larger
                copy.unlink()
    _gnnexp("claims", "--out", str(RESULTS / "claims"))
    write_text(RESULTS / "index.md", "\n".join(_index()) + "\n")
    print(f"reports: {RESULTS}" + (f"; with failed runs: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def _gnnexp(*words: str) -> int:
    return subprocess.run([sys.executable, "-m", "gnnexp", *words], check=False).returncode


def _index() -> Iterator[str]:
    """A line per sweep: what it is, when and where it was run, what it took."""
    yield "# Results\n"
    yield ("Every published table and figure in its small variant, made by `make reproduce-small`; "
           f"what the papers claim, and what of it holds: {', '.join(_claims())}. Records of all runs: `records/`; "
           "`gnnexp import docs/results/records/NAME.tar.xz` brings them into `runs/`.\n")
    yield "| sweep | what | runs | failed | minutes | date | version | machine |"
    yield "|---|---|---|---|---|---|---|---|"
    total = 0.0
    for name in published_sweeps():
        runs = runs_of_sweep(name)
        minutes = sum(map(_seconds, runs)) / 60
        total += minutes
        shown = f"[{name}]({name}/table.md)" if (RESULTS / name / "table.md").exists() else _linked(name)
        yield (f"| {shown} | {load_sweep(name).description} | {len(runs)} | "
               f"{sum(run.status != 'finished' for run in runs)} | {minutes:.1f} | {_said(runs, _date)} | "
               f"{_said(runs, _version)} | {_said(runs, _machine)} |")
    yield f"\nMinutes: of the runs, start to end; one that serves several sweeps counts in each. Together {total:.0f}."


def _claims() -> list[str]:
    return [f"[{paper}](claims/{paper}.md)" for paper in claiming_papers()]


def _linked(name: str) -> str:
    tables = sorted((RESULTS / name).glob("*.md"))
    return f"[{name}]({name}/{tables[0].name})" if tables else name


def _seconds(run: Run) -> float:
    """From each start to the end that followed it."""
    result: dict[str, Any] = json.loads((run.path / "result.json").read_text())
    times = [(event["event"], float(event["time"])) for event in result["attempts"] if event["event"] != RANKS]
    if times and times[-1][0] == "start" and result["epochs"]:  # the result is written before the last end is noted
        times.append(("end", float(result["epochs"][-1]["time"])))
    return sum(after - before for (kind, before), (_, after) in pairwise(times) if kind == "start")


def _said(runs: Sequence[Run], word: Callable[[Run], str]) -> str:
    values = sorted({word(run) for run in runs})
    return values[0] if len(values) == 1 else f"{values[0]} to {values[-1]}" if values else "–"


def _date(run: Run) -> str:
    return str(run.provenance.get("date", ""))[:10]


def _version(run: Run) -> str:
    return str(run.provenance.get("code_version", ""))


def _machine(run: Run) -> str:
    machine = run.provenance.get("hardware", {})
    return f"{machine.get('cores')} cores of {machine.get('cpu')}, {machine.get('ram_bytes', 0) / 2**30:.0f} GiB"


if __name__ == "__main__":
    sys.exit(main())
