"""`make reproduce-small`: every published table and figure in its small variant, reports and records into docs/results.

Runs that have finished are found by their key, here or in `sweeps/<paper>/records.parquet` from an earlier day: a call
that was stopped goes on. The latter are imported runs, and may be of another machine (`--accept-foreign`).

Sweeps are those whose name begins with a paper's; a sweep whose runs failed keeps its report, which names them, and the
exit code is 1. The systems' pages show the verdicts of the claims: write them again afterwards
(`PYTHONPATH=tests/support:. python tests/support/system_pages.py`).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from gnnexp.cli.commands.archives import bring_kept
from gnnexp.cli.sweeping.definition import load_sweep
from gnnexp.config.folders import papers_with, product_folder, product_sweeps
from gnnexp.record.archive import as_made
from gnnexp.record.attempts import RANKS
from gnnexp.record.columnar import STATES, Records, write_records
from gnnexp.record.records import RESULT_FILE, load_result, read_state, write_text
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.query import read_query
from gnnexp.reports.sweep_runs import RECORDS_FILE, sweeps_run
from gnnexp_papers.claim import claiming_papers, claims_of

RESULTS = Path(__file__).parents[1] / "docs" / "results"
# Parts of an epoch's line that are large, as they are where nobody reads them.
_TABLES = {"ranks": {"ranks", "warm_ranks"}, "batches": {"batches"}}  # that queries read, of them
_NOTHING: Mapping[str, Any] = {"ranks": [], "losses": [], "batches": {}}


def published_sweeps() -> list[str]:
    """Names of the sweeps that are a paper's table or figure, or decide its claims."""
    papers = tuple(f"{paper}_" for paper in claiming_papers())
    return sorted(name for name in product_sweeps() if name.startswith(papers))


def main() -> int:
    """Run, report, keep; the claims and the index last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", nargs="*", help="only these")
    parser.add_argument("--report-only", action="store_true", help="of the records there are: nothing is run")
    options = parser.parse_args()
    for file in papers_with(RECORDS_FILE).values():
        bring_kept(file)
    failed = []
    for name in options.sweeps or published_sweeps():
        print(f"== {name}", flush=True)
        out = ["--out", str(RESULTS / name)]
        if not options.report_only and _gnnexp("sweep", name, *out, "tracker=none", "--accept-foreign"):
            failed.append(name)
        if _runs_of(name):
            if options.report_only:
                _gnnexp("report", name, "--markdown", "--csv", *out)
            for copy in [*(RESULTS / name).glob("*.png"), *(RESULTS / name).glob("*.html")]:  # of .svg and .md, larger
                copy.unlink()
    for paper in claiming_papers():
        keep_records(paper)
    _gnnexp("claims", "--out", str(RESULTS / "claims"))
    write_text(RESULTS / "index.md", "\n".join(_index()) + "\n")
    print(f"reports: {RESULTS}" + (f"; with failed runs: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def keep_records(paper: str, folder: Path = Path(), file: Path | None = None) -> None:
    """Write what there is of a paper's sweeps below `folder` to its `records.parquet`.

    Of what ranks recorded, of the batches and of the losses of steps only that is kept which a report or a claim reads.
    """
    needs = [check for claim in claims_of(paper) if (check := claim.check) and "[losses]" in check.value]
    states, results = dict[str, Any](), dict[str, Any]()
    for name in (name for name in published_sweeps() if name.startswith(f"{paper}_")):
        if not (folder / STATES / f"{name}.json").exists():
            continue
        state = read_state(folder / STATES / f"{name}.json")
        states[name] = {
            "name": name,
            **{key: state[key] for key in ("description", "command", "cases") if key in state},
        }
        kept = {*_read_by_report(load_sweep(name).report), *["losses" for check in needs if name in check.sweeps]}
        for run in dict.fromkeys(case["run_dir"] for case in state["cases"] if case["run_dir"]):
            if (folder / run / RESULT_FILE).exists():
                result = as_made(load_result(folder / run))
                earlier = results.get(run, {"epochs": [{}] * len(result["epochs"])})["epochs"]
                left_out = _NOTHING.keys() - kept
                results[run] = {
                    **result,
                    "presampled": [],
                    "epochs": [
                        {**line, **{key: before.get(key, _NOTHING[key]) for key in left_out}}
                        for line, before in zip(result["epochs"], earlier, strict=True)
                    ],
                }
    write_records(Records(states, results), file or product_folder("sweeps") / paper / RECORDS_FILE)


def _read_by_report(report: Mapping[str, Any]) -> Iterator[str]:
    """Parts of an epoch's record that a report reads, in addition to its metrics."""
    if any(figure["draw"] == "range" for figure in report.get("figures") or ()):
        yield "ranks"
    if "query" in report:
        text = " ".join(read_query(report["query"], "report.query").parts.values())
        named = {*re.findall(r"(?:FROM|JOIN) (\w+)", text)}
        yield from (part for part, tables in _TABLES.items() if named & tables)


def _runs_of(name: str) -> Sequence[RecordedRun]:
    found = sweeps_run([name])
    return found[name].runs if name in found else ()


def _gnnexp(*words: str) -> int:
    return subprocess.run([sys.executable, "-m", "gnnexp", *words], check=False).returncode


def _index() -> Iterator[str]:
    """One line for each sweep: its description, its runs, their minutes, date and machine."""
    yield "# Results\n"
    yield (
        "Every published table and figure in its small variant, made by `make reproduce-small`; "
        f"the papers' claims and their verdicts: {', '.join(_claims())}. Records of all runs: "
        "`sweeps/<paper>/records.parquet`, which `gnnexp report NAME` and `gnnexp claims` read; "
        "`gnnexp import PAPER` brings them into `runs/`.\n"
    )
    yield "| sweep | what | runs | failed | minutes | date | version | machine |"
    yield "|---|---|---|---|---|---|---|---|"
    total = 0.0
    for name in published_sweeps():
        runs = _runs_of(name)
        minutes = sum(map(_seconds, runs)) / 60
        total += minutes
        shown = f"[{name}]({name}/table.md)" if (RESULTS / name / "table.md").exists() else _linked(name)
        yield (
            f"| {shown} | {load_sweep(name).description} | {len(runs)} | "
            f"{sum(run.status != 'finished' for run in runs)} | {minutes:.1f} | {_said(runs, _date)} | "
            f"{_said(runs, _version)} | {_said(runs, _machine)} |"
        )
    yield f"\nMinutes: of the runs, start to end; one that serves several sweeps counts in each. Together {total:.0f}."


def _claims() -> list[str]:
    return [f"[{paper}](claims/{paper}.md)" for paper in claiming_papers()]


def _linked(name: str) -> str:
    tables = sorted((RESULTS / name).glob("*.md"))
    return f"[{name}]({name}/{tables[0].name})" if tables else name


def _seconds(run: RecordedRun) -> float:
    """From each start to the end that followed it."""
    result = load_result(run.path)
    times = [(event["event"], float(event["time"])) for event in result["attempts"] if event["event"] != RANKS]
    if times and times[-1][0] == "start" and result["epochs"]:  # the result is written before the last end is noted
        times.append(("end", float(result["epochs"][-1]["time"])))
    return sum(after - before for (kind, before), (_, after) in pairwise(times) if kind == "start")


def _said(runs: Sequence[RecordedRun], word: Callable[[RecordedRun], str]) -> str:
    values = sorted({word(run) for run in runs})
    return values[0] if len(values) == 1 else f"{values[0]} to {values[-1]}" if values else "–"


def _date(run: RecordedRun) -> str:
    return str(run.provenance.get("date", ""))[:10]


def _version(run: RecordedRun) -> str:
    return str(run.provenance.get("code_version", ""))


def _machine(run: RecordedRun) -> str:
    machine = run.provenance.get("hardware", {})
    return f"{machine.get('cores')} cores of {machine.get('cpu')}, {machine.get('ram_bytes', 0) / 2**30:.0f} GiB"


if __name__ == "__main__":
    sys.exit(main())
