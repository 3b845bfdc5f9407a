"""The claims of papers: `claims/<paper>.yaml` holds the quoted sentences and how each is checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from gnnexp.components.signature import unknown
from gnnexp.errors import ConfigError, Problem
from gnnexp.reports.expression import expression_problems

_FOLDER = Path(__file__).with_name("claims")
Statistic = Literal["ratio", "reduction_pct", "difference", "value"]
TAKES = ("each", "greatest", "least", "mean", "growth", "steps")
_ALONG = ("growth", "steps")
# Config keys whose values must be equal in two runs that are compared with each other.
ALIKE = (
    "dataset",
    "dataset.name",
    "dataset.shape",
    "dataset.scale",
    "dataset.num_features",
    "model",
    "model.layers",
    "model.hidden",
    "train.batch_size",
    "hardware.workers",
    "task",
)


@dataclass(frozen=True)
class Expects:
    """What the paper says about the statistic.

    Attributes:
        statistic: how the two sides a (`of`) and b (`over`) give one number. `ratio` is `a / b`, `reduction_pct` is
            `100 (1 - a / b)`, `difference` is `a - b`, and `value` is `a`.
        low, high: the published range; None for an open end.
        mean: the published average, or None.
        better: whether `higher` or `lower` values support the paper. An open range with a highest value and `higher`
            is an "up to".
    """

    statistic: Statistic
    low: float | None
    high: float | None
    mean: float | None
    better: Literal["higher", "lower"]


@dataclass(frozen=True)
class Count:
    """A count that a claim depends on, measured on a synthetic graph that stands for the paper's graph.

    Attributes:
        name: its name on the claims page.
        value: an `expression` of a run; `[full]` and `[steps]` scale it to the published size.
        cell: the paper's number: fields and settings of a cell in the paper's `published.csv`. The graph is the run's.
        of: config keys and the values that a run must have to be counted.
        sweeps: sweeps whose runs are counted; empty: those of the check.
    """

    name: str
    value: str
    cell: Mapping[str, str]
    of: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sweeps: Sequence[str] = ()


@dataclass(frozen=True)
class Cells:
    """The number that the paper prints for each single pair.

    Attributes:
        of: fields and settings of the cell; the graph is the run's. If the cell holds a range, that range is expected.
        over: fields and settings of a second cell; then the statistic of both cells is expected.
        by: further fields and settings of the cells, each with the config key of the run that gives its value.
    """

    of: Mapping[str, str]
    over: Mapping[str, str] = field(default_factory=dict)
    by: Mapping[str, str] = field(default_factory=lambda: {"model": "model"})


@dataclass(frozen=True)
class Mechanism:
    """Runs of some systems with a mechanism that the paper's way lacks. The claim is evaluated with them in addition.

    Attributes:
        systems: systems whose runs are replaced.
        sweeps: sweeps with the runs that replace them.
        where: config keys and values that these runs must have.
    """

    systems: Sequence[str]
    sweeps: Sequence[str]
    where: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """How a claim is decided from the runs of sweeps.

    Attributes:
        sweeps: sweeps whose runs are used.
        value: an `expression` of each run.
        of, over: config keys and values that select the runs of each side. Each value of a key is a side of its own.
        uncounted: further components in place of `of`. The page shows their pairs, but no verdict counts them.
        where: config keys and values that all runs must have.
        alike: config keys that a pair must share.
        take: the values that count: `each` pair, the `greatest`, the `least`, or their `mean`. For `growth`, the value
            at the last value of `along` is compared with the value at the first. For `steps`, each value is compared
            with the one before, and the mean is taken. Both use the statistic if there is no `over`, else a ratio.
        along: a config key, for `growth` and `steps`.
        tolerance: how far outside of the range still counts as inside, as a share of the published number.
        within: how far outside of the published range still counts as equal, in the unit of the statistic. An interval
            over seeds that lies on both sides of such an end decides nothing.
        effect: for a difference: whether the paper says that there is one. Then an interval that contains 0 decides
            nothing. Otherwise the claim is "no loss".
        equal_epochs: whether both runs of a pair are compared after as many epochs as the shorter one has.
        hardware: the profile for an estimate, if the value is in seconds. Without a profile, a claim of time that
            depends on hardware cannot be decided here.
        estimate: an expression for the estimate, if it differs from `value`.
        printed: selects the paper's cells for `[published/<quantity>]` in `estimate`; the graph is the run's.
        edge_rows: systems whose published code keeps rows for the edges of a GAT (`report.published.edge_rows`).
        cells: the cells that the paper prints for each pair; each pair is then compared with its own cell.
        counts: counts that the claim depends on, if graphs are synthetic; `()` if it does not depend on the graph.
        unlike: why the synthetic graph cannot show the claim, whatever its counts are.
        unpriced: what the claim is about, if the profile has no price for it. The estimate is shown, and decides
            nothing.
        lower_bound: what the values leave out. Values below the published range then decide nothing.
        by_construction: why no count could refute the claim; the claim is then shown.
        mechanisms: mechanisms by name. The page shows what the claim gives with each; the verdict is that without.
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
    mechanisms: Mapping[str, Mechanism] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper.

    Attributes:
        paper: the paper's folder name.
        name: the claim's name.
        says: the quoted sentence.
        source: where the sentence stands in the paper.
        kind: `count`, `memory`, `accuracy` or `time`.
        depends_on_hardware: whether other hardware could change the verdict.
        expects: what the sentence says about the statistic.
        measure: the check in words.
        note: contradictions in the paper, and how we read the sentence.
        check: how the claim is decided; None if nothing here can decide it. Then `why` says what is missing.
        why: the reason why a claim does not hold here or is not checked.
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
    """Papers whose claims are transcribed."""
    return tuple(sorted(file.stem for file in _FOLDER.glob("*.yaml")))


@cache
def claims_of(paper: str) -> tuple[Claim, ...]:
    """The claims of a paper, in the order of its file.

    Raises:
        ConfigError: there is no such paper, or its file has mistakes.
    """
    if paper not in claiming_papers():
        raise ConfigError(unknown("claims", paper, paper, claiming_papers()))
    problems: list[Problem] = []
    items = yaml.safe_load((_FOLDER / f"{paper}.yaml").read_text(encoding="utf-8"))
    claims = tuple(_claim(paper, item, problems) for item in items)
    ConfigError.raise_all(problems)
    return claims


def _claim(paper: str, item: Mapping[str, Any], problems: list[Problem]) -> Claim:
    check = item.get("check")
    return Claim(
        paper=paper,
        name=item["claim"],
        says=item["says"],
        source=item["source"],
        kind=item["kind"],
        depends_on_hardware=item["depends_on_hardware"],
        expects=Expects(**item["expects"]),
        measure=item["measure"],
        note=item.get("note", ""),
        check=check and _check(item["claim"], check, problems),
        why=item.get("why", ""),
    )


def _check(claim: str, item: Mapping[str, Any], problems: list[Problem]) -> Check:
    known = {one.name for one in fields(Check)}
    problems += [unknown(f"{claim}.check.{key}", value, key, known) for key, value in item.items() if key not in known]
    for key in ("value", *(["estimate"] if item.get("estimate") else [])):
        problems += expression_problems(str(item.get(key, "")), f"{claim}.check.{key}")
    if item.get("take", "each") not in TAKES:
        problems.append(unknown(f"{claim}.check.take", item["take"], str(item["take"]), TAKES))
    if (item.get("take") in _ALONG) != bool(item.get("along")):
        problems.append(
            Problem(f"{claim}.check.along", item.get("along"), f"goes with take: {' or '.join(_ALONG)}", "give both")
        )
    sides = {key: _side(item.get(key, {})) for key in ("of", "over", "uncounted", "where")}
    parts: dict[str, Any] = {"alike": tuple(item.get("alike", ALIKE))}
    if "cells" in item:
        parts["cells"] = Cells(**item["cells"])
    if "mechanisms" in item:
        parts["mechanisms"] = {
            name: Mechanism(tuple(one["systems"]), tuple(one["sweeps"]), _side(one.get("where", {})))
            for name, one in item["mechanisms"].items()
        }
    if "counts" in item:
        parts["counts"] = tuple(_count(claim, one, problems) for one in item["counts"])
    rest = {key: value for key, value in item.items() if key in known and key not in (*sides, *parts)}
    return Check(**{**rest, **sides, **parts})


def _count(claim: str, item: Mapping[str, Any], problems: list[Problem]) -> Count:
    problems += expression_problems(str(item["value"]), f"{claim}.check.counts.{item['name']}")
    return Count(**{**item, "of": _side(item.get("of", {}))})


def _side(item: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {key: _texts(value) for key, value in item.items()}


def _texts(value: object) -> tuple[str, ...]:
    """The value of a config key as texts, in the form of `Run.value`."""
    if isinstance(value, list):
        return tuple(text for one in value for text in _texts(one))
    return ("null",) if value is None else (str(value),)
