"""Pairs of runs that differ in nothing else, and what the page says of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from gnnexp.record.runs import RecordedRun
from gnnexp_papers.claim import Check, Claim, Expects, Mechanism, claiming_papers, claims_of
from gnnexp_papers.evaluate import outcome, taken
from gnnexp_papers.page import evaluated, make_table, published_cell, sweeps_of
from gnnexp_papers.pairs import compare

RATIO = Expects("ratio", 1.5, 2.5, None, "higher")


def run_of(
    system: str,
    value: float,
    seed: int = 0,
    graph: str = "a",
    workers: int = 2,
    status: str = "finished",
    **more: float,
) -> RecordedRun:
    config = {
        "system": system,
        "seed": seed,
        "dataset": {"name": graph},
        "hardware": {"workers": workers},
        "model": {"hidden": 4, "layers": 2},
        "feature_store": {},
        "task": {},
        "train": {},
    }
    epoch = {"time/epoch_s": value, **more}
    path = Path(f"{system}{seed}{graph}{workers}{value}")
    return RecordedRun(path, config, {"choices": {"model": "sage"}}, [epoch] * 3, {}, status)


def claim_of(check: Check | None, expects: Expects = RATIO, *, hardware: bool = False) -> Claim:
    return Claim(
        "paper",
        "it_is_fast",
        "it is fast",
        "Table 1",
        "time",
        hardware,
        expects,
        "in words",
        "a note",
        check,
        "a reason",
    )


def check_of(**more: object) -> Check:
    fields: Mapping[str, object] = {
        "sweeps": ("s",),
        "value": "[time/epoch_s]",
        "of": {"system": ("slow",)},
        "over": {"system": ("fast",)},
        **more,
    }
    return Check(**fields)


def test_pairs_share_everything_else() -> None:
    runs = [
        run_of("slow", 6),
        run_of("fast", 3),
        run_of("slow", 8, graph="b"),
        run_of("fast", 5, graph="b"),
        run_of("slow", 100, graph="c"),
        run_of("other", 1),
        run_of("fast", 1, status="failed", graph="c"),
    ]
    found = outcome(claim_of(check_of()), {"s": runs, "t": [run_of("slow", 1, graph="d")]})
    assert [(one.place, one.value) for one in found.measured] == [("a: slow over fast", 2), ("b: slow over fast", 1.6)]
    assert found.verdict == "holds" and not found.estimated


def test_seeds_are_paired() -> None:
    runs = [
        run_of(system, value, seed)
        for system, values in (("slow", (2, 8, 30)), ("fast", (1, 4, 10)))
        for seed, value in enumerate(values)
    ]
    (one,) = outcome(claim_of(check_of()), {"s": runs}).measured
    assert one.value == pytest.approx((2 + 2 + 3) / 3)
    assert one.half == pytest.approx(4.303 * math.sqrt(1 / 3) / math.sqrt(3), rel=1e-3)


def test_without_a_common_seed_means_are_compared() -> None:
    runs = [run_of("slow", 6, 0), run_of("slow", 10, 1), run_of("fast", 4, 2)]
    (one,) = outcome(claim_of(check_of()), {"s": runs}).measured
    assert one.value == 2 and math.isnan(one.half)


def test_every_rival_is_a_pair() -> None:
    check = check_of(of={"system": ("x", "y")}, alike=("dataset.name",))
    runs = [run_of("x", 6), run_of("y", 3), run_of("fast", 3)]
    assert [one.place for one in outcome(claim_of(check), {"s": runs}).measured] == ["x over fast", "y over fast"]


@pytest.mark.parametrize(("statistic", "value"), [("ratio", 0.25), ("reduction_pct", 75), ("difference", -9)])
def test_statistics(statistic: str, value: float) -> None:
    expects = replace(RATIO, statistic=statistic)
    runs = [run_of("slow", 3), run_of("fast", 12)]
    (one,) = compare(runs, check_of(), expects, lambda run: run.median("time/epoch_s"))
    assert one.value == value


def test_growth_along_a_key() -> None:
    runs = [
        run_of(system, value, workers=workers)
        for system, workers, value in (
            ("slow", 4, 12),
            ("slow", 2, 6),
            ("fast", 4, 2),
            ("fast", 2, 3),
            ("slow", 16, 30),
            ("fast", 16, 3),
        )
    ]
    check = check_of(take="growth", along="hardware.workers")
    (one,) = outcome(claim_of(check), {"s": runs}).measured
    assert one.value == (30 / 3) / (6 / 3) and one.place == "2 to 16: slow over fast"


@pytest.mark.parametrize(("take", "value"), [("growth", 75), ("steps", (50 + 20 + 37.5) / 3)])
def test_one_side_along_a_key_is_compared_as_the_statistic_says(take: str, value: float) -> None:
    runs = [run_of("slow", value, workers=workers) for workers, value in ((16, 2.5), (2, 10), (8, 4), (4, 5))]
    check = check_of(over={}, take=take, along="hardware.workers")
    (one,) = outcome(claim_of(check, Expects("reduction_pct", 20, 80, None, "higher")), {"s": runs}).measured
    assert (one.value, one.place) == (value, "2 to 16: slow")
    (alone,) = outcome(claim_of(check, replace(RATIO, statistic="ratio")), {"s": runs[:2]}).measured
    assert alone.value == 0.25
    assert outcome(claim_of(check), {"s": runs[:1]}).verdict == "not run", "one step compares nothing"


def crossing(system: str, h2d: float) -> RecordedRun:
    """A run of half the published graph."""
    counted = {
        "tier/h2d_bytes": h2d,
        "comm/bytes_activations": 8e9,
        "comm/rounds_activations": 10.0,
        "work/vertices_layer1": 5.0,
    }
    run = run_of(system, 1, workers=4, **counted, **{"time/h2d_s": 1.0, "time/d2h_s": 1.0, "time/comm_s": 1.0})
    return replace(
        run,
        config={**run.config, "dataset": {"scale": 0.5}},
        provenance={**run.provenance, "graph": {"num_features": 2, "num_classes": 2}},
    )


def test_crossings_and_collectives_are_estimated_from_their_bytes() -> None:
    """HongTu's server: 31.5 GB/s to the host, 200 GB/s between GPUs, 30 us an exchange."""
    check = check_of(value="[time/h2d_s] + [time/d2h_s] + [time/comm_s]", hardware="a100x4_nvlink")
    runs = [crossing("slow", 63e9), crossing("fast", 31.5e9)]
    found = outcome(claim_of(check, hardware=True), {"s": runs})
    assert [one.value for one in found.measured] == [1]
    collectives = 2 * 8e9 / 4 / 200e9 + 10 * 0.00003
    assert [one.value for one in found.estimated] == [pytest.approx((1 + collectives) / (0.5 + collectives))]


def test_an_estimate_without_the_cost_that_the_claim_is_about_decides_nothing() -> None:
    """It is shown with the reason."""
    runs = [crossing("slow", 126e9), crossing("fast", 31.5e9)]
    check = check_of(value="[time/h2d_s]", hardware="a100x4_nvlink")
    assert outcome(claim_of(check, hardware=True), {"s": runs}).verdict == "only estimated: exceeds"
    found = outcome(claim_of(replace(check, unpriced="no link to other sockets"), hardware=True), {"s": runs})
    assert (found.verdict, [one.value for one in found.estimated]) == ("not decidable here", [4])
    (row,) = make_table([found]).rows
    assert row[5].startswith("4 ") and row[9] == "no link to other sockets a reason a note"


def test_where_leaves_out_and_take_chooses() -> None:
    runs = [run_of("slow", 6), run_of("fast", 3), run_of("slow", 8, graph="b"), run_of("fast", 2, graph="b")]
    found = outcome(claim_of(check_of(where={"dataset.name": ("b",)})), {"s": runs}).measured
    assert [one.value for one in found] == [4]
    every = outcome(claim_of(check_of()), {"s": runs}).measured
    assert [[one.value for one in taken(every, take)] for take in ("greatest", "least", "mean", "each")] == [
        [4],
        [2],
        [3],
        [2, 4],
    ]


def test_a_value_needs_one_side() -> None:
    check = check_of(of={"system": ("slow",)}, over={})
    (one,) = outcome(claim_of(check, Expects("value", 6, 6, None, "lower")), {"s": [run_of("slow", 6)]}).measured
    assert (one.place, one.value) == ("slow", 6)


def test_without_runs_or_a_check() -> None:
    assert outcome(claim_of(check_of()), {}).verdict == "not run"
    assert outcome(claim_of(None), {}).verdict == "not checked"


def test_the_page() -> None:
    claims = [claim_of(check_of()), claim_of(None)]
    runs = [run_of("slow", 6), run_of("fast", 3), run_of("slow", 8, graph="b"), run_of("fast", 5, graph="b")]
    table = make_table(evaluated(claims, {"s": runs}))
    first, second = table.rows
    assert first[3] == "1.5 to 2.5" and first[4] == "1.6 (b: slow over fast) to 2 (a: slow over fast), 2 pairs"
    assert first[6] == "holds" and second[6] == "not checked" and second[9] == "a reason a note" and first[8] == "–"
    assert "2 claims: 1 holds, 1 not checked." in table.caption and sweeps_of(claims) == ("s",)


def test_a_mechanism_takes_the_place_of_its_systems_runs_and_changes_no_verdict() -> None:
    mechanisms = {
        "faster": Mechanism(("fast",), ("m",), {"model.hidden": ("4",)}),
        "never run": Mechanism(("fast",), ("n",)),
    }
    claim = claim_of(check_of(mechanisms=mechanisms))
    runs = {"s": [run_of("slow", 6), run_of("fast", 3)], "m": [run_of("fast", 1), run_of("fast", 1, graph="b")]}
    found = outcome(claim, runs)
    assert found.verdict == outcome(claim_of(check_of()), runs).verdict == "holds"
    assert [one.value for one in found.measured] == [2]
    ((name, other),) = found.mechanisms.items()
    assert name == "faster" and [one.value for one in other.measured] == [6] and other.verdict == "exceeds"
    (row,) = make_table([found]).rows
    assert row[4] == "2 (slow over fast); **faster: 6 (slow over fast) (exceeds)**"
    assert sweeps_of([claim]) == ("s", "m", "n")


def test_runs_of_a_mechanism_have_its_options() -> None:
    claim = claim_of(check_of(mechanisms={"wide": Mechanism(("fast",), ("m",), {"model.hidden": ("8",)})}))
    assert not outcome(claim, {"s": [run_of("slow", 6)], "m": [run_of("fast", 1)]}).mechanisms


@pytest.mark.parametrize(
    ("expects", "text"),
    [
        (Expects("ratio", None, 4.4, 2.5, "higher"), "up to 4.4 (mean 2.5)"),
        (Expects("reduction_pct", 25, 71, None, "higher"), "25 to 71 %"),
        (Expects("value", 4, 4, 4, "lower"), "4"),
        (Expects("value", None, 1.5, None, "lower"), "at most 1.5"),
        (Expects("ratio", 1, None, None, "higher"), "at least 1"),
        (Expects("difference", None, None, 0, "lower"), "0"),
        (Expects("ratio", None, None, None, "higher"), "–"),
    ],
)
def test_published(expects: Expects, text: str) -> None:
    assert published_cell(expects) == text


@pytest.mark.parametrize("paper", claiming_papers())
def test_every_claim_can_be_evaluated(paper: str) -> None:
    assert all(one.verdict in ("not run", "not checked") for one in evaluated(claims_of(paper), {}))
