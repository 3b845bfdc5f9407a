"""The comparison table: one row per kind of run, with median times after the first epoch, in three formats."""

from __future__ import annotations

import csv
import io
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gnnexp.measure.merit import is_share
from gnnexp.record.records import write_text
from gnnexp.record.runs import MACHINE, RecordedRun
from gnnexp.reports.labels import flat_values
from gnnexp.reports.metrics import header_factor, interval_cell, mean_and_interval, typical_epoch, values_of

if TYPE_CHECKING:
    from rich.console import Group as Stack
    from rich.table import Table as RichTable

TIMES = (
    ("S", "time/sample_s"),
    ("N", "time/negatives_s"),
    ("L", "time/load_s"),
    ("FB", "time/fb_s"),
    ("sync", "time/sync_s"),
    ("wait", "time/wait_s"),
    ("epoch", "time/epoch_s"),
)
BYTES = tuple((tag, f"comm/bytes_{tag}") for tag in ("features", "gradients"))
# Shown if some run predicts links.
_OF_LINKS = ("N",)
# Shown if some run sent such bytes.
_MORE_BYTES = tuple(
    (tag, f"comm/bytes_{tag}")
    for tag in ("frontier", "topology", "activations", "endpoints", "embeddings", "parameters")
)
# Keys that name a row if the user chooses none; those whose values differ are used, in this order.
_KEYS = ("system", "dataset", "model", "sampler", "partitioner", "hardware.workers")
# Hyper-parameters that systems take from their papers; a comparison of systems should use one `train=` for all.
_HYPER_PARAMETERS = (
    "optimizer",
    "optimizer.lr",
    "optimizer.weight_decay",
    "train.batch_size",
    "train.batch_of",
    "train.epochs",
    "sampler.fanouts",
    "model.hidden",
    "model.layers",
    "model.dropout",
)
# At most this many keys in which runs of one row differ are named.
_MOST_NAMED = 4
# In a terminal of 200 characters, this many columns have 8 to 10 characters each; the comparison table has up to 17.
_MOST_COLUMNS = 18
# The least width of a text column in characters, and the characters around the text of any cell.
_LEAST_TEXT, _AROUND = 4, 3
# At most this many columns are repeated in each part of a table that is too wide.
_MOST_LABELS = 4
_NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?(e[+-]?\d+)?")


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ only in what the table does not show (usually the seed).

    Attributes:
        labels: the values of the row's keys.
        runs: the finished runs.
        failed: the other runs.
    """

    labels: tuple[str, ...]
    runs: tuple[RecordedRun, ...]
    failed: tuple[RecordedRun, ...]

    @property
    def name(self) -> str:
        """The name on a figure's axis, one label per line."""
        return "\n".join(self.labels)

    @property
    def verdict(self) -> str:
        """Text in place of numbers if no run finished: `OOM` as in the papers' tables, or how the runs ended."""
        kinds = {run.kind for run in self.failed}
        ends = {"out of memory": "OOM", "diverged": "diverged", "interrupted": "interrupted"}
        return ends.get(kinds.pop() if len(kinds) == 1 else "", "failed")

    def median(self, metric: str) -> float:
        """Median over the runs of each run's median; NaN if no run recorded the metric."""
        values = [value for run in self.runs if not math.isnan(value := run.median(metric))]
        return statistics.median(values) if values else math.nan


@dataclass(frozen=True)
class TextTable:
    """A table of texts.

    Attributes:
        header: names of the columns, with units.
        rows: the cells; each row has as many as `header`.
        caption: what a reader must know to read the table.
        heading: a sentence above the table, or nothing.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str
    heading: str = ""

    def first(self, columns: int) -> TextTable:
        """The table with only its first `columns` columns."""
        return TextTable(self.header[:columns], tuple(row[:columns] for row in self.rows), self.caption)

    def markdown(self) -> str:
        """The table in GitHub's syntax. Texts of records (labels, reasons) are escaped and appear unchanged."""
        header, *rows = ([_literal(cell) for cell in row] for row in (self.header, *self.rows))
        lines = [header, ["---"] * len(header), *rows]
        above = f"{_literal(self.heading)}\n\n" if self.heading else ""
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"{above}{table}\n\n{_literal(self.caption)}\n"

    def csv(self) -> str:
        """The table as comma-separated values, the header first."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.header, *self.rows])
        return text.getvalue()

    def document(self) -> dict[str, object]:
        """The table as values for JSON: a mapping per row. A column of numbers and "–" has numbers and null."""
        columns = {name: _json_cells([row[place] for row in self.rows]) for place, name in enumerate(self.header)}
        rows = [{name: values[place] for name, values in columns.items()} for place in range(len(self.rows))]
        return {"heading": self.heading, "columns": list(self.header), "rows": rows, "caption": self.caption}

    def rich(self, width: int, title: str = "") -> RichTable | Stack:
        """A table for a terminal of `width` characters; transposed (a line per column) if that is easier to read.

        If it fits neither way, it is cut into tables one below the other (`_stacked`).
        """
        header, *rows = zip(self.header, *self.rows, strict=True)
        turned = TextTable(header, tuple(rows), self.caption)
        ways = [turned, self] if len(self.header) > max(_MOST_COLUMNS, len(self.rows)) else [self, turned]
        fitting = next((way for way in ways if way._fits(width)), None)
        return fitting._upright(width, title) if fitting else self._stacked(width, title)

    def _stacked(self, width: int, title: str) -> Stack:
        """Tables of some columns each. What is the same in all rows is said once, above.

        Each table begins with the first columns that together tell the rows apart.
        """
        from rich.console import Group as Stack
        from rich.text import Text

        columns = list(zip(*self.rows, strict=True)) or [()] * len(self.header)
        same = [place for place, cells in enumerate(columns) if len(self.rows) > 1 and len(set(cells)) == 1]
        rest = [place for place in range(len(self.header)) if place not in same]
        names = next(
            (
                k
                for k in range(1, _MOST_LABELS + 1)
                if len({tuple(row[place] for place in rest[:k]) for row in self.rows}) == len(self.rows)
            ),
            1,
        )
        labels = rest[:names]
        needed = {place: max(map(len, (*self.header[place].split(), *columns[place], ""))) + _AROUND for place in rest}
        room = width - 1 - sum(min(needed[place], width // 2 // len(labels)) for place in labels)
        blocks: list[list[int]] = [[]]
        for place in (name for name in rest if name not in labels):
            if blocks[-1] and sum(needed[name] for name in (*blocks[-1], place)) > room:
                blocks.append([])
            blocks[-1].append(place)
        tables = [self._of_columns((*labels, *block))._upright(width, "") for block in blocks]
        shared = ", ".join(f"{self.header[place]} {columns[place][0]}" for place in same)
        lines = [title, f"in all rows: {shared}" if same else ""]
        return Stack(*(Text(line) for line in lines if line), *tables, Text(self.caption, "dim italic"))

    def _of_columns(self, places: Sequence[int]) -> TextTable:
        """Some columns, without the caption."""
        return TextTable(
            tuple(self.header[place] for place in places),
            tuple(tuple(row[place] for place in places) for row in self.rows),
            "",
        )

    def _widths(self) -> list[int]:
        """Widths of columns: the longest cell if there are numbers, which must not be folded; 0 for text."""
        columns = [[row[column] for row in self.rows] for column in range(len(self.header))]
        return [max(map(len, cells)) if any(cell[:1].isdigit() for cell in cells) else 0 for cells in columns]

    def _fits(self, width: int) -> bool:
        """Whether all numbers fit in one line, next to text that is folded."""
        return sum(max(one, _LEAST_TEXT) + _AROUND for one in self._widths()) < width

    def _upright(self, width: int, title: str) -> RichTable:
        from rich.table import Table as RichTable

        table = RichTable(title=title or None, caption=self.caption, caption_justify="left", title_justify="left")
        fits = self._fits(width)  # rich would cut off numbers that do not fit: then all cells are folded
        for name, least in zip(self.header, self._widths(), strict=True):
            table.add_column(
                name, justify="right" if least else "left", overflow="fold", min_width=least if fits and least else None
            )
        for row in self.rows:
            table.add_row(*row)
        return table


def _json_cells(cells: Sequence[str]) -> list[object]:
    """The cells of a column; as numbers, with None for "–", if all of them are numbers."""
    if not all(cell == "–" or _NUMBER.fullmatch(cell) for cell in cells):
        return list(cells)
    return [None if cell == "–" else float(cell.replace(",", "")) for cell in cells]


def row_keys(runs: Sequence[RecordedRun], wanted: Sequence[str] = ()) -> tuple[str, ...]:
    """Keys that name a row: the `wanted` ones, else those whose values differ, else the system.

    The machine is added if there are several kinds.
    """
    if wanted:
        return with_machine(wanted, runs)
    differing = tuple(key for key in _KEYS if len({run.label(key) for run in runs}) > 1)
    return with_machine(differing or ("system",), runs)


def with_machine(keys: Sequence[str], runs: Sequence[RecordedRun]) -> tuple[str, ...]:
    """`keys`, and the machine if `runs` were made on several kinds, so that no row averages their seconds."""
    several = len({run.machine for run in runs}) > 1 and MACHINE not in keys
    return (*keys, MACHINE) if several else tuple(keys)


def stack(tables: Mapping[str, TextTable], column: str) -> TextTable:
    """Tables below each other, with a first column that names the table of each row; missing cells are "–".

    Args:
        tables: tables by their name in the first column.
        column: header of the first column.
    """
    header = tuple(dict.fromkeys(name for table in tables.values() for name in table.header))
    rows = []
    for name, table in tables.items():
        cells = [dict(zip(table.header, row, strict=True)) for row in table.rows]
        rows += [(name, *(row.get(title, "–") for title in header)) for row in cells]
    caption = " ".join(dict.fromkeys(table.caption for table in tables.values()))
    heading = " ".join(f"{name}: {table.heading}" for name, table in tables.items() if table.heading)
    return TextTable((column, *header), tuple(rows), caption, heading)


def group_runs(runs: Sequence[RecordedRun], keys: Sequence[str]) -> list[RunGroup]:
    """Groups of runs with the same values of `keys`, in order of first appearance."""
    grouped: dict[tuple[str, ...], list[RecordedRun]] = {}
    for run in runs:
        grouped.setdefault(tuple(run.label(key) for key in keys), []).append(run)
    return [
        RunGroup(
            labels,
            tuple(run for run in members if run.status == "finished"),
            tuple(run for run in members if run.status != "finished"),
        )
        for labels, members in grouped.items()
    ]


def mixtures(groups: Sequence[RunGroup]) -> list[str]:
    """Config keys (except seeds) and code in which runs of one group differ, so that their mean mixes unlike runs."""
    differing: dict[str, None] = {}
    for group in groups:
        runs = (*group.runs, *group.failed)
        keys = _differing([flat_values(run.config) for run in runs])
        other_classes = {key.removesuffix("._target_") for key in keys if key.endswith("._target_")}
        differing |= dict.fromkeys(
            sorted(
                other_classes
                | {
                    key
                    for key in keys
                    if key.rpartition(".")[2] not in ("seed", "path", "_target_")
                    and not any(key.startswith(f"{name}.") for name in other_classes)
                }
            )
        )
        differing |= dict.fromkeys(f"the code of {name}" for name in sorted(_differing([run.code for run in runs])))
    names = list(differing)
    more = len(names) - _MOST_NAMED
    return names if more <= 0 else [*names[:_MOST_NAMED], f"{more} more keys"]


def _made_again(groups: Sequence[RunGroup]) -> int:
    """The number of runs that repeat another run of their row (`--rerun`), with equal configuration, data and code."""
    known = [[key for run in group.runs if (key := run.provenance.get("run_key"))] for group in groups]
    return sum(len(keys) - len(set(keys)) for keys in known)


def _differing(found: Sequence[Mapping[str, str]]) -> set[str]:
    return {key for one in found for key in one if any(other.get(key) != one[key] for other in found)}


def make_table(groups: Sequence[RunGroup], keys: Sequence[str]) -> TextTable:
    """The table of accuracy at the best validation epoch, phases and epoch in seconds, and bytes sent by all ranks."""
    metrics = {run.best("test")[0] for group in groups for run in group.runs} - {""} or {"acc/test"}
    sent = (*BYTES, *(pair for pair in _MORE_BYTES if any(group.median(pair[1]) > 0 for group in groups)))
    times = [
        (name, metric)
        for name, metric in TIMES
        if name not in _OF_LINKS or any(group.median(metric) > 0 for group in groups)
    ]
    header = (
        *_short(keys),
        (min(metrics) if len(metrics) == 1 else "test") + " %" * all(map(is_share, metrics)),
        *(f"{name} s" for name, _ in times),
        *(f"{name} MB" for name, _ in sent),
        "runs",
    )
    rows = [
        (
            *group.labels,
            _metric_cell(group, named=len(metrics) > 1),
            *(
                interval_cell([run.median(name) for run in group.runs], ".4f") if group.runs else group.verdict
                for _, name in times
            ),
            *(_bytes_cell(group, name) if group.runs else "–" for _, name in sent),
            _count_cell(group),
        )
        for group in groups
    ]
    return TextTable(header, tuple(rows), _caption(groups, keys))


def make_columns(groups: Sequence[RunGroup], keys: Sequence[str], columns: Mapping[str, str]) -> TextTable:
    """The table of a sweep's `report.columns`: metrics of the record by header; a header's last word is the unit."""
    rows = [
        (
            *group.labels,
            *(_column_cell(group, header, metric) for header, metric in columns.items()),
            _count_cell(group),
        )
        for group in groups
    ]
    what = "; ".join(f"{header}: {metric}" for header, metric in columns.items())
    return TextTable((*_short(keys), *columns, "runs"), tuple(rows), f"{what}. {shared_caption(groups, keys)}")


def _column_cell(group: RunGroup, header: str, metric: str) -> str:
    if not group.runs:
        return group.verdict
    factor = header_factor(header)
    return interval_cell([factor * value for value in values_of(group.runs, metric)])


def _short(keys: Sequence[str]) -> list[str]:
    return [key.rpartition(".")[2] if key.startswith("hardware") else key for key in keys]


def shared_caption(groups: Sequence[RunGroup], keys: Sequence[str] = ()) -> str:
    """The notes of every comparison: the epochs, the meaning of `±`, and in what runs of a row or rows differ.

    Args:
        groups: the rows of the table.
        keys: config keys that name a row.
    """
    runs = [run for group in groups for run in group.runs]
    notes = [f"Times, bytes and counts: {typical_epoch(runs)}."]
    if any(len(group.runs) > 1 for group in groups):
        notes.append("Over several runs: mean ± half the width of the 95 % interval (Student's t).")
    if again := _made_again(groups):
        notes.append(
            f"{again} of the runs {'repeats' if again == 1 else 'repeat'} another run of the same row, seed "
            "included; the interval treats them as independent."
        )
    if differing := mixtures(groups):
        notes.append(f"Some rows combine runs that differ in {', '.join(differing)}.")
    if unequal := [key for key in _HYPER_PARAMETERS if key not in keys and len(_values(runs, key)) > 1]:
        notes.append(f"Rows differ in hyper-parameters: {', '.join(unequal)}.")
    return " ".join(notes)


def _values(runs: Sequence[RecordedRun], key: str) -> set[str]:
    return {run.value(key) for run in runs} - {"null"}


def _metric_cell(group: RunGroup, *, named: bool) -> str:
    """The test metric of a group, with the metric's name if the table has several metrics."""
    if not group.runs:
        return group.verdict
    best = [run.best("test") for run in group.runs]
    metrics = {name.partition("/")[0] for name, _ in best} - {""}
    if len(metrics) > 1:
        return f"– ({', '.join(sorted(metrics))} in one row)"
    shown = (
        interval_cell([100 * value for _, value in best], ".2f")
        if all(map(is_share, metrics))
        else interval_cell([value for _, value in best])
    )
    return shown + (f" {min(metrics)}" if named and metrics else "")


def _caption(groups: Sequence[RunGroup], keys: Sequence[str]) -> str:
    return (
        f"Test metric at the best validation epoch. {shared_caption(groups, keys)} Seconds are of the slowest rank "
        "in each phase. S is sampling, N drawing negatives, L loading features, FB forward and backward. MB are "
        "sent to other ranks per epoch, summed over all ranks."
    )


def _bytes_cell(group: RunGroup, metric: str) -> str:
    """Sent bytes in units of 10^6; 0 if no rank recorded the metric: a tag without traffic is not recorded.

    A dash for external systems that did not report it.
    """
    medians = [(run.median(metric), "external" in run.facts) for run in group.runs]
    values = [
        0.0 if math.isnan(value) else value for value, external in medians if not (external and math.isnan(value))
    ]
    if not values:
        return "–"
    mean, half = mean_and_interval(values)
    return (f"{mean / 1e6:.3f}" if mean else "0") + (f" ± {half / 1e6:.2g}" if half > 0 else "")


def _count_cell(group: RunGroup) -> str:
    return f"{len(group.runs)}" + (f" (+{len(group.failed)} {group.verdict})" if group.failed else "")


def _literal(text: str) -> str:
    """`text` in Markdown, so that it contains no HTML tags, no links, and no end of a cell or line."""
    for special, written in (("<", "&lt;"), ("](", "]\\("), ("|", "\\|"), ("\n", " ")):
        text = text.replace(special, written)
    return text


def save_table(table: TextTable, folder: Path, name: str, formats: Sequence[str]) -> list[Path]:
    """Write `table` as `md` and/or `csv`, and return the files."""
    texts = {"md": table.markdown, "csv": table.csv}
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for suffix in formats:
        file = folder / f"{name}.{suffix}"
        write_text(file, texts[suffix]())
        files.append(file)
    return files
