"""The breakdown of a run's epoch into phases, as a table. `gnnexp report RUN` draws it."""

from __future__ import annotations

import math
from pathlib import Path

from gnnexp.measure.phases import PHASES
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.metrics import typical_epoch
from gnnexp.reports.tables.cells import NumberCell, TableCell
from gnnexp.reports.tables.save import save_table
from gnnexp.reports.tables.table import ReportTable

NAME = "breakdown"


def write_breakdown(run: RecordedRun, folder: Path) -> None:
    """Write `breakdown.csv` into `folder`."""
    save_table(breakdown_of(run), folder, NAME, ("csv",))


def breakdown_of(run: RecordedRun) -> ReportTable:
    """A row for each phase that took time, and one for the epoch: seconds, and the share of the mean of the epoch."""
    whole = run.median("time/epoch_s_mean")
    rows: list[tuple[TableCell, ...]] = []
    for name in (*PHASES, "unaccounted", "epoch"):
        mean, least, most = (run.median(f"time/{name}_s{of}") for of in ("_mean", "_min", ""))
        if name == "epoch" or mean > 0:
            share = 100 * mean / whole if whole > 0 else math.nan
            rows.append(
                (
                    name,
                    *(NumberCell(value) for value in (mean, least, most)),
                    NumberCell(share, ".1f"),
                    NumberCell(run.median(f"time/hidden_{name}_s_mean")),
                )
            )
    header = ("phase", "mean s", "fastest rank s", "slowest rank s", "share %", "in the background s")
    return ReportTable(
        header,
        tuple(rows),
        f"Seconds of an epoch over the ranks: {typical_epoch([run])}. The phases exclude "
        "each other, so the means of an epoch add up to its seconds. Each number is a median of its own: the "
        "sum of the table may differ a little. wait: waiting for slower ranks. unaccounted: what no phase "
        "covers. Work in the background is not part of the sum.",
    )
