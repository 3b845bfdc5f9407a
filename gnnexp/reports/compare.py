"""Two runs side by side: which settings differ, and which phases explain the difference of their epochs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gnnexp.errors import DataError, Problem
from gnnexp.measure.phases import PHASES
from gnnexp.record.runs import MACHINE, RecordedRun
from gnnexp.reports.labels import flat_values
from gnnexp.reports.metrics import typical_epoch, value_of
from gnnexp.reports.tables.table import ReportTable

_EPOCH = "time/epoch_s_mean"
_PHASES = tuple(f"time/{name}_s_mean" for name in (*PHASES, "unaccounted"))
# Other times lie inside of phases or are hidden behind them. They explain a phase, but are no share of the epoch.
_WITHIN = tuple(f"time/{name}_s" for name in ("comm", "comm_exposed", "h2d", "d2h", "host_add"))
# Further parts of the table: name, rooms of the record, and a word that the names of their metrics contain.
_PARTS = (
    ("bytes", ("comm/", "tier/"), "bytes"),
    ("rounds", ("comm/",), "rounds"),
    ("rows", ("tier/",), "rows"),
    ("work", ("work/",), ""),
    ("imbalance", ("imbalance/",), ""),
    ("memory", ("memory/",), ""),
)
_ALIKE = 0.02  # of the epoch: a smaller difference counts as equally long
_MOST_NAMED = 3
_ENOUGH = 0.8  # of the difference: once the named phases cover it, no further phase is named
_AGAINST = 0.25  # of the difference: a phase that changes this much in the other direction is named
_ABSENT = "–"


class Line(NamedTuple):
    """One metric of both runs, in the record's units; NaN if it was not recorded.

    Attributes:
        metric: the metric's name.
        first, second: its values in the two runs.
    """

    metric: str
    first: float
    second: float

    @property
    def difference(self) -> float:
        """The second value minus the first; a metric that one run did not record counts as 0 there.

        For a phase that one run did not record it is NaN: such a phase is a part of another one.
        """
        if self.metric in _PHASES and (math.isnan(self.first) or math.isnan(self.second)):
            return math.nan
        return (0.0 if math.isnan(self.second) else self.second) - (0.0 if math.isnan(self.first) else self.first)


def comparison_of(first: RecordedRun, second: RecordedRun) -> ReportTable:
    """Settings that differ, accuracy, and every metric, largest differences first; the verdict is the heading.

    Raises:
        DataError: one of the runs did not finish.
    """
    DataError.raise_all(
        [
            Problem(
                str(run.path),
                run.status,
                f"must have finished: {run.reason or run.status}",
                "gnnexp resume continues it; gnnexp report lists the runs",
            )
            for run in (first, second)
            if run.status != "finished"
        ]
    )
    phases = _ordered(_lines(first, second, _PHASES))
    epoch = _lines(first, second, (_EPOCH,))
    whole = epoch[0].difference if epoch else math.nan
    rows = [*_settings(first, second), *_accuracy(first, second)]
    rows += [_row("epoch", line, whole) for line in epoch]
    rows += [_row("phases", line, whole) for line in phases]
    rows += [_row("within phases", line) for line in _ordered(_lines(first, second, _WITHIN))]
    recorded = sorted({name for run in (first, second) for metrics in run.epochs for name in metrics})
    for part, rooms, word in _PARTS:
        names = [name for name in recorded if name.startswith(rooms) and word in name]
        rows += [_row(part, line) for line in _ordered(_lines(first, second, names))]
    header = (
        "part",
        "what",
        f"A {first.value('system')}",
        f"B {second.value('system')}",
        "B - A",
        "B / A",
        "% of the difference",
    )
    return ReportTable(header, tuple(rows), _caption(first, second), verdict(epoch, phases))


def verdict(epoch: Sequence[Line], phases: Sequence[Line]) -> str:
    """One sentence: which epoch is shorter, and which phases make it so."""
    if not epoch or math.isnan(epoch[0].first) or math.isnan(epoch[0].second) or not epoch[0].first:
        return "One of the runs has no epoch time."
    _, first, second = epoch[0]
    whole = second - first
    if abs(whole) <= _ALIKE * first:
        return f"Both take equally long: {first:.4g} s an epoch and {second:.4g} s."
    word = "longer" if whole > 0 else "shorter"
    said: list[str] = []
    covered = 0.0
    phases = [line for line in phases if not math.isnan(line.difference)]
    for line in sorted(phases, key=lambda line: line.difference / whole, reverse=True):
        share = line.difference / whole
        if share <= 0 or covered >= _ENOUGH or len(said) == _MOST_NAMED:
            break
        said.append(f"{_phase(line.metric)} {line.difference:+.4g} s ({100 * share:.0f} % of the difference)")
        covered += share
    against = min(phases, key=lambda line: line.difference / whole, default=None)
    because = f", mainly by {', '.join(said)}" if said else ""
    if against is not None and against.difference / whole <= -_AGAINST:
        because += f", against {_phase(against.metric)} {against.difference:+.4g} s"
    return (
        f"B's epoch is {abs(whole):.4g} s {word} than A's ({second:.4g} s, {first:.4g} s: x {second / first:.3g})"
        f"{because}."
    )


def _lines(first: RecordedRun, second: RecordedRun, names: Iterable[str]) -> list[Line]:
    """Metrics that one of the runs recorded and that are not 0 in both."""
    found = [Line(name, value_of(first, name), value_of(second, name)) for name in names]
    return [line for line in found if any(value and not math.isnan(value) for value in line[1:])]


def _ordered(lines: Sequence[Line]) -> list[Line]:
    """Lines sorted by their difference, the largest first."""
    return sorted(lines, key=lambda line: (math.isnan(line.difference), -abs(line.difference), line.metric))


def _settings(first: RecordedRun, second: RecordedRun) -> list[tuple[str, ...]]:
    """Config keys that differ, the machines, and the version of the code."""
    configs = [
        {
            "system": run.value("system"),
            **flat_values(run.config),
            MACHINE: run.machine,
            "code version": str(run.provenance.get("code_version", _ABSENT)),
        }
        for run in (first, second)
    ]
    keys = list(dict.fromkeys(key for config in configs for key in config))
    return [
        ("setting", key, *(config.get(key, _ABSENT) for config in configs), "", "", "")
        for key in keys
        if configs[0].get(key) != configs[1].get(key)
    ]


def _accuracy(first: RecordedRun, second: RecordedRun) -> list[tuple[str, ...]]:
    """Metrics at the best validation epoch that either run has."""
    names = [
        name
        for name in dict.fromkeys([*first.summary, *second.summary])
        if name.partition("/")[2] in ("val", "test") and not name.startswith("loss/")
    ]
    return [_row("metric", Line(name, value_of(first, name), value_of(second, name))) for name in names]


def _row(part: str, line: Line, whole: float = math.nan) -> tuple[str, ...]:
    share = 100 * line.difference / whole if whole else math.nan
    both = not math.isnan(line.first) and not math.isnan(line.second)
    return (
        part,
        line.metric.removesuffix("_mean"),
        _cell(line.first),
        _cell(line.second),
        _ABSENT if math.isnan(line.difference) else f"{line.difference:+.4g}",
        f"{line.second / line.first:.3f}" if both and line.first else _ABSENT,
        "" if math.isnan(share) else f"{share:.1f}",
    )


def _cell(value: float) -> str:
    if math.isnan(value):
        return _ABSENT
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.4g}"


def _phase(metric: str) -> str:
    return metric.removeprefix("time/").removesuffix("_mean").removesuffix("_s")


def _caption(first: RecordedRun, second: RecordedRun) -> str:
    machines = (
        ""
        if first.machine == second.machine
        else (f"The machines differ ({first.machine}; {second.machine}): seconds are not comparable. ")
    )
    return (
        f"A: {first.path}. B: {second.path}. {machines}{typical_epoch([first, second]).capitalize()}. Epoch and "
        "phases are means over the ranks, so that phases add up to the epoch (medians add up only nearly). Other "
        "metrics are as in docs/record.md, in seconds, bytes and counts. –: not recorded; such a phase is a part "
        "of another one. Traffic is 0 if there was none. These are single runs: a sweep with `seed=0,1,2` shows "
        "how far seconds and accuracy vary by themselves."
    )
