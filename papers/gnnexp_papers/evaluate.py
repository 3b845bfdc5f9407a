"""Evaluates claims against runs: what the runs show, on which counts it depends, and whether that decides anything."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gnnexp.record.runs import RecordedRun
from gnnexp.reports.expression import evaluate
from gnnexp_papers.chance import is_chance, is_of_balance, with_chance
from gnnexp_papers.claim import Check, Claim, Expects, Mechanism
from gnnexp_papers.machines import can_estimate, fits, flaw_of_seconds, of_seconds, seconds_there
from gnnexp_papers.pairs import Found, compare, matches
from gnnexp_papers.standin import (
    Counted,
    at_full_size,
    counted,
    expected_of,
    is_unlike,
    not_counted,
    published_numbers,
    stands_for,
)
from gnnexp_papers.verdict import Judged, Verdict, verdict

NOT_HERE, NOT_ON_THIS_GRAPH = "not decidable here", "not decidable on this graph"
_SUPPORT = ("holds", "exceeds", "in direction", "shown")


@dataclass(frozen=True)
class Outcome:
    """A claim with the result of its evaluation.

    Attributes:
        claim: the claim.
        measured: the statistic of each pair, on the machine that made the runs.
        estimated: the statistic of each pair, on the paper's machine. Empty if the claim needs no estimate, or if
            nothing can be estimated.
        counts: counts of the synthetic graphs that the claim depends on, with the paper's counts.
        uncounted: pairs of further systems, on the machine that decides; no verdict counts them.
        mechanisms: what the claim gives with each mechanism of its check, by name.
    """

    claim: Claim
    measured: Sequence[Found]
    estimated: Sequence[Found]
    counts: Sequence[Counted] = ()
    uncounted: Sequence[Found] = ()
    mechanisms: Mapping[str, Outcome] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """The verdict: of the estimate if the machine matters, else of the measurement, if either can decide."""
        check = self.claim.check
        if check is None:
            return "not checked"
        if not self.measured and not self.estimated:
            return "not run"
        by_machine = needs_estimate(self.claim)
        if by_machine and (check.unpriced or not self.estimated or self._lacks_pairs(check)):
            return NOT_HERE
        found, value = (self.estimated, check.estimate or check.value) if by_machine else (self.measured, check.value)
        measures = not can_estimate(value) if by_machine else of_seconds(value)
        if measures and any(map(flaw_of_seconds, found)):
            return NOT_HERE
        word = self._on_these_graphs(found, check)
        return f"only estimated: {word}" if by_machine and word != NOT_ON_THIS_GRAPH else word

    def _lacks_pairs(self, check: Check) -> bool:
        """Whether a mean is needed and pairs are missing there: their runs do not fit or have too many ranks."""
        of_mean = check.take == "mean" or prints_mean(self.claim.expects)
        return of_mean and len(self.estimated) < len(self.measured)

    def _on_these_graphs(self, found: Sequence[Found], check: Check) -> str:
        """The verdict of the pairs whose graphs are like the paper's.

        One such pair is enough to refute a claim about each pair. For the greatest or least value, the best of these
        pairs counts. A mean needs all pairs. A claim that is only shown needs no graph like the paper's.
        """
        if _word(self.claim, found) == "shown":
            return "shown"
        alike = [] if check.unlike else [one for one in found if not is_unlike(one, self.counts)]
        if not alike:
            return NOT_ON_THIS_GRAPH
        word, take = _word(self.claim, alike), _take(check)
        refuted = take not in ("mean", "greatest", "least") and word not in _SUPPORT
        enough = len(alike) == len(found) or take in ("greatest", "least") or refuted
        return word if enough else NOT_ON_THIS_GRAPH


def needs_estimate(claim: Claim) -> bool:
    """Whether the claim is about seconds of the paper's machine. Seconds of other machines cannot decide it."""
    return claim.kind == "time" and claim.depends_on_hardware


def outcome(claim: Claim, runs_of: Mapping[str, Sequence[RecordedRun]]) -> Outcome:
    """Evaluate a claim on the finished runs of its sweeps, also with its mechanisms."""
    plain = _outcome(claim, runs_of)
    check = claim.check
    if check is None or not check.mechanisms:
        return plain
    found = {name: _outcome(*with_mechanism(claim, check, one, runs_of)) for name, one in check.mechanisms.items()}
    return replace(plain, mechanisms={name: one for name, one in found.items() if one.measured})


def with_mechanism(
    claim: Claim, check: Check, mechanism: Mechanism, runs_of: Mapping[str, Sequence[RecordedRun]]
) -> tuple[Claim, dict[str, list[RecordedRun]]]:
    """The claim, and runs by sweep, in which runs with a mechanism take the place of those of its systems."""
    others = {
        sweep: [run for run in runs_of.get(sweep, ()) if run.value("system") not in mechanism.systems]
        for sweep in check.sweeps
    }
    replacing = {
        f"{sweep} with a mechanism": [run for run in runs_of.get(sweep, ()) if matches(run, mechanism.where)]
        for sweep in mechanism.sweeps
    }
    own = replace(check, sweeps=[*others, *replacing], mechanisms={})
    counted_on = {count_sweep: list(runs_of[count_sweep]) for count_sweep in runs_of if count_sweep not in others}
    return replace(claim, check=own), {**counted_on, **others, **replacing}


def _outcome(claim: Claim, runs_of: Mapping[str, Sequence[RecordedRun]]) -> Outcome:
    check = claim.check
    if check is None:
        return Outcome(claim, (), ())
    runs = [run for sweep in check.sweeps for run in runs_of.get(sweep, ()) if run.status == "finished"]
    runs = list({str(run.path): run for run in runs if matches(run, check.where)}.values())
    measured, estimated = _measured(claim, check, runs), _estimated(claim, check, runs)
    judged = [run for one in (*measured, *estimated) for run in one.runs]
    graphs = {stands_for(run) for run in judged}
    counts = [one for one in counted(claim, runs_of) if one.graph in graphs]
    counts += not_counted(claim, judged, counts)
    if not check.uncounted:
        return Outcome(claim, measured, estimated, counts)
    other = replace(check, of={**check.of, **check.uncounted})
    uncounted = (_estimated if needs_estimate(claim) else _measured)(claim, other, runs)
    return Outcome(claim, measured, estimated, counts, uncounted)


def taken(found: Sequence[Found], take: str) -> list[Found]:
    """The pairs that the verdict is about; for a mean, one pair that holds the mean of all."""
    if not found or take not in ("greatest", "least", "mean"):
        return list(found)
    if take == "mean":
        mean = sum(one.value for one in found) / len(found)
        return [Found("mean", mean, math.nan, found[0].of, found[0].over)]
    return [(max if take == "greatest" else min)(found, key=lambda one: one.value)]


def spread_of(found: Found, claim: Claim, check: Check) -> tuple[float, float]:
    """Value and half interval of a pair: over seeds, or for loads also from the random draw of a batch's targets."""
    if is_of_balance(check.value):
        return with_chance(found, check.value, claim.expects)
    return found.value, found.half


def _take(check: Check) -> str:
    """How the check takes pairs; `each` if the paper prints a number for each pair, to compare each with its own."""
    return "each" if check.cells is not None and check.take in ("greatest", "least") else check.take


def _measured(claim: Claim, check: Check, runs: Sequence[RecordedRun]) -> list[Found]:
    return compare(runs, check, claim.expects, lambda run: evaluate(check.value, run))


def _estimated(claim: Claim, check: Check, runs: Sequence[RecordedRun]) -> list[Found]:
    value = check.estimate or check.value
    if check.hardware is None or not (check.estimate or can_estimate(value)):
        return []
    hardware = check.hardware

    def there(run: RecordedRun) -> float:
        known = seconds_there(run, hardware, claim.paper, check.edge_rows) | at_full_size(claim.paper, run)
        return evaluate(value, run, known | published_numbers(claim.paper, check, run))

    return compare([run for run in runs if fits(run, hardware)], check, claim.expects, there)


def _word(claim: Claim, found: Sequence[Found]) -> Verdict:
    check = claim.check
    assert check is not None
    word = verdict(_judged(claim, check, found), check)
    by_chance = is_of_balance(check.value) and any(map(is_chance, found))
    return "not decided" if by_chance and word in _SUPPORT else word


def _judged(claim: Claim, check: Check, found: Sequence[Found]) -> list[Judged]:
    """Each pair with what is expected of it; if the paper prints a mean next to cells or a range, the mean too."""
    expects = claim.expects
    judged = [(*spread_of(one, claim, check), expected_of(one, claim)) for one in taken(found, _take(check))]
    if prints_mean(expects):
        judged.append((taken(found, "mean")[0].value, math.nan, replace(expects, low=None, high=None)))
    return judged


def prints_mean(expects: Expects) -> bool:
    """Whether the paper prints a mean in addition to a best value or a range."""
    return expects.mean is not None and not {expects.low, expects.high} <= {None, expects.mean}
