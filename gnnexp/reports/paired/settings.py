"""The first answer at a glance: a row per setting, and next to each other the epochs, accuracies and speed-ups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gnnexp.reports.comparison import TEST, MeasuredColumn, usual_columns
from gnnexp.reports.paired.fastest import FASTEST, SettingAnswer, in_all, in_short, next_takes
from gnnexp.reports.tables.cells import ABSENT, NumberCell, TableCell
from gnnexp.reports.tables.groups import RunGroup, contender_place, labels_at, setting_places
from gnnexp.reports.tables.table import ReportTable

# The name of the table.
SETTINGS = "settings"
# The key along which a speed-up is measured.
_WORKERS = "hardware.workers"
# Of more systems than these, columns of their own would be too many.
_MOST_SYSTEMS = 6
_CAPTION = (
    "Next takes: the epoch of the second one over that of the fastest, with the 95 % interval over pairs of runs with "
    "the same seed."
)
_FEW = "Epochs and accuracies are means over runs; bold: proven to be the fastest."
_SPEED_UP = (
    "Speed-up: seconds of an epoch with the fewest workers that this system finished with over those here; below 1, "
    "more workers are slower."
)

Contenders = Mapping[str, RunGroup]
Settings = Mapping[tuple[str, ...], Contenders]


def settings_table(
    answers: Sequence[SettingAnswer], groups: Sequence[RunGroup], keys: Sequence[str], heading: str
) -> ReportTable | None:
    """Settings as rows, systems as columns; None for fewer than two settings.

    Args:
        answers: the answer of each setting that has one.
        groups: all rows of the report, named by one thing.
        keys: config keys that name a row.
        heading: the answer in a sentence.
    """
    place = contender_place(keys)
    assert place is not None, "there is an answer"
    shared = setting_places(groups, keys, place)
    settings: dict[tuple[str, ...], dict[str, RunGroup]] = {}
    for group in groups:
        settings.setdefault(labels_at(group, shared), {})[group.labels[place]] = group
    if len(settings) < 2:
        return None
    names = list(dict.fromkeys(group.labels[place] for group in groups))
    test, epoch = usual_columns(groups)[:2]
    columns = _answer_columns(answers, settings)
    first = len(shared) + len(columns)
    if few := len(names) <= _MOST_SYSTEMS:
        columns += [
            (
                f"{name} {column.header.replace('/test', '')}",
                [_mean(column, row.get(name)) for row in settings.values()],
            )
            for column in (epoch, test)
            if column.header != TEST and any(column.cell(group).values for group in groups)
            for name in names
        ]
    along = next((number for number, k in enumerate(shared) if keys[k] == _WORKERS), None)
    counts = {labels[along] for labels in settings} if few and along is not None else set()
    sped = len(counts) > 1 and all(count.isdecimal() for count in counts)  # a record may lack it
    if along is not None and sped:
        columns += [(f"{name} speed-up", _speed_ups(settings, name, epoch, along)) for name in names]
    header = (*(keys[k].removeprefix("hardware.") for k in shared), *(title for title, _ in columns))
    rows = tuple((*labels, *(cells[number] for _, cells in columns)) for number, labels in enumerate(settings))
    fastest = {answer.labels: in_short(answer) for answer in answers}
    best = {
        (number, first + at)
        for number, labels in enumerate(settings)
        for at, name in enumerate(names)
        if few and fastest.get(labels) == name
    }
    caption = " ".join(filter(None, (in_all(groups), _CAPTION, _FEW if few else "", _SPEED_UP if sped else "")))
    return ReportTable(header, rows, caption, heading, frozenset(best))


def _answer_columns(answers: Sequence[SettingAnswer], settings: Settings) -> list[tuple[str, list[TableCell]]]:
    """The fastest of each setting, and how many times as long the next one takes."""
    answer_of = {answer.labels: answer for answer in answers}
    known = [answer_of.get(labels) for labels in settings]
    return [
        (FASTEST, [in_short(answer) if answer else ABSENT for answer in known]),
        ("next takes", [next_takes(answer) if answer else ABSENT for answer in known]),
    ]


def _mean(column: MeasuredColumn, group: RunGroup | None) -> NumberCell:
    """The mean of a row's runs; what became of them if none has a value."""
    cell = column.cell(group) if group else None
    return NumberCell(cell.mean if cell else math.nan, column.form, cell.absent if cell else ABSENT)


def _speed_ups(settings: Settings, name: str, epoch: MeasuredColumn, along: int) -> list[TableCell]:
    """Of one system, for each setting; nothing where it has the fewest workers of those that it finished with."""
    means = {labels: epoch.cell(row[name]).mean for labels, row in settings.items() if name in row}
    seconds = {labels: mean for labels, mean in means.items() if mean > 0}
    cells: list[TableCell] = []
    for labels in settings:
        bases = [other for other in seconds if _alike(other, labels, along)]
        fewest = min(bases, key=lambda other: int(other[along]), default=labels)
        faster = labels != fewest and labels in seconds
        cells.append(NumberCell(seconds[fewest] / seconds[labels] if faster else math.nan, ".2f"))
    return cells


def _alike(labels: tuple[str, ...], others: tuple[str, ...], but: int) -> bool:
    return all(label == other for k, (label, other) in enumerate(zip(labels, others, strict=True)) if k != but)
