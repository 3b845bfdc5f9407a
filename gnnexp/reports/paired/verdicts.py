"""The verdicts of a report with `report.against`: every row and column, compared with the row of one system."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gnnexp.components.signature import unknown
from gnnexp.errors import ConfigError, Problem
from gnnexp.measure.merit import is_share
from gnnexp.reports.comparison import TEST, MeasuredColumn, name_of_run, some_names
from gnnexp.reports.metrics import is_time
from gnnexp.reports.paired.pairs import RunPairs, match_runs
from gnnexp.reports.paired.statistics import (
    ALPHA,
    LEAST_PAIRS,
    MOST_SEEDS,
    MOST_UNCORRECTED,
    PairedDifference,
    Verdict,
    holm_levels,
    level_of_look,
)
from gnnexp.reports.tables.cells import IntervalCell, NumberCell, TableCell
from gnnexp.reports.tables.groups import SYSTEM, RunGroup, contender_place, labels_at, setting_places
from gnnexp.reports.tables.table import ReportTable


@dataclass(frozen=True)
class Margins:
    """Up to where two systems count as equal (`report.equal`).

    Attributes:
        percent: of times, bytes and counts.
        points: of a metric that is a share, in percent; a hundredth of it for R².
    """

    percent: float = 1.0
    points: float = 0.5


@dataclass(frozen=True)
class PairedResult:
    """One rival in one column.

    Attributes:
        rival: the row.
        against: the row that it is compared with.
        column: the column.
        pairs: their runs.
        difference: what the pairs with both values show.
        margins: up to where they count as equal.
        level: the level of the verdict.
        one_sided: whether only one of the two has any (bytes, say), so that there is no ratio.
    """

    rival: RunGroup
    against: RunGroup
    column: MeasuredColumn
    pairs: RunPairs
    difference: PairedDifference
    margins: Margins
    level: float = ALPHA
    one_sided: bool = False

    @property
    def timed(self) -> bool:
        """Whether the column has seconds, which need interleaved runs."""
        return is_time(self.column.metric)

    @property
    def verdict(self) -> Verdict | None:
        """The verdict; None for seconds of runs that were not interleaved."""
        if self.timed and not self.pairs.interleaved and len(self.difference.differences) > 1:
            return None
        return Verdict.DIFFERS if self.one_sided else self.difference.verdict(self.level)

    @property
    def estimate(self) -> float:
        """The ratio rival / against (geometric mean), or the difference rival - against."""
        return math.exp(self.difference.mean) if self.difference.is_ratio else self.difference.mean

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the estimate, not corrected for several rivals."""
        low, high = self.difference.interval()
        return (math.exp(low), math.exp(high)) if self.difference.is_ratio else (low, high)

    @property
    def text(self) -> str:
        """The verdict in words."""
        count = len(self.difference.differences)
        if self.one_sided:
            return "differs: only one of the two has any"
        if not count:
            return "no pair"
        if self.verdict is None:
            return "no verdict: runs were not interleaved"
        if self.verdict is Verdict.EQUAL:
            return (
                f"identical in {count} pairs" if not any(self.difference.differences) else f"equal within {self.within}"
            )
        if self.verdict is Verdict.DIFFERS:
            return "differs"
        return f"undecided: {self._more(count)}"

    @property
    def within(self) -> str:
        """The margin in words."""
        if self.difference.is_ratio:
            return f"{self.margins.percent:g} %"
        return f"{self.difference.margin:g}" + " points" * self.column.header.endswith("%")

    def _more(self, count: int) -> str:
        if count < 2:
            return f"1 pair; {LEAST_PAIRS} may decide"
        more = self.difference.more_pairs(self.level)
        if more is None:
            return f"more than {MOST_SEEDS:,} seeds would be needed"
        return f"about {more} more seed{'s' if more != 1 else ''} would decide"


def paired_results(
    groups: Sequence[RunGroup],
    keys: Sequence[str],
    columns: Sequence[MeasuredColumn],
    against: str,
    margins: Margins,
    level: float = ALPHA,
) -> list[PairedResult]:
    """Each row compared with the row of the system `against` that has the same other labels, in every column.

    Args:
        groups: the rows.
        keys: config keys that name a row; `system` is one of them, or there is one only.
        columns: the columns.
        against: a system, or a value of the only key.
        margins: up to where two systems count as equal.
        level: probability of a wrong "differs" over all rivals of a row and column.

    Raises:
        ConfigError: rows are not named by their system, or no row has this one.
    """
    place = _place_of_rivals(groups, keys, against)
    results: list[PairedResult] = []
    others = setting_places(groups, keys, place)
    for base in (group for group in groups if group.labels[place] == against):
        rivals = [
            group
            for group in groups
            if group.labels[place] != against and labels_at(group, others) == labels_at(base, others)
        ]
        for column in columns:
            results += filter(_says_anything, paired_with(base, rivals, column, margins, level))
    return results


def paired_with(
    base: RunGroup, rivals: Sequence[RunGroup], column: MeasuredColumn, margins: Margins, level: float = ALPHA
) -> list[PairedResult]:
    """Each of the `rivals` compared with `base` in one column, at a level that is corrected for their number."""
    lines = [_result(rival, base, column, match_runs(base.runs, rival.runs), margins) for rival in rivals]
    levels = holm_levels([line.difference.p_value for line in lines], level)
    return [replace(line, level=own) for line, own in zip(lines, levels, strict=True)]


def _place_of_rivals(groups: Sequence[RunGroup], keys: Sequence[str], against: str) -> int:
    place = contender_place(keys)
    if place is None:
        fix = f"report.rows: [{', '.join((*keys, SYSTEM))}]"
        why = f"rows are named by {', '.join(keys)}, and not by their system"
        raise ConfigError(Problem("report.against", against, why, fix))
    names = list(dict.fromkeys(group.labels[place] for group in groups))
    if against not in names:
        raise ConfigError(unknown("report.against", against, against, names))
    return place


def _result(rival: RunGroup, base: RunGroup, column: MeasuredColumn, pairs: RunPairs, margins: Margins) -> PairedResult:
    values = [(column.value_of(first), column.value_of(second)) for first, second in pairs.pairs]
    known = [pair for pair in values if not any(map(math.isnan, pair))]
    margin = _margin_of_difference(column, pairs, margins)
    is_ratio = margin is None and all(value >= 0 for pair in known for value in pair)
    one_sided = is_ratio and any((first > 0) != (second > 0) for first, second in known)
    differences = () if one_sided else tuple(_difference(*pair, is_ratio=is_ratio) for pair in known)
    width = math.log1p(margins.percent / 100) if is_ratio else margin or 0.0
    return PairedResult(
        rival, base, column, pairs, PairedDifference(differences, is_ratio, width), margins, one_sided=one_sided
    )


def _margin_of_difference(column: MeasuredColumn, pairs: RunPairs, margins: Margins) -> float | None:
    """The margin in the unit of a column whose values are shares (or R²); None for all others, which have ratios."""
    metric = column.metric
    if metric == TEST and pairs.pairs:  # rows have several metrics
        metric = pairs.pairs[0][0].best("test")[0]
    room, _, split = metric.partition("/")
    if split not in ("val", "test") or room == "loss" or not (is_share(metric) or room == "r2"):
        return None
    in_percent = column.header.endswith("%") or (column.metric == TEST and is_share(metric))
    return margins.points if in_percent else margins.points / 100


def _difference(first: float, second: float, *, is_ratio: bool) -> float:
    if not is_ratio:
        return second - first
    return math.log(second / first) if first > 0 else 0.0  # both are 0


def _says_anything(line: PairedResult) -> bool:
    """Whether one of the two has anything in this column that is not 0."""
    values = [line.column.value_of(run) for pair in line.pairs.pairs for run in pair]
    return not line.pairs.pairs or any(value and not math.isnan(value) for value in values)


def paired_table(results: Sequence[PairedResult], keys: Sequence[str], against: str, looks: int = 0) -> ReportTable:
    """A row per rival and quantity: both means, the paired ratio or difference, its interval, and the verdict."""
    header = (*keys, "quantity", against, "here", "kind", "estimate", "95 % interval", "pairs", "verdict")
    rows = [_row(result) for result in results]
    return ReportTable(header, tuple(rows), _caption(results, against, looks))


def _row(result: PairedResult) -> tuple[TableCell, ...]:
    difference, form = result.difference, result.column.form
    shown = ".3f" if difference.is_ratio else "+.2f" if result.within.endswith("points") else "+.4g"
    means = (group_mean(group, result) for group in (result.against, result.rival))
    return (
        *result.rival.labels,
        result.column.header,
        *(NumberCell(mean, form) for mean in means),
        "ratio" if difference.is_ratio else "difference",
        NumberCell(result.estimate if difference.differences else math.nan, shown),
        IntervalCell(*result.interval, shown),
        NumberCell(len(difference.differences), "d"),
        result.text,
    )


def group_mean(group: RunGroup, result: PairedResult) -> float:
    """The mean over all runs of a row, paired or not, as the comparison table has it."""
    return result.column.cell(group).mean


def _caption(results: Sequence[PairedResult], against: str, looks: int) -> str:
    if not results:
        return "No row has the same other labels as a row of the system that is compared with."
    margins = results[0].margins
    notes = [
        f"Compared with {against}, pair by pair: two runs with the same seed, graph, "
        "split, model, ranks and machine. Ratio: here / there, over pairs (geometric mean), for seconds, bytes and "
        "counts. Difference: here - there, for shares. Interval: 95 %, paired t, of ratios on logarithms. Equal: the "
        f"interval lies within {margins.percent:g} % or {margins.points:g} points (report.equal). Differs: it leaves "
        f"out a ratio of 1 or a difference of 0. Fewer than {LEAST_PAIRS} pairs decide nothing."
    ]
    whole = level_of_look(looks) if looks else ALPHA
    if looks:
        notes.append(
            f"Seeds were added until decided: verdicts of look {looks} have the level {whole:.2g}, intervals 95 %."
        )
    if any(result.level < whole for result in results):
        notes.append(
            f"More than {MOST_UNCORRECTED} rivals: verdicts are corrected for their number (Holm), intervals are not."
        )
    if any(result.verdict is None for result in results):
        notes.append(
            "Seconds have no verdict where the runs of one pair began before those of another had all begun: a change "
            "of the machine's speed would look like a difference. A sweep makes all runs of a seed before those of the "
            "next, so its runs are interleaved."
        )
    alone = {id(run): run for result in results for run in result.pairs.alone}
    if alone:
        names = some_names([name_of_run(run) for run in alone.values()])
        notes.append(f"Without a partner, not compared: {names}.")
    return " ".join(notes)
