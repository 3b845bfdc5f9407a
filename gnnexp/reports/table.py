"""The comparison table: one row per kind of run, times as medians after warm-up, in three formats."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gnnexp.runs import Run

if TYPE_CHECKING:
    from rich.table import Table as RichTable

TIMES = (("S", "time/sample_s"), ("N", "time/negatives_s"), ("L", "time/load_s"), ("FB", "time/fb_s"),
         ("sync", "time/sync_s"), ("wait", "time/wait_s"), ("epoch", "time/epoch_s"))
BYTES = tuple((tag, f"comm/bytes_{tag}") for tag in ("features", "gradients"))
# Shown where some run predicts links.
_OF_LINKS = ("N",)
# Shown where some run sent any.
_MORE_BYTES = tuple((tag, f"comm/bytes_{tag}")
                    for tag in ("frontier", "topology", "activations", "endpoints", "embeddings", "parameters"))
# Which keys tell runs apart when nobody says so, in this order.
_KEYS = ("system", "dataset", "model", "sampler", "partitioner", "hardware.workers")
# A terminal of 200 characters has 8 to 10 for each of so many columns; the comparison table has up to 17.
_MOST_COLUMNS = 18


@dataclass(frozen=True)
class Group:
    """Runs that differ only in what the table does not show (their seed, as a rule).

    Attributes:
        labels: values of the row's keys.
        runs: the finished ones.
        failed: those that failed.
    """

    labels: tuple[str, ...]
    runs: tuple[Run, ...]
    failed: tuple[Run, ...]

    @property
    def name(self) -> str:
        """For a figure's axis."""
        return "\n".join(self.labels)

    @property
    def verdict(self) -> str:
        """Instead of figures where there are none: `OOM` as in the papers' tables, `diverged`, or `failed`."""
        kinds = {run.kind for run in self.failed}
        return {"out of memory": "OOM", "diverged": "diverged"}.get(kinds.pop() if len(kinds) == 1 else "", "failed")

    def median(self, metric: str) -> float:
        """Median over the runs of their medians; NaN where no run recorded it."""
        values = [value for run in self.runs if not math.isnan(value := run.median(metric))]
        return statistics.median(values) if values else math.nan


@dataclass(frozen=True)
class Table:
    """A table as text.

    Attributes:
        header: of the columns, with units.
        rows: cells, as many as `header` has.
        caption: what a reader must know to read it.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str

    def first(self, columns: int) -> Table:
        """Only the first `columns`."""
        return Table(self.header[:columns], tuple(row[:columns] for row in self.rows), self.caption)

    def markdown(self) -> str:
        """GitHub's table syntax."""
        lines = [self.header, ("---",) * len(self.header), *self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n\n{self.caption}\n"

    def csv(self) -> str:
        """Comma-separated, header first."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.header, *self.rows])
        return text.getvalue()

    def rich(self, title: str = "") -> RichTable:
        """For the terminal; on its side, a line per column, where there are too many columns to be read."""
        from rich.table import Table as RichTable

        if len(self.header) > max(_MOST_COLUMNS, len(self.rows)):
            header, *rows = zip(self.header, *self.rows, strict=True)
            return Table(header, tuple(rows), self.caption).rich(title)
        table = RichTable(title=title or None, caption=self.caption, caption_justify="left", title_justify="left")
        for column, name in enumerate(self.header):
            numeric = any(row[column][:1].isdigit() for row in self.rows)
            table.add_column(name, justify="right" if numeric else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table


def row_keys(runs: Sequence[Run], wanted: Sequence[str] = ()) -> tuple[str, ...]:
    """Keys that name a row: the `wanted` ones, else those whose values differ, else the system."""
    if wanted:
        return tuple(wanted)
    differing = tuple(key for key in _KEYS if len({run.value(key) for run in runs}) > 1)
    return differing or ("system",)


def group_runs(runs: Sequence[Run], keys: Sequence[str]) -> list[Group]:
    """Runs with the same values of `keys` together, in order of first appearance."""
    grouped: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        grouped.setdefault(tuple(run.value(key) for key in keys), []).append(run)
    return [
        Group(labels, tuple(run for run in members if run.status == "finished"),
              tuple(run for run in members if run.status != "finished"))
        for labels, members in grouped.items()
    ]


def make_table(groups: Sequence[Group], keys: Sequence[str]) -> Table:
    """Accuracy at the best validation epoch, phases and epoch in seconds, bytes sent per epoch, over all ranks."""
    metrics = {run.best("test")[0] for group in groups for run in group.runs} - {""} or {"acc/test"}
    sent = (*BYTES, *(pair for pair in _MORE_BYTES if any(group.median(pair[1]) > 0 for group in groups)))
    times = [(name, metric) for name, metric in TIMES
             if name not in _OF_LINKS or any(group.median(metric) > 0 for group in groups)]
    header = (
        *(key.rpartition(".")[2] if key.startswith("hardware") else key for key in keys),
        f"{min(metrics) if len(metrics) == 1 else 'test'} %",
        *(f"{name} s" for name, _ in times), *(f"{name} MB" for name, _ in sent), "runs",
    )
    rows = [
        (*group.labels, _metric_cell(group, named=len(metrics) > 1),
         *(seconds_cell(group.median(name)) if group.runs else group.verdict for _, name in times),
         *(megabytes_cell(group.median(name)) if group.runs else "–" for _, name in sent), _count_cell(group))
        for group in groups
    ]
    return Table(header, tuple(rows), _caption(groups))


def _metric_cell(group: Group, *, named: bool) -> str:
    """The test figures of a group; with the metric's name where the table has several."""
    if not group.runs:
        return group.verdict
    best = [run.best("test") for run in group.runs]
    metrics = {name.partition("/")[0] for name, _ in best} - {""}
    if len(metrics) > 1:
        return f"– ({', '.join(sorted(metrics))} in one row)"
    return accuracy_cell([value for _, value in best]) + (f" {min(metrics)}" if named and metrics else "")


def _caption(groups: Sequence[Group]) -> str:
    warm = {run.num_warm for group in groups for run in group.runs}
    epochs = f"{min(warm)}" if len(warm) == 1 else f"{min(warm, default=0)} to {max(warm, default=0)}"
    return (f"Test metric at the best validation epoch. Times: median of the {epochs} epochs after the first, "
            "which warms up, slowest rank per phase. S sampling, N drawing negatives, L loading features, FB forward "
            "and backward. MB sent to other ranks per epoch, all ranks.")


def accuracy_cell(values: Sequence[float]) -> str:
    """Per cent, with the standard deviation over several runs."""
    known = [100 * value for value in values if not math.isnan(value)]
    if not known:
        return "–"
    mean = f"{statistics.fmean(known):.2f}"
    return f"{mean} ± {statistics.stdev(known):.2f}" if len(known) > 1 else mean


def seconds_cell(value: float) -> str:
    """Seconds to a tenth of a millisecond."""
    return "–" if math.isnan(value) else f"{value:.4f}"


def megabytes_cell(value: float) -> str:
    """10^6 bytes; 0 for a metric that no rank recorded, since a purpose without traffic is not recorded."""
    return "0" if math.isnan(value) or value == 0 else f"{value / 1e6:.3f}"


def _count_cell(group: Group) -> str:
    return f"{len(group.runs)}" + (f" (+{len(group.failed)} {group.verdict})" if group.failed else "")


def save_table(table: Table, folder: Path, name: str, formats: Sequence[str]) -> list[Path]:
    """Write `table` as `md` and/or `csv`; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"md": table.markdown, "csv": table.csv}
    files = []
    for suffix in formats:
        file = folder / f"{name}.{suffix}"
        file.write_text(texts[suffix](), encoding="utf-8")
        files.append(file)
    return files
