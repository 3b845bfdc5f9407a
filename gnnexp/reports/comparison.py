"""The comparison table: one row per kind of run, with median times after the first epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Literal

from gnnexp.measure.merit import is_share, lower_is_better
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.metrics import header_factor, is_time, seconds_to, typical_epoch, value_of
from gnnexp.reports.tables.cells import ABSENT, ENOUGH_FOR_INTERVAL, CountCell, StatisticsCell, TableCell
from gnnexp.reports.tables.groups import RunGroup, contender_place, labels_at, mixtures, repeated_runs, setting_places
from gnnexp.reports.tables.table import ReportTable

# Header and metric of the test metric where rows have several.
TEST = "test"
# Metric of the column of `report.target`.
TO_TARGET = "time/to_target_s"
# At most this many runs that have no value are named.
_MOST_LOST = 6
TIMES = (
    ("epoch", "time/epoch_s"),
    ("S", "time/sample_s"),
    ("N", "time/negatives_s"),
    ("L", "time/load_s"),
    ("FB", "time/fb_s"),
    ("sync", "time/sync_s"),
    ("wait", "time/wait_s"),
)
BYTES = tuple((tag, f"comm/bytes_{tag}") for tag in ("features", "gradients"))
# Shown if some run predicts links.
_OF_LINKS = ("N",)
# Shown if some run sent such bytes.
_MORE_BYTES = tuple(
    (tag, f"comm/bytes_{tag}")
    for tag in ("frontier", "topology", "activations", "endpoints", "embeddings", "parameters")
)
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


Better = Literal["higher", "lower", ""]


@dataclass(frozen=True)
class MeasuredColumn:
    """A column of numbers, and how it is read from runs.

    Attributes:
        header: its header; the last word is the unit.
        value_of: the value of a run in that unit; NaN if it recorded none.
        form: format of the numbers.
        metric: what it measures, a name of the record.
        better: which values are better, for the marks of the best ones; empty: neither.
    """

    header: str
    value_of: Callable[[RecordedRun], float]
    form: str
    metric: str
    better: Better = ""

    def cell(self, group: RunGroup) -> StatisticsCell:
        """The cell of a row."""
        values = tuple(value for run in group.runs if math.isfinite(value := self.value_of(run)))
        return StatisticsCell(values, self.form, ABSENT if group.runs else group.verdict)


def usual_columns(groups: Sequence[RunGroup], target: float | None = None) -> list[MeasuredColumn]:
    """Test metric, seconds of the epoch and of phases, and bytes sent by all ranks, as far as some run has them.

    With a `target`, the seconds of training until the validation metric reaches it come after the test metric's column.
    """
    sent = (*BYTES, *(pair for pair in _MORE_BYTES if any(group.mean(pair[1]) > 0 for group in groups)))
    times = [
        (name, metric)
        for name, metric in TIMES
        if name not in _OF_LINKS or any(group.mean(metric) > 0 for group in groups)
    ]
    return [
        _test_column(_test_metrics(groups)),
        *target_columns(target),
        *(
            MeasuredColumn(f"{name} s", partial(_median, metric), ".4f", metric, "lower" if name == "epoch" else "")
            for name, metric in times
        ),
        *(MeasuredColumn(f"{tag} MB", partial(_megabytes, metric), ".3f", metric) for tag, metric in sent),
    ]


def chosen_columns(columns: Mapping[str, str]) -> list[MeasuredColumn]:
    """The columns of a sweep's `report.columns`: metrics of the record by header; a header's last word is the unit."""
    return [
        MeasuredColumn(header, partial(_scaled, header_factor(header), metric), ".4g", metric, _better(metric))
        for header, metric in columns.items()
    ]


def target_columns(target: float | None) -> list[MeasuredColumn]:
    """The column of `report.target`, or none."""
    if target is None:
        return []
    name = f"to val {target:g} s"
    return [MeasuredColumn(name, partial(seconds_to, target), ".4g", TO_TARGET, "lower")]


def make_table(groups: Sequence[RunGroup], keys: Sequence[str], target: float | None = None) -> ReportTable:
    """The table of accuracy at the best validation epoch, phases and epoch in seconds, and bytes sent by all ranks."""
    columns = usual_columns(groups, target)
    table = _table(groups, keys, columns, _caption(groups, keys, columns))
    if len(_test_metrics(groups)) < 2:
        return table
    place = len(keys)  # several metrics: a column says which one a row has, and no mean mixes them
    rows = []
    for row, group in zip(table.rows, groups, strict=True):
        metrics = _test_metrics([group])
        test = row[place] if len(metrics) < 2 else StatisticsCell((), absent=f"{ABSENT} (several metrics)")
        rows.append((*row[:place], _metric_of(metrics), test, *row[place + 1 :]))
    best = frozenset((row, column + 1) for row, column in table.best if column > place)
    return ReportTable((*table.header[:place], "metric", *table.header[place:]), tuple(rows), table.caption, best=best)


def make_columns(
    groups: Sequence[RunGroup], keys: Sequence[str], columns: Mapping[str, str], target: float | None = None
) -> ReportTable:
    """The table of a sweep's `report.columns`."""
    what = "; ".join(f"{header}: {metric}" for header, metric in columns.items())
    measured = [*chosen_columns(columns), *target_columns(target)]
    return _table(groups, keys, measured, f"{what}. {shared_caption(groups, keys, measured)}")


def _table(
    groups: Sequence[RunGroup], keys: Sequence[str], columns: Sequence[MeasuredColumn], caption: str
) -> ReportTable:
    rows: list[tuple[TableCell, ...]] = [
        (*group.labels, *(column.cell(group) for column in columns), count_cell(group)) for group in groups
    ]
    header = (*_short(keys), *(column.header for column in columns), "runs")
    best = frozenset(
        (row, len(keys) + place) for place, column in enumerate(columns) for row in _best_rows(groups, keys, column)
    )
    return ReportTable(header, tuple(rows), caption, best=best)


def _best_rows(groups: Sequence[RunGroup], keys: Sequence[str], column: MeasuredColumn) -> list[int]:
    """Places of the rows that are the best of their setting; none where there is nothing to compare with."""
    place = contender_place(keys)
    if place is None or not column.better or not groups:
        return []
    shared, sign = setting_places(groups, keys, place), 1 if column.better == "lower" else -1
    settings: dict[tuple[str, ...], list[tuple[int, StatisticsCell]]] = {}
    for row, group in enumerate(groups):
        if (cell := column.cell(group)).values:
            settings.setdefault(labels_at(group, shared), []).append((row, cell))
    best = []
    for rows in settings.values():
        head = min((cell for _, cell in rows), key=lambda cell: sign * cell.mean).head
        best += [row for row, cell in rows if cell.head == head] if len(rows) > 1 else []
    return best


def _better(metric: str) -> Better:
    """Lower for seconds and bytes; for a task's metric what the metric says; neither for counts."""
    room, _, split = metric.partition("/")
    if split in ("val", "test"):
        return "lower" if room == "loss" or lower_is_better(metric) else "higher"
    return "lower" if is_time(metric) or "bytes" in metric else ""


def _short(keys: Sequence[str]) -> list[str]:
    return [key.rpartition(".")[2] if key.startswith("hardware") else key for key in keys]


def count_cell(group: RunGroup) -> CountCell:
    """How many runs of a row finished, and how the others ended."""
    return CountCell(len(group.runs), len(group.failed), group.verdict if group.failed else "")


def shared_caption(groups: Sequence[RunGroup], keys: Sequence[str] = (), columns: Sequence[MeasuredColumn] = ()) -> str:
    """The notes of every comparison: the epochs, the meaning of cells, and in what runs of a row or rows differ.

    Args:
        groups: the rows of the table.
        keys: config keys that name a row.
        columns: the columns, to name the runs that have no value in them.
    """
    runs = [run for group in groups for run in group.runs]
    notes = [f"Times, bytes and counts: {typical_epoch(runs)}.", *spread_notes(groups)]
    if again := repeated_runs(groups):
        notes.append(
            f"{again} of the runs {'repeats' if again == 1 else 'repeat'} another run of the same row, seed "
            "included; the interval treats them as independent."
        )
    notes += lost_notes(groups, columns)
    if differing := mixtures(groups):
        notes.append(f"Some rows combine runs that differ in {', '.join(differing)}.")
    if unequal := [key for key in _HYPER_PARAMETERS if key not in keys and len(_values(runs, key)) > 1]:
        notes.append(f"Rows differ in hyper-parameters: {', '.join(unequal)}.")
    return " ".join(notes)


def spread_notes(groups: Sequence[RunGroup]) -> list[str]:
    """What stands behind a mean over several runs, and why it is a range if they are few."""
    counts = {len(group.runs) for group in groups}
    notes = []
    if any(count >= ENOUGH_FOR_INTERVAL for count in counts):
        notes.append("Over several runs: mean ± half the width of the 95 % interval (Student's t).")
    if any(1 < count < ENOUGH_FOR_INTERVAL for count in counts):
        notes.append(
            f"Over fewer than {ENOUGH_FOR_INTERVAL} runs: mean (least to greatest value), because a 95 % interval of "
            "so few is mostly far wider than what they show; CSV, JSON and Parquet have it."
        )
    return notes


def lost_notes(groups: Sequence[RunGroup], columns: Sequence[MeasuredColumn]) -> list[str]:
    """Names of runs that are not in the numbers: those that failed, and those without a value that others have."""
    failed = [f"{name_of_run(run)} ({run.kind or run.status})" for group in groups for run in group.failed]
    without: dict[str, list[str]] = {}
    for column in columns:
        for group in groups:
            lost = [run for run in group.runs if not math.isfinite(column.value_of(run))]
            for run in lost if 0 < len(lost) < len(group.runs) else ():
                without.setdefault(name_of_run(run), []).append(column.header)
    notes = [f"Not in the numbers, because they did not finish: {some_names(failed)}."] if failed else []
    if without:
        named = [f"{name} (no {', '.join(headers)})" for name, headers in without.items()]
        notes.append(f"Not in some numbers, because the value is missing or NaN: {some_names(named)}.")
    return [*notes, *_missed_notes(groups, columns)]


def _missed_notes(groups: Sequence[RunGroup], columns: Sequence[MeasuredColumn]) -> list[str]:
    """The rows of which no run reached the value of `report.target`."""
    missed = [
        " ".join(group.labels)
        for column in columns
        for group in groups
        if column.metric == TO_TARGET and group.runs and not column.cell(group).values
    ]
    return [f"No run reached the target: {some_names(missed)}."] if missed else []


def name_of_run(run: RecordedRun) -> str:
    """The name of a run in captions: its system, dataset and seed."""
    return f"{run.value('system')} {run.value('dataset')} seed {run.value('seed')}"


def some_names(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - _MOST_LOST
    return ", ".join(names if more <= 0 else (*names[:_MOST_LOST], f"{more} more"))


def _values(runs: Sequence[RecordedRun], key: str) -> set[str]:
    return {run.value(key) for run in runs} - {"null"}


def _test_metrics(groups: Sequence[RunGroup]) -> set[str]:
    return {run.best("test")[0] for group in groups for run in group.runs} - {""}


def _test_column(metrics: Set[str]) -> MeasuredColumn:
    """The task's metric, in percent if it is a share. Where rows have several, another column names them."""
    if len(metrics) > 1:
        return MeasuredColumn(TEST, _test_value, ".2f" if all(map(is_share, metrics)) else ".4g", TEST)
    name = min(metrics, default="acc/test")
    return MeasuredColumn(
        name + " %" * is_share(name), _test_value, ".2f" if is_share(name) else ".4g", name, _better(name)
    )


def _test_value(run: RecordedRun) -> float:
    name, value = run.best("test")
    return 100 * value if is_share(name) else value


def _metric_of(metrics: Set[str]) -> str:
    """The metrics of a row, without their split: `acc %`, `mse`."""
    return ", ".join(name.partition("/")[0] + " %" * is_share(name) for name in sorted(metrics)) or ABSENT


def _median(metric: str, run: RecordedRun) -> float:
    return run.median(metric)


def _scaled(factor: float, metric: str, run: RecordedRun) -> float:
    return factor * value_of(run, metric)


def _megabytes(metric: str, run: RecordedRun) -> float:
    """Sent bytes in units of 10^6; 0 if no rank recorded the metric: a tag without traffic is not recorded.

    NaN for external systems that did not report it.
    """
    value = run.median(metric)
    return value / 1e6 if not math.isnan(value) else math.nan if "external" in run.facts else 0.0


def _caption(groups: Sequence[RunGroup], keys: Sequence[str], columns: Sequence[MeasuredColumn]) -> str:
    return (
        f"Test metric at the best validation epoch. {shared_caption(groups, keys, columns)} Seconds are of the slowest "
        "rank in each phase. S is sampling, N drawing negatives, L loading features, FB forward and backward. MB are "
        "sent to other ranks per epoch, summed over all ranks."
    )
