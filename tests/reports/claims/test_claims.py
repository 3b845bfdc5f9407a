"""What papers claim is in their words, and says what it expects."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from gnnexp.config.compose import compose
from gnnexp.record.runs import Run
from gnnexp.reports.claims.claim import Check, Claim, claims_of
from gnnexp.reports.claims.expression import names_in
from gnnexp.sweep import load_sweep

FOLDER = Path(__file__).parents[3] / "gnnexp" / "reports" / "claims"
TEXTS = Path(os.environ.get("GNNEXP_DATA", "")).resolve().parent / "papers"
FILES = sorted(FOLDER.glob("*.yaml"))
FIELDS = {"claim", "says", "source", "kind", "depends_on_hardware", "systems", "datasets", "models", "expects",
          "measure"}
# Papers whose sweeps exist. What is counted needs no machine but this one: a check, and no reason why there is none.
CHECKED = ("hongtu", "neutrontp", "sdt_gnn")
CHECKS = [pytest.param(claim.check, id=claim.name) for paper in CHECKED for claim in claims_of(paper) if claim.check]


def claims(file: Path) -> list[dict[str, Any]]:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def test_every_paper_claims_something() -> None:
    assert [file.stem for file in FILES] == ["fastsample", "gsplit", "hongtu", "neutrontp", "sdt_gnn"]
    names = [claim["claim"] for file in FILES for claim in claims(file)]
    assert len(names) == len(set(names)) > 80


@pytest.mark.skipif(not TEXTS.is_dir(), reason="the papers' texts are not beside GNNEXP_DATA")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_claims_are_quoted(file: Path) -> None:
    text = flat((TEXTS / f"{file.stem}.txt").read_text(encoding="utf-8"))
    for claim in claims(file):
        assert flat(claim["says"]) in text, claim["claim"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_claims_are_whole(file: Path) -> None:
    for claim in claims(file):
        assert set(claim) - {"note", "check", "why"} == FIELDS, claim["claim"]
        assert claim["kind"] in ("count", "memory", "accuracy", "time"), claim["claim"]
        expects = claim["expects"]
        assert expects["statistic"] in ("ratio", "reduction_pct", "difference", "value"), claim["claim"]
        assert set(expects) <= {"statistic", "low", "high", "mean", "better"}, claim["claim"]
        assert expects["better"] in ("lower", "higher"), claim["claim"]
        assert expects["low"] is None or expects["high"] is None or expects["low"] <= expects["high"], claim["claim"]


@pytest.mark.parametrize("claim", [claim for paper in CHECKED for claim in claims_of(paper)], ids=lambda one: one.name)
def test_a_claim_is_checked_or_says_why_not(claim: Claim) -> None:
    assert claim.check or (claim.why and claim.kind != "count")


@cache
def cases(sweep: str) -> list[Run]:
    """As runs without a record; seeds and numbers of parts, which no check chooses by, once."""
    chosen = {tuple(line for line in case.overrides if not line.startswith(("seed=", "partitioner.num_parts="))): case
              for case in reversed(load_sweep(sweep).cases)}
    made = [compose(case.overrides) for case in chosen.values()]
    return [Run(Path(), one.config, {"choices": one.choices}, [], {}, "finished") for one in made]


def side(check: Check, wanted: Mapping[str, Sequence[str]]) -> list[Run]:
    return [run for sweep in check.sweeps for run in cases(sweep)
            if all(run.value(key) in values for one in (check.where, wanted) for key, values in one.items())]


@pytest.mark.parametrize("check", CHECKS)
def test_the_sweeps_of_a_check_have_its_sides(check: Check) -> None:
    """Every value that it names; and of every value of `over` a pair that shares what is alike."""
    assert side(check, check.of) and (not check.over or side(check, check.over))
    keys = [key for key in check.alike if key not in (*check.of, *check.over, check.along)]
    places = {tuple(run.value(key) for key in keys) for run in side(check, check.of)}
    for wanted in (check.of, check.over, check.where):
        for key, values in wanted.items():
            for value in values:
                found = side(check, {**wanted, key: [value]})
                assert {tuple(run.value(key) for key in keys) for run in found} & places, (key, value)
    for name in names_in(check.value):
        if name.startswith("config/"):
            assert any(run.knows(name.removeprefix("config/")) for run in side(check, check.of)), name
