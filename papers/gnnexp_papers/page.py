"""The claims page: what each paper claims, what our runs show, and the reason if the two do not agree."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from gnnexp.record.runs import RecordedRun
from gnnexp.reports.tables.table import ReportTable
from gnnexp_papers.chance import chances, is_of_balance
from gnnexp_papers.claim import Check, Claim, Expects
from gnnexp_papers.evaluate import Outcome, needs_estimate, outcome, prints_mean, spread_of, taken
from gnnexp_papers.machines import flaw_of_seconds, of_seconds
from gnnexp_papers.pairs import Found
from gnnexp_papers.standin import TOO_FAR, Counted, expected_of

_COLUMNS = (
    "claim",
    "source",
    "kind",
    "published",
    "measured here",
    "estimated there",
    "verdict",
    "runs",
    "stand-in / paper",
    "why, and notes",
)
_CAPTION = (
    "Measured here: the statistic of the lowest and of the highest pair of runs, with its 95 % interval over seeds. "
    "If the paper prints a number for every pair, each pair is shown with that number in brackets. Seconds are left "
    "out if there are more ranks than cores or two kinds of machine. Estimated there (docs/estimates.md): the same "
    "statistic, from the seconds that the linear model estimates for the paper's hardware. Stand-in / paper: counts "
    "of our synthetic graph at the paper's size, and the paper's counts. The verdicts are as follows. Holds: "
    "inside of the published range. The range is widened by 10 % (exact counts: by nothing; an effect: by half of it "
    "at most) or by the interval. An “up to” has to be met, not passed, and a printed mean has to agree too. Exceeds: "
    "some pairs are better than claimed, the others hold. In direction: outside of the range, but at least a "
    "quarter as far from no effect (a ratio of 1, a difference of 0) as published, on the same side. Too weak: less "
    "than that quarter. Does not hold: neither. Shown: the paper names no number, or the number follows from a "
    "definition. Not decided: seeds spread too much, chance alone explains a load, or a lower bound is below the "
    "range. Only estimated: the claim is about other hardware, and this is the verdict of the estimate. Not decidable "
    f"on this graph: a count of the stand-in is more than {TOO_FAR:g} times off, or the stand-in lacks what the claim "
    "is about. Not decidable here, for one of three reasons. First: the claim needs seconds of other hardware, and no "
    "profile has a price for them. Second: pairs of a mean are missing there, because their runs do not fit. Third: "
    "seconds were measured on more ranks than cores, or on different kinds of machine. Not checked: see why."
)


def evaluated(claims: Sequence[Claim], runs_of: Mapping[str, Sequence[RecordedRun]]) -> list[Outcome]:
    """The outcome of each claim, in order."""
    return [outcome(claim, runs_of) for claim in claims]


def make_table(outcomes: Sequence[Outcome]) -> ReportTable:
    """The claims table, one row per claim."""
    counts = Counter(one.verdict for one in outcomes)
    verdicts = ", ".join(f"{count} {word}" for word, count in counts.most_common())
    return ReportTable(
        _COLUMNS, tuple(_row(one) for one in outcomes), f"{len(outcomes)} claims: {verdicts}. {_CAPTION}"
    )


def sweeps_of(claims: Sequence[Claim]) -> tuple[str, ...]:
    """The sweeps whose runs the claims need."""
    checks = [claim.check for claim in claims if claim.check]
    counted = [sweep for check in checks for count in check.counts or () for sweep in count.sweeps]
    mechanisms = [sweep for check in checks for one in check.mechanisms.values() for sweep in one.sweeps]
    return tuple(dict.fromkeys([*(sweep for check in checks for sweep in check.sweeps), *counted, *mechanisms]))


def _row(one: Outcome) -> tuple[str, ...]:
    claim = one.claim
    sweeps = ", ".join(claim.check.sweeps) if claim.check else "–"
    return (
        f"{claim.name}: “{claim.says}”",
        claim.source,
        claim.kind,
        published_cell(claim.expects),
        *_cells(one),
        one.verdict,
        sweeps,
        _counts_cell(one.counts),
        " ".join(filter(None, (*_reasons(claim.check), claim.why, claim.note))),
    )


def _cells(one: Outcome) -> tuple[str, str]:
    """The measured and the estimated cell. Uncounted pairs and mechanisms are appended to the cell that decides."""
    cells = [_measured_cell(one.claim, one.measured), _cell(one.claim, one.estimated)]
    if one.uncounted:
        cells[needs_estimate(one.claim)] += f"; not counted: {_cell(one.claim, one.uncounted)}"
    for name, other in one.mechanisms.items():
        found = other.estimated if needs_estimate(one.claim) else other.measured
        cells[needs_estimate(one.claim)] += f"; **{name}: {_cell(one.claim, found)} ({other.verdict})**"
    return cells[0], cells[1]


def _reasons(check: Check | None) -> tuple[str, ...]:
    return () if check is None else (check.unlike, check.unpriced, check.lower_bound, check.by_construction)


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


def _measured_cell(claim: Claim, found: Sequence[Found]) -> str:
    """The measured cell. Seconds that decide nothing are left out; only the reason is shown."""
    if claim.check is None or not of_seconds(claim.check.value):
        return _cell(claim, found)
    flaws = dict.fromkeys(filter(None, map(flaw_of_seconds, found)))
    shown = _cell(claim, [one for one in found if not flaw_of_seconds(one)])
    return f"{shown} ({'; '.join(flaws)})" if flaws else shown


def _cell(claim: Claim, found: Sequence[Found]) -> str:
    """The range over pairs, or each pair with the paper's own number; for loads, also what chance alone gives."""
    check = claim.check
    if check is None or not found:
        return "–"
    text = _each(claim, check, found) if check.cells else _ends(claim, check, found)
    if is_of_balance(check.value):
        text = "; ".join([text, *map(str, chances(found))])
    return text


def _each(claim: Claim, check: Check, found: Sequence[Found]) -> str:
    pairs = [
        f"{one.place} {_number(*spread_of(one, claim, check))} [{_expected(expected_of(one, claim))}]" for one in found
    ]
    mean = "" if not prints_mean(claim.expects) else f"; mean {taken(found, 'mean')[0].value:.3g}"
    return "; ".join(pairs) + mean


def _expected(expects: Expects) -> str:
    """What is expected of one pair; the quotient of two cells has three digits."""
    if expects.low is None or expects.high is None:
        return published_cell(expects).removesuffix(" %")
    return " to ".join(dict.fromkeys(f"{end:.3g}" for end in (expects.low, expects.high)))


def _ends(claim: Claim, check: Check, found: Sequence[Found]) -> str:
    low, high = (choose(found, key=lambda one: one.value) for choose in (min, max))
    texts = [_number(*spread_of(one, claim, check)) + (f" ({one.place})" if one.place else "") for one in (low, high)]
    if len(found) == 1:
        return texts[0]
    mean = check.take == "mean" or prints_mean(claim.expects)
    return f"{' to '.join(texts)}, {len(found)} pairs" + (f", mean {taken(found, 'mean')[0].value:.3g}" if mean else "")


def _counts_cell(counts: Sequence[Counted]) -> str:
    """`orkut: edges micro 1.09B / 926M (1.2x off), …; papers100m: …`."""
    graphs: dict[str, list[str]] = {}
    for one in counts:
        graphs.setdefault(one.graph, []).append(str(one))
    return "; ".join(f"{graph}: {', '.join(texts)}" for graph, texts in graphs.items()) or "–"


def _number(value: float, half: float) -> str:
    return f"{value:.3g}" if math.isnan(half) else f"{value:.3g} ± {half:.2g}"
