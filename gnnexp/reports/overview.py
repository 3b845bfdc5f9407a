"""The list of all runs, best first (`gnnexp report` without a name)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from gnnexp.record.runs import MACHINE, Run
from gnnexp.reports.table import Table
from gnnexp.reports.values.metrics import value_of
from gnnexp.reports.values.spread import number_cell

_HEADER = ("system", "dataset", "model", "paradigm", "ranks", "test metric", "epoch s", "device MB", "host MB",
           "status", "date", "directory")
_CAPTION = ("Test metric in %, at the best validation epoch, of one run; seconds of an epoch: median after the first, "
            "which warms up; memory: peak of the fullest rank. ")


def make_table(runs: Sequence[Run], sort: str = "best") -> Table:
    """A row per run; those that failed are last.

    Args:
        runs: finished and failed ones.
        sort: one of `ORDERS`.
    """
    order, said = _ORDERS[sort]
    ended = sorted((run for run in runs if run.status == "finished"), key=order, reverse=sort == "date")
    failed = sorted((run for run in runs if run.status != "finished"), key=_date, reverse=True)
    named = len({run.machine for run in runs}) > 1
    rows = tuple((*_cells(run), *([run.machine] if named else [])) for run in (*ended, *failed))
    return Table((*_HEADER, *([MACHINE] if named else [])), rows, f"{_CAPTION}{said}, failed ones last.")


def _cells(run: Run) -> tuple[str, ...]:
    name, value = run.best("test")
    peaks = [value_of(run, f"memory/{tier}_peak_bytes") / 1e6 for tier in ("device", "host")]
    done = run.status == "finished"
    return (
        run.value("system"), _dataset(run), run.value("model"), str(run.provenance.get("choices", {}).get("paradigm")),
        _ranks(run), "–" if math.isnan(value) else f"{100 * value:.2f} {name.partition('/')[0]}",
        *(number_cell(figure) for figure in (value_of(run, "time/epoch_s"), *peaks)),
        "finished" if done else f"{run.kind or run.status}: {run.reason}" if run.reason else run.kind or run.status,
        _date(run)[:16].replace("T", " "), str(run.path),
    )


def _dataset(run: Run) -> str:
    """Its name, and of a generated one what it is like and how large."""
    shape, scale = run.value("dataset.shape"), run.value("dataset.scale")
    words = (run.value("dataset"), "" if shape == "null" else shape, "" if scale == "null" else f"x{scale}")
    return " ".join(filter(None, words))


def _ranks(run: Run) -> str:
    hardware = run.config.get("hardware", {})
    return str(int(hardware.get("nodes", 1)) * int(hardware.get("workers", 1)))


# --- orders ----------------------------------------------------------------------------------------------------------
Key = tuple[object, ...]


def _date(run: Run) -> str:
    return str(run.provenance.get("date", ""))


def _accuracy(run: Run) -> float:
    """To be sorted: the highest first, what was not evaluated last."""
    value = run.best("test")[1]
    return math.inf if math.isnan(value) else -value


def _seconds(run: Run) -> float:
    value = value_of(run, "time/epoch_s")
    return math.inf if math.isnan(value) else value


def _best(run: Run) -> Key:
    return run.value("task"), _dataset(run), _accuracy(run), _seconds(run)


_ORDERS: Mapping[str, tuple[Callable[[Run], Key], str]] = {
    "best": (_best, "By task and dataset, within them best test metric first, then fastest epoch"),
    "acc": (lambda run: (_accuracy(run), _seconds(run)), "Best test metric first, whatever the dataset"),
    "epoch_s": (lambda run: (_seconds(run),), "Fastest epoch first"),
    "date": (lambda run: (_date(run),), "Latest first"),
}
ORDERS = tuple(_ORDERS)
