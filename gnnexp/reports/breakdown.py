"""The breakdown of a run's epoch into phases: a figure, a table, and a page with both."""

from __future__ import annotations

import math
from pathlib import Path

from gnnexp.measure.phases import PHASES
from gnnexp.record.runs import Run
from gnnexp.reports.figures.stacked import draw_breakdown
from gnnexp.reports.page.html import write_html
from gnnexp.reports.page.page import NamedTable, Page, notes, page_figures, provenance, run_line
from gnnexp.reports.table import Table, group_runs, row_keys, save_table
from gnnexp.reports.values.metrics import number_cell, typical_epoch

NAME = "breakdown"


def write(run: Run, folder: Path) -> None:
    """Write `breakdown.png`, `.svg`, `.csv` and `.html` into `folder`; the PNG file comes last."""
    table, drawing = breakdown_of(run), folder / f"{NAME}.svg"
    groups = group_runs([run], row_keys([run]))
    draw_breakdown(groups, [drawing])
    save_table(table, folder, NAME, ("csv",))
    lines = [run_line(run)]
    page = Page(
        title=f"Breakdown of {lines[0].label}", description="The seconds of an epoch, by phase.",
        command=lines[0].command, version=str(run.provenance.get("code_version", "")), provenance=provenance([run]),
        tables=[NamedTable("Phases", table)], figures=page_figures([drawing], {}), runs=lines,
        notes=notes(lines, [run]))
    write_html(page, folder / f"{NAME}.html")
    draw_breakdown(groups, [folder / f"{NAME}.png"])


def breakdown_of(run: Run) -> Table:
    """A row for each phase that took time, and one for the epoch: seconds, and the share of the mean of the epoch."""
    whole = run.median("time/epoch_s_mean")
    rows = []
    for name in (*PHASES, "unaccounted", "epoch"):
        mean, least, most = (run.median(f"time/{name}_s{of}") for of in ("_mean", "_min", ""))
        if name == "epoch" or mean > 0:
            share = 100 * mean / whole if whole > 0 else math.nan
            rows.append((name, *(number_cell(value) for value in (mean, least, most)), number_cell(share, ".1f"),
                         number_cell(run.median(f"time/hidden_{name}_s_mean"))))
    header = ("phase", "mean s", "fastest rank s", "slowest rank s", "share %", "in the background s")
    return Table(header, tuple(rows), f"Seconds of an epoch over the ranks: {typical_epoch([run])}. The phases exclude "
                 "each other, so the means of an epoch add up to its seconds. Each number is a median of its own: the "
                 "sum of the table may differ a little. wait: waiting for slower ranks. unaccounted: what no phase "
                 "covers. Work in the background is not part of the sum.")
