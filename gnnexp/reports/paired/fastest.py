"""The first answer of a report: the fastest system of each setting, by how much, why, at what accuracy, how sure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gnnexp.measure.phases import PHASES
from gnnexp.record.runs import MACHINE, RecordedRun
from gnnexp.reports.comparison import MeasuredColumn, lost_notes, some_names, spread_notes, usual_columns
from gnnexp.reports.labels import differing_keys, flat_values, said
from gnnexp.reports.metrics import value_of
from gnnexp.reports.paired.statistics import ALPHA, LEAST_PAIRS, Verdict
from gnnexp.reports.paired.verdicts import Margins, PairedResult, paired_with
from gnnexp.reports.tables.cells import ABSENT, TableCell
from gnnexp.reports.tables.groups import RunGroup, contender_place, labels_at, mixtures, setting_places
from gnnexp.reports.tables.table import ReportTable

EPOCH = "time/epoch_s"
# The name of the table, and the header of its first column behind the labels of a setting.
ANSWER, FASTEST = "answer", "fastest"
UNDECIDED, EQUAL = "undecided", "equal"
# What the sentence above all settings begins with.
HEADING = "Fastest: "
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
_ASKED_FIRST = ("model", "model.hidden", "train.batch_size", "sampler.fanouts", "train.epochs", MACHINE)
# At most this many settings in which another system is fastest are named in the heading.
_MOST_RARE = 3


@dataclass(frozen=True)
class SettingAnswer:
    """The answer in one setting.

    Attributes:
        labels: what the contenders share.
        fastest: the row with the least seconds of an epoch, unless pairs of runs prove another one faster.
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
    shared = setting_places(groups, keys, place)
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
    ordered = sorted(rows, key=lambda group: epoch.cell(group).mean)
    for _ in rows:  # the least mean may be of other seeds than its rivals'
        fastest, *others = ordered
        times = paired_with(fastest, others, epoch, margins, ALPHA)
        faster = [time.rival for time in times if time.verdict is Verdict.DIFFERS and time.estimate < 1]
        if not faster:
            break
        ordered = [faster[0], *(row for row in ordered if row is not faster[0])]
    shares = paired_with(fastest, others, test, margins, ALPHA)
    return SettingAnswer(labels, fastest, tuple(zip(times, shares, strict=True)), place)


def answer_table(answers: Sequence[SettingAnswer], groups: Sequence[RunGroup], keys: Sequence[str]) -> ReportTable:
    """A row per setting: the fastest system, why, at what accuracy, whether all are exact, and what else differs."""
    place = contender_place(keys)
    assert place is not None, "there is an answer"
    shared = setting_places(groups, keys, place)
    header = (
        *(keys[k].removeprefix("hardware.") for k in shared),
        FASTEST,
        "least epoch s of runs",
        "others take",
        "why",
        "accuracy",
        "trains exactly",
        "options that differ",
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
            "\n".join(filter(None, (_differing(answer, time) for time, _ in answer.rivals))) or "nothing",
        )
        for answer in answers
    ]
    notes = (
        in_all(groups),
        *spread_notes(groups),
        *_mixed(groups),
        *lost_notes(groups, ()),
        _CAPTION,
        _left_out(groups),
    )
    caption = " ".join(filter(None, notes))
    return ReportTable(header, tuple(rows), caption, _heading(answers, groups, keys, place))


def _mixed(groups: Sequence[RunGroup]) -> list[str]:
    differing = mixtures(groups)
    return [f"Some rows combine runs that differ in {', '.join(differing)}."] if differing else []


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
    "ranks in an epoch. Accuracy: the test metric of the fastest at its best validation epoch, and a rival's "
    "difference with its verdict. Trains exactly: with the gradients that one device would have; sampled batches may "
    "differ. Options that differ: those that change what is computed, so that neither seconds nor accuracy compare the "
    "systems alone."
)


def in_all(groups: Sequence[RunGroup]) -> str:
    """What all runs share and a reader asks for first: the model, batches, epochs and the machine."""
    runs = [run for group in groups for run in group.runs]
    values = {key: {run.value(key) for run in runs} for key in _ASKED_FIRST}
    shared = [
        f"{key} {value}" for key, (value, *others) in values.items() if not others and value not in ("null", "None")
    ]
    return f"In all runs: {', '.join(shared)}." if shared else ""


def _heading(answers: Sequence[SettingAnswer], groups: Sequence[RunGroup], keys: Sequence[str], contender: int) -> str:
    """Which system is fastest over all settings, which are not exact, and which options make the comparison unfair."""
    count = len({labels_at(group, setting_places(groups, keys, contender)) for group in groups})
    first = (
        f"{HEADING}{_fastest(answers[0])}." if count == 1 else _over_settings(answers, keys, groups, contender, count)
    )
    return " ".join(filter(None, (first, _all_exact(groups, contender), _unlike(answers))))


def _over_settings(
    answers: Sequence[SettingAnswer], keys: Sequence[str], groups: Sequence[RunGroup], contender: int, count: int
) -> str:
    """How often each system is fastest among `count` settings, and where if that is rare."""
    shared = [keys[place] for place in setting_places(groups, keys, contender)]
    places: dict[str, list[str]] = {}
    for answer in answers:
        labels = zip(shared, answer.labels, strict=True)
        places.setdefault(in_short(answer), []).append(" ".join(said(key, label) for key, label in labels))
    names = sorted(places, key=lambda name: (name in (UNDECIDED, EQUAL), -len(places[name])))
    told = ", ".join(f"{name} in {len(places[name])}" for name in names)
    usual = max(places, key=lambda name: len(places[name])) if len(answers) == count else ""
    rare = [name for name in names if name != usual and len(places[name]) <= _MOST_RARE]
    named = "; ".join(f"{name}: {', '.join(places[name])}" for name in rare)
    others = f", {count - len(answers)} without a rival" if len(answers) < count else ""
    return f"{HEADING}{told} of {count} settings{others}{f' ({named})' if named else ''}."


def _all_exact(groups: Sequence[RunGroup], contender: int) -> str:
    """All rows, also those that nobody is compared with."""
    inexact = sorted({group.labels[contender] for group in groups if group.runs and _approximation(group.runs)})
    return f"Not exact, or not known: {some_names(inexact)}." if inexact else "All train exactly."


def _unlike(answers: Sequence[SettingAnswer]) -> str:
    """The keys in which some pair differs, so that neither seconds nor accuracy compare the systems alone."""
    keys = {key for answer in answers for time, _ in answer.rivals for key in _unlike_keys(time)}
    names = sorted(key.removesuffix("._target_") for key in keys)
    return f"Systems also differ in options that change what is computed: {some_names(names)}." if names else ""


def in_short(answer: SettingAnswer) -> str:
    """The fastest system, with how sure that is; or that it is undecided, or that several are equal."""
    if _num_pairs(answer) < LEAST_PAIRS:
        return f"{answer.name}, not proven"
    return _fastest(answer).partition(":")[0] if _as_fast(answer) else answer.name


def _as_fast(answer: SettingAnswer) -> list[str]:
    """The rivals that may be as fast."""
    return [time.rival.labels[answer.place] for time, _ in answer.rivals if not _is_slower(time)]


def _is_slower(time: PairedResult) -> bool:
    return time.verdict is Verdict.DIFFERS and time.estimate > 1


def _fastest(answer: SettingAnswer) -> str:
    """The fastest system, or that it is undecided among several, or that the runs are too few to decide anything."""
    pairs = _num_pairs(answer)
    if pairs < LEAST_PAIRS:
        return f"{answer.name}, not proven: {pairs} pair{'s' if pairs != 1 else ''} of runs"
    near = _as_fast(answer)
    if not near:
        return answer.name
    equal = all(time.verdict is Verdict.EQUAL or _is_slower(time) for time, _ in answer.rivals)
    return f"{EQUAL if equal else UNDECIDED}: {' or '.join((answer.name, *near))}"


def _num_pairs(answer: SettingAnswer) -> int:
    return max(len(time.difference.differences) for time, _ in answer.rivals)


def _ratio_of_means(time: PairedResult) -> float:
    """NaN if the fastest took no time."""
    least = time.column.cell(time.against).mean
    return time.column.cell(time.rival).mean / least if least > 0 else math.nan


def _times(answer: SettingAnswer, time: PairedResult) -> str:
    """How many times as long a rival takes, the interval of that, and whether it is slower."""
    name, count = time.rival.labels[answer.place], len(time.difference.differences)
    if not count:
        return f"{name} {_ratio_of_means(time):.2f}x, no pair"
    if count < LEAST_PAIRS:
        return f"{name} {time.estimate:.2f}x"
    low, high = time.interval
    verdict = ("slower" if _is_slower(time) else "faster") if time.verdict is Verdict.DIFFERS else time.text
    return f"{name} {time.estimate:.2f}x (95 %: {low:.2f} to {high:.2f}; {count} pairs), {verdict}"


def next_takes(answer: SettingAnswer) -> str:
    """How many times as long the second one takes, and the interval of that."""
    time, _ = answer.rivals[0]
    low, high = time.interval
    interval = f" ({low:.2f} to {high:.2f})" if len(time.difference.differences) >= LEAST_PAIRS else ""
    estimate = time.estimate if time.difference.differences else _ratio_of_means(time)
    return f"{time.rival.labels[answer.place]} {estimate:.2f}x{interval}"


def _why(answer: SettingAnswer, time: PairedResult) -> str:
    """The phases that explain most of a rival's longer epoch with their share of it, and the bytes of both."""
    rival, fastest = time.rival, time.against
    whole = _mean(rival, f"{EPOCH}_mean") - _mean(fastest, f"{EPOCH}_mean")
    parts = {name: _mean(rival, f"time/{name}_s_mean") - _mean(fastest, f"time/{name}_s_mean") for name in _NAMED}
    longest = sorted((name for name in parts if parts[name] > 0), key=lambda name: -parts[name])
    reasons, covered = [], 0.0
    for name in longest[:_MOST_PHASES]:
        if whole > 0 and covered < _ENOUGH:
            covered += parts[name] / whole
            reasons.append(f"{name} {1e3 * parts[name]:+.3g} ms")
    if reasons:
        reasons[-1] += f" ({100 * covered:.0f} % of the difference)"
    sent = [_bytes(group) for group in (rival, fastest)]
    if sent[0] != sent[1] and not any(map(math.isnan, sent)):
        reasons.append(f"sends {sent[0]:.3g} MB ({answer.name}: {sent[1]:.3g} MB)")
    return f"{rival.labels[answer.place]}: {', '.join(reasons)}" if reasons else ""


_NAMED = (*PHASES, "unaccounted")


def _mean(group: RunGroup, metric: str) -> float:
    """Mean over the runs of a row; 0 if none recorded it: such a phase is a part of another one."""
    values = [value for run in group.runs if not math.isnan(value := value_of(run, metric))]
    return sum(values) / len(values) if values else 0.0


def _bytes(group: RunGroup) -> float:
    """Bytes that all ranks send in an epoch, in units of 10^6, mean over the runs; NaN if nobody counted them."""
    recorded = {name for run in group.runs if run.epochs for name in run.epochs[-1]}
    names = sorted(name for name in recorded if name.startswith("comm/bytes_"))
    if not names and any("external" in run.facts for run in group.runs):
        return math.nan
    return sum(_mean(group, name) for name in names) / 1e6


def _accuracy(answer: SettingAnswer) -> str:
    test = answer.rivals[0][1].column
    cell = test.cell(answer.fastest)
    if not cell.values or len({run.best("test")[0] for group in _contenders(answer) for run in group.runs}) > 1:
        return ABSENT  # several metrics are not compared
    others = [_share(answer, share) for _, share in answer.rivals if share.difference.differences]
    return "\n".join(filter(None, (f"{answer.name} {test.header} {cell.text}", *others, _still_improving(answer))))


def _still_improving(answer: SettingAnswer) -> str:
    """The systems whose validation metric was best in the last epoch of all runs, so that accuracy is not final."""
    names = [group.labels[answer.place] for group in _contenders(answer) if all(map(_ended_at_best, group.runs))]
    return f"best in the last epoch, longer training may raise it: {', '.join(names)}" if names else ""


def _ended_at_best(run: RecordedRun) -> bool:
    epochs = run.summary.get("num_epochs", 0)
    return epochs > 1 and run.summary.get("best_epoch") == epochs - 1


def _share(answer: SettingAnswer, share: PairedResult) -> str:
    """A rival's test metric next to that of the fastest."""
    if share.difference.is_ratio:
        estimate = f"{share.estimate:.3f}x"
    else:
        estimate = f"{share.estimate:+.2f}" + " points" * share.column.header.endswith("%")
    low, high = share.interval
    interval = "" if math.isnan(low) else f" (95 %: {low:.2f} to {high:.2f})"
    return f"{share.rival.labels[answer.place]} {estimate}{interval}, {share.text}"


def _exact(answer: SettingAnswer) -> str:
    return "\n".join(f"{name}: {what}" for name, what in _inexact(answer).items()) or "all"


def _contenders(answer: SettingAnswer) -> list[RunGroup]:
    return [answer.fastest, *(time.rival for time, _ in answer.rivals)]


def _inexact(answer: SettingAnswer) -> dict[str, str]:
    """What each system approximates that is not exact."""
    return {group.labels[answer.place]: what for group in _contenders(answer) if (what := _approximation(group.runs))}


def _approximation(runs: Sequence[RecordedRun]) -> str:
    """What the runs of a row approximate; empty if all are exact."""
    if any("external" in run.facts for run in runs):
        return "a system of its own, not checked by gnnexp"
    if any("exact" not in run.facts for run in runs):
        return "not recorded"
    inexact = [run for run in runs if not run.facts["exact"]]
    return f"approximates {inexact[0].facts.get('approximates') or 'something that is not recorded'}" if inexact else ""


def _differing(answer: SettingAnswer, time: PairedResult) -> str:
    """Keys that differ between a rival's run and its partner, and in how many pairs the version of gnnexp differs."""
    pairs = time.pairs.pairs
    unlike = sum(ours.provenance.get("code_version") != theirs.provenance.get("code_version") for ours, theirs in pairs)
    name = time.rival.labels[answer.place]
    version = f"{name}: another version of gnnexp in {unlike} of {len(pairs)} pairs" if unlike else ""
    return "\n".join(filter(None, (_confounders(answer, time), version)))


def _confounders(answer: SettingAnswer, time: PairedResult) -> str:
    """Keys that change what is computed and that differ between a rival's run and its partner."""
    shown = [
        f"{key.removesuffix('._target_')} {_value(theirs, key)} ({answer.name}: {_value(ours, key)})"
        for key, (ours, theirs) in _unlike_keys(time).items()
    ]
    more = len(shown) - _MOST_KEYS
    names = shown if more <= 0 else [*shown[:_MOST_KEYS], f"{more} more"]
    return f"{time.rival.labels[answer.place]}: {', '.join(names)}" if names else ""


def _pairs_of(time: PairedResult) -> Sequence[tuple[RecordedRun, RecordedRun]]:
    return time.pairs.pairs or ((time.against.runs[0], time.rival.runs[0]),)


def _unlike_keys(time: PairedResult) -> dict[str, tuple[RecordedRun, RecordedRun]]:
    """Keys that change what is computed and that differ in some pair, each with the first pair that shows it."""
    shown: dict[str, tuple[RecordedRun, RecordedRun]] = {}
    for pair in _pairs_of(time):
        configs = [flat_values({name: run.config.get(name) for name in _CHANGES_RESULT}) for run in pair]
        for key in differing_keys(configs):
            if not key.startswith(_CHANGES_NONE):
                shown.setdefault(key, pair)
    return {key: shown[key] for key in _outermost(sorted(shown))}


def _outermost(keys: Sequence[str]) -> list[str]:
    """Without the options of components whose class differs already."""
    classes = {key.removesuffix("_target_") for key in keys if key.endswith("._target_")}
    return [key for key in keys if key.endswith("._target_") or not any(key.startswith(name) for name in classes)]


def _value(run: RecordedRun, key: str) -> str:
    """A config value; of a component the name of its choice."""
    return run.value(key.removesuffix("._target_"))
