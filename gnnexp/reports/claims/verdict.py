"""Whether figures are what a paper claims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from gnnexp.reports.claims.claim import Check, Expects

Verdict = Literal["holds", "in direction", "does not hold", "not decided", "shown", "not run"]
# An interval this many times as wide as the difference that would still count as none decides nothing.
_TOO_WIDE = 2.0


def verdict(values: Sequence[tuple[float, float]], expects: Expects, check: Check) -> Verdict:
    """Of means with half the width of their 95 % interval (NaN: one seed); all of them must be inside.

    `in direction`: outside of the published range, but on the same side of "no effect" (a ratio of 1, a reduction or
    difference of 0). `not decided`: the spread over seeds is wider than what would count as equal, or reaches
    both the effect that the paper claims (a speed-up, a reduction) and none, and nothing speaks against the claim.
    `shown`: the paper names no number, and neither do we.
    """
    known = [(value, 0.0 if math.isnan(half) else half) for value, half in values if not math.isnan(value)]
    if not known:
        return "not run"
    if expects.low is None and expects.high is None and expects.mean is None:
        return "shown"
    if check.within is not None and any(half > _TOO_WIDE * check.within for _, half in known):
        return "not decided"
    unsure = [one for one in known if _may_be_none(*one, expects, check) and _inside(*one, expects, check)]
    decided = _decided([one for one in known if one not in unsure], expects, check)
    return "not decided" if unsure and decided != "does not hold" else decided


def _decided(known: Sequence[tuple[float, float]], expects: Expects, check: Check) -> Verdict:
    if all(_inside(value, half, expects, check) for value, half in known):
        return "holds"
    neutral, claimed = _neutral(expects), _claimed(expects)
    if neutral is None or claimed is None or claimed == neutral:
        return "does not hold"
    return "in direction" if all((value - neutral) * (claimed - neutral) > 0 for value, _ in known) else "does not hold"


def _inside(value: float, half: float, expects: Expects, check: Check) -> bool:
    """Whether the interval reaches what is expected, widened by the tolerance."""
    low, high, mean = expects.low, expects.high, expects.mean
    if low is None and high is None:
        assert mean is not None, "without a number there is no verdict"
        allowed = check.tolerance * abs(mean) if check.within is None else check.within
        return abs(value - mean) <= allowed + half
    if low is None and expects.better == "higher":  # up to
        assert high is not None
        return value + half >= high - check.tolerance * abs(high)
    above = low is None or value + half >= low - check.tolerance * abs(low)
    return above and (high is None or value - half <= high + check.tolerance * abs(high))


def _may_be_none(value: float, half: float, expects: Expects, check: Check) -> bool:
    """Whether the interval has no effect inside where the paper claims one."""
    neutral, low, high = _neutral(expects), expects.low, expects.high
    if neutral is None:
        return False
    if expects.statistic == "difference":
        return check.effect and abs(value - neutral) < half
    claims_none = _claimed(expects) == neutral and (low is None) == (high is None)
    around = low is not None and high is not None and low < neutral < high
    return not claims_none and not around and abs(value - neutral) < half


def _neutral(expects: Expects) -> float | None:
    return {"ratio": 1.0, "reduction_pct": 0.0, "difference": 0.0}.get(expects.statistic)


def _claimed(expects: Expects) -> float | None:
    """A number on the claimed side."""
    ends = [end for end in (expects.low, expects.high) if end is not None]
    return expects.mean if expects.mean is not None else sum(ends) / len(ends) if ends else None
