"""The first answer of a report: the fastest system of each setting, by how much, why, at what accuracy, how sure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gnnexp.measure.phases import PHASES
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.comparison import MeasuredColumn, some_names, usual_columns
from gnnexp.reports.labels import differing_keys, flat_values
from gnnexp.reports.metrics import value_of
from gnnexp.reports.paired.statistics import ALPHA, LEAST_PAIRS, Verdict
from gnnexp.reports.paired.verdicts import Margins, PairedResult, paired_with
from gnnexp.reports.tables.cells import ABSENT, TableCell
from gnnexp.reports.tables.groups import RunGroup, contender_place, labels_at, setting_places
from gnnexp.reports.tables.table import ReportTable

EPOCH = "time/epoch_s"
# The name of the table, and the header of its first column behind the labels of a setting.
ANSWER, FASTEST = "answer", "fastest"
# Phases that together explain this share of a difference are named, at most so many.
_ENOUGH, _MOST_PHASES = 0.6, 2
# Settings that change what is computed. Others (feature stores, partitioners, hardware) change only where and how fast.
_CHANGES_RESULT = ("sampler", "model", "optimizer", "scheduler", "train", "task", "dataset", "seed")
# Settings below these that change no result.
_CHANGES_NONE = (
    "train.checkpoint_every",
    "train.checkpoints_kept",
    "train.eval_memory",
    "train.overlap",
    "train.cuda_graph",
    "sampler.threads",
    "sampler.prefetch",
    "sampler.device",
    "sampler.tier",
    "sampler.topology",
    "model.kernel",
    "dataset.path",
    "dataset.buffer_bytes",
)
_MOST_KEYS = 4


@dataclass(frozen=True)
class SettingAnswer:
    """The answer in one setting.

    Attributes:
        labels: what the contenders share.
        fastest: the row with the least seconds of an epoch.
        rivals: the other rows, by their seconds, each with its pairs against the fastest in seconds and in accuracy.
        place: place of the contenders' name among the labels.
    """

    labels: tuple[str, ...]
    fastest: RunGroup
    rivals: tuple[tuple[PairedResult, PairedResult], ...]
    place: int

    @property
    def name(self) -> str:
        """The fastest system."""
        return self.fastest.labels[self.place]


def setting_answers(groups: Sequence[RunGroup], keys: Sequence[str], margins: Margins) -> list[SettingAnswer]:
    """An answer for each setting in which at least two systems finished; none if rows are not named by one thing."""
    place = contender_place(keys)
    if place is None or not groups:
        return []
    shared = setting_places(groups, place)
    test, epoch = usual_columns(groups)[:2]
    settings: dict[tuple[str, ...], list[RunGroup]] = {}
    for group in groups:
        if group.runs and not math.isnan(epoch.cell(group).mean):
            settings.setdefault(labels_at(group, shared), []).append(group)
    return [_answer(labels, rows, (test, epoch), place, margins) for labels, rows in settings.items() if len(rows) > 1]


def _answer(
    labels: tuple[str, ...],
    rows: Sequence[RunGroup],
    columns: tuple[MeasuredColumn, MeasuredColumn],
    place: int,
    margins: Margins,
) -> SettingAnswer:
    test, epoch = columns
    fastest, *others = sorted(rows, key=lambda group: epoch.cell(group).mean)
    times = paired_with(fastest, others, epoch, margins, ALPHA)
    shares = paired_with(fastest, others, test, margins, ALPHA)
    return SettingAnswer(labels, fastest, tuple(zip(times, shares, strict=True)), place)


def answer_table(answers: Sequence[SettingAnswer], groups: Sequence[RunGroup], keys: Sequence[str]) -> ReportTable:
    """A row per setting: the fastest system, why, at what accuracy, whether all are exact, and what else differs."""
    place = contender_place(keys)
    assert place is not None, "there is an answer"
    shared = setting_places(groups, place)
    header = (
        *(keys[k].removeprefix("hardware.") for k in shared),
        FASTEST,
        "epoch s",
        "others take",
        "why",
        "accuracy",
        "exact",
        "what else differs",
    )
    rows: list[tuple[TableCell, ...]] = [
        (
            *answer.labels,
            _fastest(answer),
            answer.rivals[0][0].column.cell(answer.fastest),
            "\n".join(_times(answer, time) for time, _ in answer.rivals),
            "\n".join(filter(None, (_why(answer, time) for time, _ in answer.rivals))) or ABSENT,
            _accuracy(answer),
            _exact(answer),
            "\n".join(filter(None, (_confounders(answer, time) for time, _ in answer.rivals))) or "nothing",
        )
        for answer in answers
    ]
    caption = " ".join(filter(None, (_CAPTION, _left_out(groups))))
    return ReportTable(header, tuple(rows), caption, _heading(answers))


def _left_out(groups: Sequence[RunGroup]) -> str:
    """The rows that take no part: without a finished run, or without seconds of an epoch."""
    epoch = usual_columns(groups)[1]
    failed = [f"{' '.join(group.labels)} ({group.verdict})" for group in groups if not group.runs]
    silent = [
        f"{' '.join(group.labels)} (no seconds of an epoch)"
        for group in groups
        if group.runs and not epoch.cell(group).values
    ]
    return f"Takes no part: {some_names([*failed, *silent])}." if failed or silent else ""


_CAPTION = (
    "Others take: the ratio of their epoch to that of the fastest, over pairs of runs with the same seed and data, "
    "with its 95 % interval and verdict. Why: the phases that differ most, means over the ranks, and bytes sent by all "
    "ranks in an epoch. Accuracy: the test metric; a rival's difference and its verdict. Exact: trains as one device "
    "would. "
    "What else differs: settings that change what is computed, so that neither seconds nor accuracy compare systems "
    "alone."
)


def _heading(answers: Sequence[SettingAnswer]) -> str:
    """Which system is fastest, over all settings."""
    if len(answers) == 1:
        return f"Fastest: {_fastest(answers[0])}."
    counts = Counter(_in_short(answer) for answer in answers)
    names = ", ".join(f"{name} in {count}" for name, count in counts.most_common())
    return f"Fastest: {names} of {len(answers)} settings."


def _in_short(answer: SettingAnswer) -> str:
    return _fastest(answer).partition(":")[0]


def _as_fast(answer: SettingAnswer) -> list[str]:
    """The rivals that may be as fast."""
    return [time.rival.labels[answer.place] for time, _ in answer.rivals if time.verdict is not Verdict.DIFFERS]


def _fastest(answer: SettingAnswer) -> str:
    """The fastest system, or that it is undecided among several, or that the runs are too few to decide anything."""
    pairs = max(len(time.difference.differences) for time, _ in answer.rivals)
    if pairs < LEAST_PAIRS:
        return f"{answer.name}, not proven: {pairs} pair{'s' if pairs != 1 else ''} of runs"
    near = _as_fast(answer)
    return f"undecided: {' or '.join((answer.name, *near))}" if near else answer.name


def _times(answer: SettingAnswer, time: PairedResult) -> str:
    name = time.rival.labels[answer.place]
    if not time.difference.differences:
        ratio = time.column.cell(time.rival).mean / time.column.cell(time.against).mean
        return f"{name} {ratio:.2f}x (no pair)"
    low, high = time.interval
    if len(time.difference.differences) < LEAST_PAIRS:
        return f"{name} {time.estimate:.2f}x"
    return f"{name} {time.estimate:.2f}x ({low:.2f} to {high:.2f}), {time.text}"


def _why(answer: SettingAnswer, time: PairedResult) -> str:
    """The phases that explain most of a rival's longer epoch, and the bytes of both."""
    rival, fastest = time.rival, time.against
    whole = _mean(rival, f"{EPOCH}_mean") - _mean(fastest, f"{EPOCH}_mean")
    parts = {name: _mean(rival, f"time/{name}_s_mean") - _mean(fastest, f"time/{name}_s_mean") for name in _NAMED}
    longest = sorted((name for name in parts if parts[name] > 0), key=lambda name: -parts[name])
    said_phases, covered = [], 0.0
    for name in longest[:_MOST_PHASES]:
        if whole > 0 and covered < _ENOUGH:
            said_phases.append(f"{name} +{parts[name]:.3g} s")
            covered += parts[name] / whole
    sent = [_bytes(group) for group in (rival, fastest)]
    traffic = f"sends {sent[0]:.3g} MB, not {sent[1]:.3g}" if sent[0] != sent[1] else ""
    reasons = ", ".join([*said_phases, *([traffic] if traffic else [])])
    return f"{rival.labels[answer.place]}: {reasons}" if reasons else ""


_NAMED = (*PHASES, "unaccounted")


def _mean(group: RunGroup, metric: str) -> float:
    """Mean over the runs of a row; 0 if none recorded it: such a phase is a part of another one."""
    values = [value for run in group.runs if not math.isnan(value := value_of(run, metric))]
    return sum(values) / len(values) if values else 0.0


def _bytes(group: RunGroup) -> float:
    """Bytes that all ranks send in an epoch, in units of 10^6, mean over the runs."""
    recorded = {name for run in group.runs if run.epochs for name in run.epochs[-1]}
    names = sorted(name for name in recorded if name.startswith("comm/bytes_"))
    return sum(_mean(group, name) for name in names) / 1e6


def _accuracy(answer: SettingAnswer) -> str:
    test = answer.rivals[0][1].column
    cell = test.cell(answer.fastest)
    if not cell.values:
        return ABSENT
    others = [
        f"{share.rival.labels[answer.place]} {share.estimate:+.2f} ({share.text})"
        if not share.difference.is_ratio
        else f"{share.rival.labels[answer.place]} {share.estimate:.3f}x ({share.text})"
        for _, share in answer.rivals
        if share.difference.differences
    ]
    return "\n".join((f"{test.header} {cell.text}", *others))


def _exact(answer: SettingAnswer) -> str:
    groups = (answer.fastest, *(time.rival for time, _ in answer.rivals))
    words = {group.labels[answer.place]: _approximation(group.runs) for group in groups}
    named = [f"{name}: {what}" for name, what in words.items() if what]
    return "\n".join(named) or "all"


def _approximation(runs: Sequence[RecordedRun]) -> str:
    """What the runs of a row approximate; empty if all are exact."""
    if any("external" in run.facts for run in runs):
        return "a system of its own, not checked by gnnexp"
    if any("exact" not in run.facts for run in runs):
        return "not recorded"
    inexact = [run for run in runs if not run.facts["exact"]]
    return f"approximates {inexact[0].facts.get('approximates') or 'something that is not recorded'}" if inexact else ""


def _confounders(answer: SettingAnswer, time: PairedResult) -> str:
    """Keys that change what is computed and that differ between a rival's run and its partner."""
    pairs = time.pairs.pairs or ((time.against.runs[0], time.rival.runs[0]),)
    configs = [flat_values({name: run.config.get(name) for name in _CHANGES_RESULT}) for run in pairs[0]]
    keys = sorted(key for key in differing_keys(configs) if not key.startswith(_CHANGES_NONE))
    shown = [
        f"{key.removesuffix('._target_')} ({_value(pairs[0][1], key)}, not {_value(pairs[0][0], key)})"
        for key in _outermost(keys)
    ]
    more = len(shown) - _MOST_KEYS
    names = shown if more <= 0 else [*shown[:_MOST_KEYS], f"{more} more"]
    return f"{time.rival.labels[answer.place]}: {', '.join(names)}" if names else ""


def _outermost(keys: Sequence[str]) -> list[str]:
    """Without the options of components whose class differs already."""
    classes = {key.removesuffix("_target_") for key in keys if key.endswith("._target_")}
    return [key for key in keys if key.endswith("._target_") or not any(key.startswith(name) for name in classes)]


def _value(run: RecordedRun, key: str) -> str:
    """A config value; of a component the name of its choice."""
    return run.value(key.removesuffix("._target_"))
