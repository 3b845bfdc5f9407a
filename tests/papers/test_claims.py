"""What papers claim is in their words, and says what it expects."""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from gnnexp.cli.sweeping.definition import load_sweep
from gnnexp.config.compose import compose
from gnnexp.planning.machine import machine_named
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.expression import names_in
from gnnexp.reports.published_cells import cells, chosen
from gnnexp_papers.chance import is_of_balance
from gnnexp_papers.claim import Check, Claim, claims_of
from gnnexp_papers.evaluate import needs_estimate
from gnnexp_papers.machines import can_estimate
from gnnexp_papers.pairs import Found, matches
from gnnexp_papers.standin import expected_of, stands_for

ROOT = Path(__file__).parents[2]
TEXTS = Path(os.environ.get("GNNEXP_DATA", "")).resolve().parent / "papers"
FILES = sorted((ROOT / "papers" / "gnnexp_papers" / "claims").glob("*.yaml"))
FIELDS = {
    "claim",
    "says",
    "source",
    "kind",
    "depends_on_hardware",
    "systems",
    "datasets",
    "models",
    "expects",
    "measure",
}
CLAIMS = [claim for file in FILES for claim in claims_of(file.stem)]
CHECKED = [claim for claim in CLAIMS if claim.check]
# Claims whose sweeps are composed take minutes together: one of each paper is quick, of a small sweep.
ONE_EACH = {
    "fastsample_kernel_speedup",
    "gsplit_redundant_edges",
    "hongtu_h2d_reduction",
    "neutrontp_end_to_end",
    "sdt_merging_clusters",
}
COMPOSED = [
    pytest.param(claim, id=claim.name, marks=() if claim.name in ONE_EACH else pytest.mark.slow) for claim in CHECKED
]
# Large sweeps that are composed for the cells of their claims alone; another claim of each paper is quick.
LARGE = {"gsplit_table3", "hongtu_figure9", "sdt_gnn_table4"}
KEPT = ROOT / "docs" / "results" / "claims"
WORDS = {"holds", "exceeds", "in direction", "too weak", "does not hold", "shown", "not decided"}
# Quantities by which a paper prints how large its graph is.
SIZES = ("num_nodes", "num_edges")
# What a claim may count on any graph: rounds, and what the configuration says.
ANYWHERE = ("comm/", "config/", "batches", "ranks")


def claims(file: Path) -> list[dict[str, Any]]:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def test_every_paper_claims_something() -> None:
    assert [file.stem for file in FILES] == ["fastsample", "gsplit", "hongtu", "neutrontp", "sdt_gnn"]
    names = [claim["claim"] for file in FILES for claim in claims(file)]
    assert len(names) == len(set(names)) > 80
    quick = [claim.paper for claim in CHECKED if claim.name in ONE_EACH]
    assert quick == [file.stem for file in FILES]


@pytest.mark.skipif(not TEXTS.is_dir(), reason="the papers' texts are not next to GNNEXP_DATA")
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


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda one: one.name)
def test_a_claim_is_checked_or_says_why_not(claim: Claim) -> None:
    assert claim.check or (claim.why and claim.kind != "count")


@cache
def cases(sweep: str) -> list[RecordedRun]:
    """As runs without a record; seeds and numbers of parts, which no check chooses by, once."""
    chosen = {
        tuple(line for line in case.overrides if not line.startswith(("seed=", "partitioner.num_parts="))): case
        for case in reversed(load_sweep(sweep).cases)
    }
    made = [compose(case.overrides) for case in chosen.values()]
    return [RecordedRun(Path(), one.config, {"choices": one.choices}, [], {}, "finished") for one in made]


def side(check: Check, wanted: Mapping[str, Sequence[str]]) -> list[RecordedRun]:
    return [
        run
        for sweep in check.sweeps
        for run in cases(sweep)
        if all(run.value(key) in values for one in (check.where, wanted) for key, values in one.items())
    ]


def knows(run: RecordedRun, key: str) -> bool:
    """Whether the configuration has the dotted `key`."""
    node: object = run.config
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return key in ("system", *run.provenance.get("choices", {}))
        node = node[part]
    return True


@pytest.mark.parametrize("claim", COMPOSED)
def test_the_sweeps_of_a_check_have_its_sides(claim: Claim) -> None:
    """Every value that it names; and of every value of `over` a pair that shares what is alike."""
    check = claim.check
    assert check
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
            assert any(knows(run, name.removeprefix("config/")) for run in side(check, check.of)), name
    assert not check.uncounted or side(check, {**check.of, **check.uncounted})


def kept() -> dict[str, dict[str, str]]:
    """What docs/results keeps of every claim, by its name."""
    return {
        row["claim"].partition(":")[0]: row
        for file in sorted(KEPT.glob("*.csv"))
        for row in csv.DictReader(file.open(encoding="utf-8", newline=""))
    }


@pytest.mark.parametrize("claim", [pytest.param(claim, id=claim.name) for claim in CLAIMS])
def test_kept_pages_give_the_reasons_of_today(claim: Claim) -> None:
    """Or `gnnexp claims --out docs/results/claims` was forgotten."""
    assert flat(claim.why) in kept()[claim.name]["why, and notes"]


def test_every_kept_verdict_is_a_documented_word() -> None:
    """And is on the page of docs that explains the words."""
    words = {row["verdict"].removeprefix("only estimated: ") for row in kept().values()}
    assert words <= WORDS | {"not decidable here", "not decidable on this graph", "not checked"}
    explained = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
    assert all(f"| {word} |" in explained for word in words - {"not checked"})
    assert {claim.name for claim in CLAIMS} == set(kept())


@pytest.mark.parametrize("claim", [pytest.param(one, id=one.name) for one in CHECKED if needs_estimate(one)])
def test_seconds_of_other_hardware_are_estimated_or_not_decidable(claim: Claim) -> None:
    check, verdict = claim.check, kept()[claim.name]["verdict"]
    assert check is not None
    if check.hardware is None:
        assert verdict == "not decidable here"
    else:
        assert check.estimate or can_estimate(check.value)
        assert machine_named(check.hardware)
        if check.unpriced:
            assert verdict == "not decidable here"
            return
        if check.estimate and not can_estimate(check.estimate):  # made of seconds of four ranks on two cores
            assert verdict == "not decidable here"
            return
        lacks_pairs = verdict == "not decidable here" and check.take == "mean"
        assert verdict == "not decidable on this graph" or verdict.startswith("only estimated: ") or lacks_pairs


def systems_of(check: Check) -> set[str]:
    """On either side, counted or not."""
    return {system for one in (check.of, check.over, check.uncounted) for system in one.get("system", ())}


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(one, id=one.name)
        for one in CHECKED
        if one.paper == "neutrontp"
        and one.kind == "time"
        and one.check
        and "neutrontp" in systems_of(one.check)
        and systems_of(one.check) & {"neutronstar", "neutronstar_comm"}
    ],
)
def test_a_speed_up_over_neutronstar_names_both_of_its_forms(claim: Claim) -> None:
    """What its published code does and the hybrid of its paper, also where NeutronTP loses to it."""
    assert claim.check is not None and {"neutronstar", "neutronstar_comm"} <= systems_of(claim.check)
    assert "neutronstar_comm" in claim.why and "hybrid" in claim.why


def test_only_seconds_are_estimated() -> None:
    assert not [claim.name for claim in CHECKED if claim.check and claim.check.hardware and not needs_estimate(claim)]
    assert not [claim.name for claim in CHECKED if claim.check and claim.check.unpriced and not claim.check.hardware]


@pytest.mark.parametrize(
    "claim", [pytest.param(one, id=one.name) for one in CHECKED if one.check and is_of_balance(one.check.value)]
)
def test_every_balance_claim_says_what_chance_gives(claim: Claim) -> None:
    assert "chance alone: " in kept()[claim.name]["measured here"]


def stand_ins(check: Check) -> dict[str, list[RecordedRun]]:
    """Cases of a check on synthetic graphs, by the graph that they stand for."""
    found: dict[str, list[RecordedRun]] = {}
    for run in side(check, check.of):
        if stands_for(run):
            found.setdefault(stands_for(run), []).append(run)
    return found


@pytest.mark.parametrize("claim", COMPOSED)
def test_a_claim_on_stand_ins_names_counts_that_the_paper_prints(claim: Claim) -> None:
    """Of every graph whose size the paper prints; none where what is checked does not depend on the graph."""
    check = claim.check
    assert check is not None
    printed = {cell.dataset for cell in cells(claim.paper) if cell.quantity in SIZES}
    graphs = stand_ins(check)
    if not printed & set(graphs):
        return
    assert check.counts is not None, f"counts of {sorted(printed & set(graphs))}, or [] where none matters"
    if not check.counts:
        assert check.by_construction or all(name.startswith(ANYWHERE) for name in names_in(check.value))
        return
    for graph in printed & set(graphs):
        counted = [
            count
            for count in check.counts
            if chosen(cells(claim.paper), dataset=graph, **count.cell)
            and any(
                stands_for(run) == graph and matches(run, count.of)
                for sweep in count.sweeps or check.sweeps
                for run in cases(sweep)
            )
        ]
        assert counted, graph


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(one, id=one.name, marks=pytest.mark.slow if LARGE.intersection(one.check.sweeps) else ())
        for one in CHECKED
        if one.check and one.check.cells
    ],
)
def test_cells_are_printed_for_every_pair(claim: Claim) -> None:
    """One number of each graph, and of each model where the paper prints models apart."""
    check = claim.check
    assert check is not None and check.cells is not None
    for runs in stand_ins(check).values():
        for run in runs:
            found = expected_of(Found("", 1.0, math.nan, (run,)), claim)
            assert found != claim.expects and found.low is not None, run.value("dataset.shape")
