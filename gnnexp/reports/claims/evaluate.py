"""Claims against runs: pairs of runs that differ in nothing else, and what comes out of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from gnnexp.planner.estimate import estimate
from gnnexp.planner.full_size import full_factor, full_steps
from gnnexp.planner.profiles import machine_named
from gnnexp.record.runs import Run
from gnnexp.reports.claims.claim import Check, Claim, Expects
from gnnexp.reports.claims.expression import evaluate, names_in
from gnnexp.reports.claims.verdict import Verdict, verdict
from gnnexp.reports.estimates.planned import tells_enough
from gnnexp.reports.published.graphs import share_of_targets, work_as_published
from gnnexp.reports.values.labels import said
from gnnexp.reports.values.setting import setting_of
from gnnexp.reports.values.spread import mean_and_interval

_Labels = tuple[str, ...]
_Value = Callable[[Run], float]


@dataclass(frozen=True)
class Found:
    """The statistic for one pair of sides.

    Attributes:
        place: what both sides share, where that differs between pairs, and the sides themselves.
        value: over seeds, their mean.
        half: half the width of its 95 % interval; NaN for one seed.
    """

    place: str
    value: float
    half: float


@dataclass(frozen=True)
class Outcome:
    """A claim, evaluated.

    Attributes:
        claim: which.
        measured: every pair on the machine that made the runs.
        estimated: every pair on the paper's machine; empty where the claim needs none, or nothing can be estimated.
    """

    claim: Claim
    measured: Sequence[Found]
    estimated: Sequence[Found]

    @property
    def verdict_measured(self) -> Verdict:
        """What the runs say by themselves."""
        return _verdict(self.claim, self.measured)

    @property
    def verdict_estimated(self) -> Verdict:
        """What the estimate on the paper's machine says."""
        return _verdict(self.claim, self.estimated)

    @property
    def verdict(self) -> str:
        """The last word: an estimate where the machine matters and the paper's is described, else the measurement."""
        if self.claim.check is None:
            return "not checked"
        if self.estimated and self.claim.depends_on_hardware:
            return f"only estimated: {self.verdict_estimated}"
        return self.verdict_measured


def outcome(claim: Claim, runs_of: Mapping[str, Sequence[Run]]) -> Outcome:
    """Of the runs of its sweeps."""
    if claim.check is None:
        return Outcome(claim, (), ())
    check = claim.check
    runs = [run for sweep in check.sweeps for run in runs_of.get(sweep, ()) if run.status == "finished"]
    runs = list({str(run.path): run for run in runs if _matches(run, check.where)}.values())
    measured = compare(runs, check, claim.expects, lambda run: evaluate(check.value, run))
    if check.hardware is None or not set(names_in(check.value)) <= {*_ESTIMATED, *_CROSSING, _COLLECTIVES}:
        return Outcome(claim, measured, ())
    hardware = check.hardware
    told = [run for run in runs if tells_enough(run) and machine_named(hardware).can_run(setting_of(run).ranks)]
    estimated = compare(told, check, claim.expects,
                        lambda run: evaluate(check.value, run, _seconds(run, hardware, claim.paper, check.edge_rows)))
    return Outcome(claim, measured, estimated)


def compare(runs: Iterable[Run], check: Check, expects: Expects, value: _Value) -> list[Found]:
    """The statistic of every pair of sides that share what is `alike`; `take` is applied to them by `taken`."""
    along = (check.along,) if check.along else ()
    keys = tuple(key for key in check.alike if key not in (*check.of, *check.over, *along))
    sides = {name: _by_side(runs, chosen, keys, along) for name, chosen in (("of", check.of), ("over", check.over))}
    found: list[_Row] = []
    for (place, step, of), left in sides["of"].items():
        if not check.over:
            values = [value(run) for run in left.values()]
            found.append((place, step, of, (), _spread(values)))
        for (other, other_step, over), right in sides["over"].items() if check.over else ():
            if (place, step) == (other, other_step):
                found.append((place, step, of, over, _over_seeds(left, right, expects, value)))
    known = [one for one in found if not math.isnan(one[-1][0])]
    shown = _Shown(keys, known)
    if check.along:
        ratio = replace(expects, statistic="ratio")
        return _growths(known, shown, expects if not check.over else ratio, each=check.take == "steps")
    return [Found(shown.name(place, step, of, over), *spread) for place, step, of, over, spread in known]


def taken(found: Sequence[Found], take: str) -> list[tuple[float, float]]:
    """Values with their intervals, of which the verdict speaks."""
    if not found:
        return []
    if take in ("greatest", "least"):
        best = (max if take == "greatest" else min)(found, key=lambda one: one.value)
        return [(best.value, best.half)]
    if take == "mean":
        return [(sum(one.value for one in found) / len(found), math.nan)]
    return [(one.value, one.half) for one in found]


_ESTIMATED = {"time/epoch_s": "epoch_s", "time/sample_s": "sample_s", "time/load_s": "load_s",
              "time/fb_s": "forward_backward_s", "time/sync_s": "sync_s"}
# What crosses between a host and its device, by the metric of its bytes.
_CROSSING = {"time/h2d_s": "tier/h2d_bytes", "time/d2h_s": "tier/d2h_bytes"}
_COLLECTIVES = "time/comm_s"
_Row = tuple[_Labels, _Labels, _Labels, _Labels, tuple[float, float]]


def _seconds(run: Run, hardware: str, paper: str, edge_rows: Sequence[str]) -> dict[str, float]:
    """Estimated ones on `hardware`, of the published size; NaN where the run would not fit."""
    share = share_of_targets(paper, run)
    work, machine = work_as_published(paper, run, edge_rows), machine_named(hardware)
    told, times = estimate(work, machine), full_factor(run) * full_steps(run, share)
    crossing = {name: evaluate(f"[{counted}]", run) * times / work.ranks / machine.host
                for name, counted in _CROSSING.items()}
    sent = sum(work.sent_bytes.values()) / machine.link + sum(work.rounds.values()) * machine.latency
    found = {name: getattr(told, field) for name, field in _ESTIMATED.items()} | crossing | {_COLLECTIVES: sent}
    return found if told.fits else dict.fromkeys(found, math.nan)


def _by_side(runs: Iterable[Run], chosen: Mapping[str, Sequence[str]], keys: Sequence[str], along: Sequence[str],
             ) -> dict[tuple[_Labels, _Labels, _Labels], dict[str, Run]]:
    """Runs of a side by place, step and the side's own values; of each seed the last."""
    found: dict[tuple[_Labels, _Labels, _Labels], dict[str, Run]] = {}
    for run in runs:
        if _matches(run, chosen):
            where = _labels(run, keys), _labels(run, along), _labels(run, tuple(chosen))
            found.setdefault(where, {})[run.value("seed")] = run
    return found


def _over_seeds(left: Mapping[str, Run], right: Mapping[str, Run], expects: Expects, value: _Value,
                ) -> tuple[float, float]:
    """Seed by seed where both sides have the same, else of the means."""
    seeds = [seed for seed in left if seed in right]
    if seeds:
        return _spread([_statistic(value(left[seed]), value(right[seed]), expects) for seed in seeds])
    means = [mean_and_interval([value(run) for run in side.values()])[0] for side in (left, right)]
    return _statistic(means[0], means[1], expects), math.nan


def _statistic(a: float, b: float, expects: Expects) -> float:
    if expects.statistic == "difference":
        return a - b
    if b == 0 or math.isnan(a) or math.isnan(b):
        return math.nan
    return a / b if expects.statistic in ("ratio", "value") else 100 * (1 - a / b)


def _spread(values: Sequence[float]) -> tuple[float, float]:
    return mean_and_interval(values)


@dataclass(frozen=True)
class _Shown:
    """What of a place is worth saying: what differs between the pairs."""

    keys: Sequence[str]
    rows: Sequence[_Row]

    def name(self, place: _Labels, step: _Labels, of: _Labels, over: _Labels) -> str:
        """`orkut_like sage: dgl over gsplit`."""
        differing = [said(key, label) for index, (key, label) in enumerate(zip(self.keys, place, strict=True))
                     if len({row[0][index] for row in self.rows}) > 1 and label != "null"]
        sides = " over ".join(" ".join(side) for side in (of, over) if side)
        return ": ".join(filter(None, (" ".join(dict.fromkeys([*differing, *step])), sides)))


def _growths(rows: Sequence[_Row], shown: _Shown, expects: Expects, *, each: bool) -> list[Found]:
    """The value at the last step compared with that at the first; or each with that before it, and of that the mean."""
    series: dict[tuple[_Labels, _Labels, _Labels], list[_Row]] = {}
    for row in rows:
        series.setdefault((row[0], row[2], row[3]), []).append(row)
    found = []
    for (place, of, over), members in series.items():
        members.sort(key=lambda row: float(row[1][0]))
        ends = list(pairwise(members)) if each else [(members[0], members[-1])] if len(members) > 1 else []
        values = [_statistic(after[-1][0], before[-1][0], expects) for before, after in ends]
        known = [value for value in values if not math.isnan(value)]
        if known:
            steps = (f"{members[0][1][0]} to {members[-1][1][0]}",)
            found.append(Found(shown.name(place, steps, of, over), sum(known) / len(known), math.nan))
    return found


def _verdict(claim: Claim, found: Sequence[Found]) -> Verdict:
    assert claim.check is not None
    return verdict(taken(found, claim.check.take), claim.expects, claim.check)


def _matches(run: Run, chosen: Mapping[str, Sequence[str]]) -> bool:
    return all(run.value(key) in values for key, values in chosen.items())


def _labels(run: Run, keys: Iterable[str]) -> _Labels:
    return tuple(run.value(key) for key in keys)
