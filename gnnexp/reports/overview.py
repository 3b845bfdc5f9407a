"""The list of all runs, the best first (`gnnexp report` without a name)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from gnnexp.measure.merit import is_share, lower_is_better
from gnnexp.record.runs import MACHINE, RecordedRun
from gnnexp.reports.metrics import value_of
from gnnexp.reports.tables.cells import NumberCell, TableCell
from gnnexp.reports.tables.table import ReportTable

_HEADER = (
    "system",
    "dataset",
    "model",
    "paradigm",
    "ranks",
    "test metric",
    "epoch s",
    "device MB",
    "host MB",
    "status",
    "date",
    "directory",
)
_CAPTION = (
    "Test metric: in % (mse, mae and r2: plain), at the best validation epoch of one run. Epoch: median in "
    "seconds after the first epoch, which warms up. Memory: peak of the rank that uses the most. "
)


def make_overview(runs: Sequence[RecordedRun], sort: str = "best") -> ReportTable:
    """The table of all runs, one row per run; failed runs are last.

    Args:
        runs: finished and failed ones.
        sort: one of `ORDERS`.
    """
    order, said = _ORDERS[sort]
    ended = sorted((run for run in runs if run.status == "finished"), key=order, reverse=sort == "date")
    failed = sorted((run for run in runs if run.status != "finished"), key=_date, reverse=True)
    named = len({run.machine for run in runs}) > 1
    rows = tuple((*_cells(run), *([run.machine] if named else [])) for run in (*ended, *failed))
    return ReportTable((*_HEADER, *([MACHINE] if named else [])), rows, f"{_CAPTION}{said}, failed ones last.")


def _cells(run: RecordedRun) -> tuple[TableCell, ...]:
    name, value = run.best("test")
    peaks = [value_of(run, f"memory/{tier}_peak_bytes") / 1e6 for tier in ("device", "host")]
    return (
        run.value("system"),
        _dataset(run),
        run.value("model"),
        str(run.provenance.get("choices", {}).get("paradigm")),
        _ranks(run),
        "–" if math.isnan(value) else f"{_shown(name, value)} {name.partition('/')[0]}",
        *(NumberCell(figure) for figure in (value_of(run, "time/epoch_s"), *peaks)),
        run.outcome,
        _date(run)[:16].replace("T", " "),
        str(run.path),
    )


def _shown(name: str, value: float) -> str:
    return f"{100 * value:.2f}" if is_share(name) else f"{value:.4g}"


def _dataset(run: RecordedRun) -> str:
    """The dataset's name; for a generated one also its shape and scale."""
    shape, scale = run.value("dataset.shape"), run.value("dataset.scale")
    words = (run.value("dataset"), "" if shape == "null" else shape, "" if scale == "null" else f"x{scale}")
    return " ".join(filter(None, words))


def _ranks(run: RecordedRun) -> str:
    hardware = run.config.get("hardware", {})
    return str(int(hardware.get("nodes", 1)) * int(hardware.get("workers", 1)))


# --- orders ----------------------------------------------------------------------------------------------------------
Key = tuple[object, ...]


def _date(run: RecordedRun) -> str:
    return str(run.provenance.get("date", ""))


def _accuracy(run: RecordedRun) -> float:
    """Sort key: the best test metric first, runs without evaluation last."""
    name, value = run.best("test")
    return math.inf if math.isnan(value) else value if lower_is_better(name) else -value


def _seconds(run: RecordedRun) -> float:
    value = value_of(run, "time/epoch_s")
    return math.inf if math.isnan(value) else value


def _best(run: RecordedRun) -> Key:
    return run.value("task"), _dataset(run), _accuracy(run), _seconds(run)


_ORDERS: Mapping[str, tuple[Callable[[RecordedRun], Key], str]] = {
    "best": (_best, "By task and dataset, within them best test metric first, then fastest epoch"),
    "acc": (lambda run: (_accuracy(run), _seconds(run)), "Best test metric first, over all datasets"),
    "epoch_s": (lambda run: (_seconds(run),), "Fastest epoch first"),
    "date": (lambda run: (_date(run),), "Latest first"),
}
ORDERS = tuple(_ORDERS)
