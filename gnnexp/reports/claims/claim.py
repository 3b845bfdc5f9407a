"""What papers claim: `sweeps/<paper>/claims.yaml`, quoted, with what is checked of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Literal

from gnnexp.config.folders import CLAIMS_FILE, papers_with, read_claims
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.signature import unknown
from gnnexp.reports.claims.expression import check_expression

Statistic = Literal["ratio", "reduction_pct", "difference", "value"]
TAKES = ("each", "greatest", "least", "mean", "growth", "steps")
_ALONG = ("growth", "steps")
# What sets runs apart that are compared with each other: the same in both.
ALIKE = ("dataset", "dataset.name", "dataset.shape", "dataset.scale", "dataset.num_features", "model", "model.layers",
         "model.hidden", "train.batch_size", "hardware.workers", "task")


@dataclass(frozen=True)
class Expects:
    """What the paper says of the statistic.

    Attributes:
        statistic: made of the two sides a, `of`, and b, `over`: ratio a / b, reduction_pct 100 (1 - a / b), difference
            a - b; value: a.
        low, high: the range; either may be open.
        mean: an average.
        better: whether `higher` or `lower` ones speak for the paper. An open range with a highest value and `higher` is
            an "up to".
    """

    statistic: Statistic
    low: float | None
    high: float | None
    mean: float | None
    better: Literal["higher", "lower"]


@dataclass(frozen=True)
class Count:
    """Something counted that a claim rests on, on a synthetic graph that stands for the paper's.

    Attributes:
        name: for the page.
        value: an `expression` of a run; `[full]` and `[steps]` scale it to the published size.
        cell: the paper's number: fields and settings of the paper's `published.csv`; the graph is the run's.
        of: which runs are counted, by config key.
        sweeps: whose; empty: those of the check.
    """

    name: str
    value: str
    cell: Mapping[str, str]
    of: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sweeps: Sequence[str] = ()


@dataclass(frozen=True)
class Cells:
    """What the paper prints for every single pair.

    Attributes:
        of: fields and settings of the cell; the graph is the run's. Its range, where it has one, is what is expected.
        over: of a second cell: the statistic of both is then expected.
        by: further fields and settings of the cells that the run says, by its config key.
    """

    of: Mapping[str, str]
    over: Mapping[str, str] = field(default_factory=dict)
    by: Mapping[str, str] = field(default_factory=lambda: {"model": "model"})


@dataclass(frozen=True)
class Check:
    """How a claim is decided from the runs of sweeps.

    Attributes:
        sweeps: whose runs are looked at.
        value: an `expression` of each run.
        of, over: which runs are on either side, by config key; several values of a key are sides of their own.
        uncounted: further components in place of `of`: the page shows their pairs, and no verdict counts them.
        where: what all of them must be.
        alike: config keys that a pair must share.
        take: which of the pairs' values count: `each`, the `greatest`, the `least`, their `mean`; `growth` compares the
            value at the last value of `along` with that at the first, `steps` each with that before it, and takes their
            mean: as the statistic says where there is no `over`, else as a ratio.
        along: a config key, for `growth` and `steps`.
        tolerance: how far outside, as a share of the published number, is still inside.
        within: how far outside of the published range still counts as equal, in the unit of the statistic. An interval
            over seeds that reaches both sides of such an end decides nothing.
        effect: of a difference: the paper says that there is one, so that an interval with 0 inside decides nothing;
            else "no loss" is the claim.
        equal_epochs: both runs of a pair are looked at after as many epochs as the shorter one has.
        hardware: the profile for an estimate, where the value is of seconds. A claim of time that depends on hardware
            cannot be decided here without one.
        estimate: an expression for the estimate, where it is not `value`.
        printed: which of the paper's cells are `[published/<quantity>]` in `estimate`; the graph is the run's.
        edge_rows: systems whose published code keeps rows for the edges of a GAT (`report.published.edge_rows`).
        cells: what the paper prints for every pair; each is then compared with its own.
        counts: what the claim rests on, where graphs are synthetic: `()` where it does not depend on the graph.
        unlike: why the synthetic graph cannot show it, whatever it counts.
        unpriced: what the claim is about and the profile has no price for: the estimate is shown, and decides nothing.
        lower_bound: what the values leave out: below the published range they decide nothing.
        by_construction: why nothing that is counted could refute it: it is then shown.
    """

    sweeps: Sequence[str]
    value: str
    of: Mapping[str, Sequence[str]]
    over: Mapping[str, Sequence[str]] = field(default_factory=dict)
    uncounted: Mapping[str, Sequence[str]] = field(default_factory=dict)
    where: Mapping[str, Sequence[str]] = field(default_factory=dict)
    alike: Sequence[str] = ALIKE
    take: str = "each"
    along: str = ""
    tolerance: float = 0.1
    within: float | None = None
    effect: bool = False
    equal_epochs: bool = False
    hardware: str | None = None
    estimate: str = ""
    printed: Mapping[str, str] = field(default_factory=dict)
    edge_rows: Sequence[str] = ()
    cells: Cells | None = None
    counts: Sequence[Count] | None = None
    unlike: str = ""
    unpriced: str = ""
    lower_bound: str = ""
    by_construction: str = ""


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper.

    Attributes:
        paper: which.
        name: of the claim.
        says: its words.
        source: where they stand.
        kind: `count`, `memory`, `accuracy` or `time`.
        depends_on_hardware: whether other hardware may decide otherwise.
        expects: what it says of the statistic.
        measure: the check in words.
        note: contradictions, and what we read into it.
        check: how it is decided; None where nothing here can, and `why` says what is missing.
        why: what explains a claim that does not hold here, or that is not checked.
    """

    paper: str
    name: str
    says: str
    source: str
    kind: str
    depends_on_hardware: bool
    expects: Expects
    measure: str
    note: str = ""
    check: Check | None = None
    why: str = ""


def claiming_papers() -> tuple[str, ...]:
    """Papers whose claims are written down."""
    return tuple(papers_with(CLAIMS_FILE))


@cache
def claims_of(paper: str) -> tuple[Claim, ...]:
    """In the file's order.

    Raises:
        ConfigError: there is no such paper, or its file is wrong.
    """
    if paper not in claiming_papers():
        raise ConfigError(unknown("report claims", paper, paper, claiming_papers()))
    problems: list[Problem] = []
    found = [_claim(paper, item, problems) for item in read_claims(paper)["claims"]]
    ConfigError.raise_all(problems)
    return tuple(found)


def _claim(paper: str, item: Mapping[str, Any], problems: list[Problem]) -> Claim:
    check = item.get("check")
    return Claim(
        paper=paper, name=item["claim"], says=item["says"], source=item["source"], kind=item["kind"],
        depends_on_hardware=item["depends_on_hardware"], expects=Expects(**item["expects"]), measure=item["measure"],
        note=item.get("note", ""), check=check and _check(item["claim"], check, problems), why=item.get("why", ""))


def _check(claim: str, item: Mapping[str, Any], problems: list[Problem]) -> Check:
    known = {one.name for one in fields(Check)}
    problems += [unknown(f"{claim}.check.{key}", value, key, known) for key, value in item.items() if key not in known]
    for key in ("value", *(["estimate"] if item.get("estimate") else [])):
        problems += check_expression(str(item.get(key, "")), f"{claim}.check.{key}")
    if item.get("take", "each") not in TAKES:
        problems.append(unknown(f"{claim}.check.take", item["take"], str(item["take"]), TAKES))
    if (item.get("take") in _ALONG) != bool(item.get("along")):
        problems.append(Problem(f"{claim}.check.along", item.get("along"), f"goes with take: {' or '.join(_ALONG)}",
                                "give both"))
    sides = {key: _side(item.get(key, {})) for key in ("of", "over", "uncounted", "where")}
    parts: dict[str, Any] = {"alike": tuple(item.get("alike", ALIKE))}
    if "cells" in item:
        parts["cells"] = Cells(**item["cells"])
    if "counts" in item:
        parts["counts"] = tuple(_count(claim, one, problems) for one in item["counts"])
    rest = {key: value for key, value in item.items() if key in known and key not in (*sides, *parts)}
    return Check(**{**rest, **sides, **parts})


def _count(claim: str, item: Mapping[str, Any], problems: list[Problem]) -> Count:
    problems += check_expression(str(item["value"]), f"{claim}.check.counts.{item['name']}")
    return Count(**{**item, "of": _side(item.get("of", {}))})


def _side(item: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {key: _texts(value) for key, value in item.items()}


def _texts(value: object) -> tuple[str, ...]:
    """Values of a config key as `Run.value` has them."""
    if isinstance(value, list):
        return tuple(text for one in value for text in _texts(one))
    return ("null",) if value is None else (str(value),)
