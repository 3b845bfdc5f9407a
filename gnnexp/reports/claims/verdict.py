"""Whether figures are what a paper claims: rules on values and their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from gnnexp.reports.claims.claim import Check, Expects

Verdict = Literal["holds", "exceeds", "in direction", "too weak", "does not hold", "shown", "not decided", "not run"]
# Value, half the width of its 95 % interval (NaN: one seed), and what is expected of it.
Judged = tuple[float, float, Expects]
# A claim is as good as its worst pair.
_WORST_FIRST: Sequence[Verdict] = ("does not hold", "too weak", "not decided", "in direction", "exceeds", "holds",
                                   "shown")
# A share of the published distance from "no effect": below it an effect is not the one that was claimed.
_ENOUGH = 0.25


def verdict(found: Sequence[Judged], check: Check) -> Verdict:
    """The worst of the verdicts on single values.

    `holds`: inside of the published range. `exceeds`: outside of it on the better side. `in direction`: outside, but at
    least a quarter as far from "no effect" (a ratio of 1, a reduction or difference of 0) as published, on the same
    side; `too weak`: less than that.
    `not decided`: the interval over seeds reaches what would count as equal and what would not, or both the claimed
    effect and none, or a lower bound is below the range. `shown`: the paper names no number, or the number follows from
    a definition.
    """
    known = [(value, 0.0 if math.isnan(half) else half, expects) for value, half, expects in found
             if not math.isnan(value)]
    if not known:
        return "not run"
    if check.by_construction:
        return "shown"
    verdicts = {_of_one(*one, check) for one in known}
    return next(word for word in _WORST_FIRST if word in verdicts)


def _of_one(value: float, half: float, expects: Expects, check: Check) -> Verdict:
    if expects.low is None and expects.high is None and expects.mean is None:
        return "shown"
    claimed, neutral = _claimed(expects), _neutral(expects)
    low, high = _widened(claimed, neutral, check)
    if check.within is not None and _straddles(value, half, low, high):
        return "not decided"
    if value + half >= low and value - half <= high:
        return "not decided" if _may_be_none(value, half, expects, check) else "holds"
    if check.lower_bound and value < low:
        return "not decided"
    if _is_better(value, expects, (low, high)):
        return "exceeds"
    return _of_distance(value, claimed, neutral)


def _straddles(value: float, half: float, low: float, high: float) -> bool:
    """Whether an interval lies on both sides of an end of what counts as equal: then more seeds are needed."""
    return value - half < low <= value + half or value - half <= high < value + half


def _of_distance(value: float, claimed: tuple[float, float], neutral: float | None) -> Verdict:
    """Outside of the published range, and not better: how far from no effect."""
    if neutral is None or _claims_none(claimed, neutral):
        return "does not hold"
    nearest = min(filter(math.isfinite, claimed), key=lambda end: abs(end - neutral))
    share = (value - neutral) / (nearest - neutral) if nearest != neutral else 0.0
    return "in direction" if share >= _ENOUGH else "too weak" if share > 0 else "does not hold"


def _claimed(expects: Expects) -> tuple[float, float]:
    """The published range; open ends are infinite, and of an "up to" the best value is claimed, not a bound."""
    low, high = expects.low, expects.high
    if low is None and high is None:
        low = high = expects.mean
    if low is None and expects.better == "higher":
        low = high
    return -math.inf if low is None else low, math.inf if high is None else high


def _widened(claimed: tuple[float, float], neutral: float | None, check: Check) -> tuple[float, float]:
    """What counts as inside: where an effect is claimed, the tolerance takes half of it at most."""
    low, high = claimed
    if check.within is not None:
        return low - check.within, high + check.within
    effect = None if neutral is None or _claims_none(claimed, neutral) else neutral
    return low - _allowed(low, effect, check), high + _allowed(high, effect, check)


def _allowed(end: float, effect: float | None, check: Check) -> float:
    if not math.isfinite(end):
        return 0.0
    allowed = check.tolerance * abs(end)
    return allowed if effect is None else min(allowed, abs(end - effect) / 2)


def _is_better(value: float, expects: Expects, inside: tuple[float, float]) -> bool:
    """Beyond the end that speaks for the paper; a bound has no such end: it is met or not."""
    beyond = value > inside[1] if expects.better == "higher" else value < inside[0]
    return beyond and all(map(math.isfinite, inside))


def _may_be_none(value: float, half: float, expects: Expects, check: Check) -> bool:
    """Whether the interval has no effect inside where the paper claims one."""
    neutral = _neutral(expects)
    if neutral is None:
        return False
    if expects.statistic == "difference":
        return check.effect and abs(value - neutral) < half
    return not _claims_none(_claimed(expects), neutral) and abs(value - neutral) < half


def _claims_none(claimed: tuple[float, float], neutral: float) -> bool:
    """Whether no effect is what is claimed, or lies inside of it; a bound at no effect claims what lies beyond."""
    return all(map(math.isfinite, claimed)) and claimed[0] <= neutral <= claimed[1]


def _neutral(expects: Expects) -> float | None:
    return {"ratio": 1.0, "reduction_pct": 0.0, "difference": 0.0}.get(expects.statistic)
