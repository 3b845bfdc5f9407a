"""Pairs of runs that differ only in their sides, and the statistic of each pair."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from gnnexp.record.records import figure_of_merit, summarize
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.labels import said
from gnnexp.reports.metrics import mean_and_interval
from gnnexp_papers.claim import Check, Expects

Value = Callable[[RecordedRun], float]
_Labels = tuple[str, ...]
_Runs = Mapping[str, RecordedRun]


@dataclass(frozen=True)
class Found:
    """The statistic for one pair of sides.

    Attributes:
        place: what both sides share, if that differs between pairs, and the sides themselves.
        value: the statistic; over several seeds, its mean.
        half: half the width of its 95 % interval; NaN for one seed.
        of, over: the runs of each side; `over` is empty if the statistic uses one side only.
    """

    place: str
    value: float
    half: float
    of: Sequence[RecordedRun] = ()
    over: Sequence[RecordedRun] = ()

    @property
    def runs(self) -> tuple[RecordedRun, ...]:
        """The runs of both sides."""
        return (*self.of, *self.over)


@dataclass(frozen=True)
class _Row:
    place: _Labels
    step: _Labels
    sides: tuple[_Labels, _Labels]
    spread: tuple[float, float]
    of: tuple[RecordedRun, ...]
    over: tuple[RecordedRun, ...]

    def found(self, shown: str) -> Found:
        return Found(shown, *self.spread, self.of, self.over)


def compare(runs: Iterable[RecordedRun], check: Check, expects: Expects, value: Value) -> list[Found]:
    """The statistic of each pair of sides that share the values of `check.alike`."""
    along = (check.along,) if check.along else ()
    keys = tuple(key for key in check.alike if key not in (*check.of, *check.over, *along))
    left, right = (_by_side(runs, chosen, keys, along) for chosen in (check.of, check.over))
    rows: list[_Row] = []
    for (place, step, of), ours in left.items():
        if not check.over:
            spread = mean_and_interval([value(run) for run in ours.values()])
            rows.append(_Row(place, step, (of, ()), spread, tuple(ours.values()), ()))
        for (other, other_step, over), theirs in right.items() if check.over else ():
            if (place, step) == (other, other_step):
                spread = _over_seeds(ours, theirs, check, expects, value)
                rows.append(_Row(place, step, (of, over), spread, tuple(ours.values()), tuple(theirs.values())))
    known = [row for row in rows if not math.isnan(row.spread[0])]
    name = partial(_named, keys, known)
    if check.along:
        ratio = replace(expects, statistic="ratio")
        return _growths(known, name, expects if not check.over else ratio, each=check.take == "steps")
    return [row.found(name(row, row.step)) for row in known]


def matches(run: RecordedRun, chosen: Mapping[str, Sequence[str]]) -> bool:
    """Whether `run` has one of the `chosen` values for each config key."""
    return all(run.value(key) in values for key, values in chosen.items())


def _by_side(
    runs: Iterable[RecordedRun],
    chosen: Mapping[str, Sequence[str]],
    keys: Sequence[str],
    along: Sequence[str],
) -> dict[tuple[_Labels, _Labels, _Labels], dict[str, RecordedRun]]:
    """Runs of a side by place, step and the side's own values; the last run of each seed."""
    found: dict[tuple[_Labels, _Labels, _Labels], dict[str, RecordedRun]] = {}
    for run in runs:
        if matches(run, chosen):
            where = _labels(run, keys), _labels(run, along), _labels(run, tuple(chosen))
            found.setdefault(where, {})[run.value("seed")] = run
    return found


def _over_seeds(left: _Runs, right: _Runs, check: Check, expects: Expects, value: Value) -> tuple[float, float]:
    """Mean and half interval seed by seed if both sides share seeds, else the statistic of the two means."""
    pairs = [(left[seed], right[seed]) for seed in left if seed in right]
    if check.equal_epochs:
        pairs = [_equally_long(*pair) for pair in pairs]
    if pairs:
        return mean_and_interval([statistic(value(of), value(over), expects) for of, over in pairs])
    means = [mean_and_interval([value(run) for run in side.values()])[0] for side in (left, right)]
    return statistic(means[0], means[1], expects), math.nan


def _equally_long(left: RecordedRun, right: RecordedRun) -> tuple[RecordedRun, RecordedRun]:
    """Both runs, cut after as many epochs as the shorter one has."""
    count = min(len(left.epochs), len(right.epochs))
    return _first_epochs(left, count), _first_epochs(right, count)


def _first_epochs(run: RecordedRun, count: int) -> RecordedRun:
    """The record that `run` would have if it had ended after `count` epochs."""
    primary = figure_of_merit(run.summary, "val", run.value("task.metric"))[0].partition("/")[0]
    kept = [{"epoch": number, "metrics": metrics} for number, metrics in enumerate(run.epochs[:count])]
    return replace(run, epochs=run.epochs[:count], summary=summarize(kept, primary))


def statistic(a: float, b: float, expects: Expects) -> float:
    """The statistic of two values; NaN if one of them is not known."""
    if expects.statistic == "difference":
        return a - b
    if b == 0 or math.isnan(a) or math.isnan(b):
        return math.nan
    return a / b if expects.statistic in ("ratio", "value") else 100 * (1 - a / b)


def _named(keys: Sequence[str], rows: Sequence[_Row], row: _Row, step: _Labels) -> str:
    """One of the `rows` by the values that differ between them: `orkut_like sage: dgl over p3`."""
    differing = [
        said(key, label)
        for index, (key, label) in enumerate(zip(keys, row.place, strict=True))
        if len({other.place[index] for other in rows}) > 1 and label != "null"
    ]
    named = (" ".join(label for label in side if label != "null") for side in row.sides)
    sides = " over ".join(filter(None, named))
    return ": ".join(filter(None, (" ".join(dict.fromkeys([*differing, *step])), sides)))


def _growths(
    rows: Sequence[_Row],
    name: Callable[[_Row, _Labels], str],
    expects: Expects,
    *,
    each: bool,
) -> list[Found]:
    """The last value compared with the first; with `each`, every value with the one before, and the mean of these."""
    series: dict[tuple[_Labels, tuple[_Labels, _Labels]], list[_Row]] = {}
    for row in rows:
        series.setdefault((row.place, row.sides), []).append(row)
    found = []
    for members in series.values():
        members.sort(key=lambda row: float(row.step[0]))
        ends = list(pairwise(members)) if each else [(members[0], members[-1])] if len(members) > 1 else []
        values = [statistic(after.spread[0], before.spread[0], expects) for before, after in ends]
        known = [value for value in values if not math.isnan(value)]
        if known:
            steps = (f"{members[0].step[0]} to {members[-1].step[0]}",)
            of, over = [run for row in members for run in row.of], [run for row in members for run in row.over]
            found.append(Found(name(members[0], steps), sum(known) / len(known), math.nan, of, over))
    return found


def _labels(run: RecordedRun, keys: Iterable[str]) -> _Labels:
    return tuple(run.value(key) for key in keys)
