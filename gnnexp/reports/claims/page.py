"""The claims page: what each paper claims, what our runs say of it, and why where they do not agree."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from gnnexp.record.runs import Run
from gnnexp.reports.claims.claim import Claim, Expects
from gnnexp.reports.claims.evaluate import Found, Outcome, outcome, taken
from gnnexp.reports.table import Table

_COLUMNS = ("claim", "source", "kind", "published", "measured here", "estimated there", "verdict", "runs",
            "why, and notes")
_CAPTION = (
    "Measured here: what the sweeps' runs recorded on the machine that made them, as many pairs of runs as said, from "
    "the lowest to the highest, with the 95 % interval over seeds where one pair decides. Estimated there: the same "
    "statistic of the linear model's seconds on the paper's hardware (docs/estimates.md). Holds: inside of the "
    "published range widened by 10 % (exact counts: by nothing) or by the interval; of an “up to”, reaching the "
    "number is enough; in direction: outside, but on the same side of no effect; shown: the paper names no number; "
    "only estimated: the claim is of other hardware than this. Not checked: see why."
)


def evaluated(claims: Sequence[Claim], runs_of: Mapping[str, Sequence[Run]]) -> list[Outcome]:
    """Every claim, in order."""
    return [outcome(claim, runs_of) for claim in claims]


def make_table(outcomes: Sequence[Outcome]) -> Table:
    """A row per claim."""
    counts = Counter(one.verdict for one in outcomes)
    told = ", ".join(f"{count} {word}" for word, count in counts.most_common())
    return Table(_COLUMNS, tuple(_row(one) for one in outcomes), f"{len(outcomes)} claims: {told}. {_CAPTION}")


def sweeps_of(claims: Sequence[Claim]) -> tuple[str, ...]:
    """Whose runs are needed."""
    return tuple(dict.fromkeys(sweep for claim in claims if claim.check for sweep in claim.check.sweeps))


def _row(one: Outcome) -> tuple[str, ...]:
    claim = one.claim
    sweeps = ", ".join(claim.check.sweeps) if claim.check else "–"
    return (f"{claim.name}: “{claim.says}”", claim.source, claim.kind, published_cell(claim.expects),
            _cell(claim, one.measured), _cell(claim, one.estimated), one.verdict, sweeps,
            " ".join(filter(None, (claim.why, claim.note))))


def published_cell(expects: Expects) -> str:
    """`1.3 to 3.4`, `up to 4.4 (mean 2.5)`, `at least 1`, `4`; `–` where the paper prints no number."""
    low, high, mean = expects.low, expects.high, expects.mean
    text = _range(low, high, up_to=expects.better == "higher")
    if mean is not None and mean not in (low, high):
        text = f"{text} (mean {mean:g})" if text else f"{mean:g}"
    return f"{text or '–'}{' %' if text and expects.statistic == 'reduction_pct' else ''}"


def _range(low: float | None, high: float | None, *, up_to: bool) -> str:
    if low is not None and high is not None:
        return f"{low:g}" if low == high else f"{low:g} to {high:g}"
    if high is not None:
        return f"{'up to' if up_to else 'at most'} {high:g}"
    return "" if low is None else f"at least {low:g}"


def _cell(claim: Claim, found: Sequence[Found]) -> str:
    """The range over pairs, and which pair has the value that counts."""
    if claim.check is None or not found:
        return "–"
    low, high = (choose(found, key=lambda one: one.value) for choose in (min, max))
    if len(found) == 1:
        return f"{_number(low.value, low.half)} ({low.place})" if low.place else _number(low.value, low.half)
    mean = "" if claim.check.take != "mean" else f", mean {taken(found, 'mean')[0][0]:.3g}"
    return (f"{_number(low.value, low.half)} ({low.place}) to {_number(high.value, high.half)} ({high.place}), "
            f"{len(found)} pairs{mean}")


def _number(value: float, half: float) -> str:
    return f"{value:.3g}" if math.isnan(half) else f"{value:.3g} ± {half:.2g}"
