"""Balance: what chance alone gives, and what does not differ from it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest
from claim_runs import check_of, claim_of, run_of

from gnnexp.record.runs import RecordedRun
from gnnexp_papers.chance import Chance, chance_of, dealt, is_of_balance
from gnnexp_papers.claim import Expects
from gnnexp_papers.evaluate import outcome
from gnnexp_papers.page import evaluated, make_table

LOAD = "[imbalance/edges_layer1]"
AT_LEAST = Expects("ratio", 1.0, None, None, "higher")
EVEN = Expects("value", 1.0, 1.0, None, "lower")


def batches(system: str, load: float, targets: int = 16, steps: int = 41, seed: int = 0) -> RecordedRun:
    """On 4 ranks, two epochs after the first."""
    run = run_of(
        system,
        1,
        seed,
        workers=4,
        sizes={"num_train": targets * steps, "num_nodes": 10_000},
        **{"imbalance/edges_layer1": load},
    )
    return replace(run, config={**run.config, "train": {"batch_size": targets}})


def whole(load: float, vertices: int = 4659, ranks: int = 16) -> RecordedRun:
    run = run_of(
        "slow", 1, workers=ranks, sizes={"num_train": 10, "num_nodes": vertices}, **{"imbalance/edges_layer1": load}
    )
    return replace(run, config={**run.config, "train": {"batch_size": None}})


@pytest.mark.parametrize(("targets", "ranks"), [(3, 2), (4, 3), (6, 4)])
def test_chance_is_the_mean_over_all_ways_to_deal(targets: int, ranks: int) -> None:
    ways = [
        max(way.count(rank) for rank in range(ranks)) * ranks / targets for way in product(range(ranks), repeat=targets)
    ]
    mean, deviation = dealt(targets, ranks)
    assert mean == pytest.approx(sum(ways) / len(ways), rel=0.02)
    assert deviation == pytest.approx(
        math.sqrt(sum((way - sum(ways) / len(ways)) ** 2 for way in ways) / len(ways)), rel=0.05
    )


def test_sixteen_targets_on_four_ranks_are_uneven_by_chance() -> None:
    """The review of GSplit's Figure 5 has 1.54."""
    chance = chance_of(batches("slow", 1.4))
    assert (chance.targets, chance.ranks, chance.batches) == (16, 4, 82)
    assert chance.mean == pytest.approx(1.54, abs=0.01)
    assert chance.half == pytest.approx(1.96 * dealt(16, 4)[1] / math.sqrt(82))


def test_the_full_graph_is_one_batch_of_all_vertices() -> None:
    chance = chance_of(whole(1.17))
    assert (chance.targets, chance.ranks, chance.batches) == (4659, 16, 1) and 1.08 < chance.mean < 1.13


def test_fewer_training_vertices_than_a_batch() -> None:
    run = batches("slow", 1.4)
    sizes = {**run.provenance["graph"], "num_train": 5}
    assert chance_of(replace(run, provenance={**run.provenance, "graph": sizes})).targets == 5


@pytest.mark.parametrize(
    ("better", "verdict"), [(1.392, "not decided"), (1.36, "not decided"), (1.55, "holds"), (1.2, "does not hold")]
)
def test_a_difference_of_loads_that_chance_makes_is_not_decided(better: float, verdict: str) -> None:
    """GSplit's 1.376 against Edge's 1.392, one seed, a tolerance of nothing: the draw of 82 batches spreads more."""
    claim = claim_of(check_of(value=LOAD, tolerance=0), AT_LEAST, kind="count")
    assert outcome(claim, {"s": [batches("slow", better), batches("fast", 1.376)]}).verdict == verdict


def test_seeds_come_before_chance() -> None:
    runs = [
        batches(system, load, seed=seed)
        for system, loads in (("slow", (1.392, 1.393)), ("fast", (1.376, 1.376)))
        for seed, load in enumerate(loads)
    ]
    claim = claim_of(check_of(value=LOAD, tolerance=0), AT_LEAST, kind="count")
    assert outcome(claim, {"s": runs}).verdict == "holds"


def test_a_difference_in_points_is_told_from_chance() -> None:
    """`Within 2 %` of loads whose draw alone spreads by 8 points says nothing."""
    within = Expects("difference", -2, 2, None, "lower")
    check = check_of(value=f"100 * {LOAD}", tolerance=0, within=2)
    claim = claim_of(check, within, kind="count")
    assert outcome(claim, {"s": [batches("slow", 1.38), batches("fast", 1.376)]}).verdict == "not decided"
    many = [batches(system, load, targets=4000, steps=400) for system, load in (("slow", 1.38), ("fast", 1.376))]
    assert outcome(claim, {"s": many}).verdict == "holds"


def test_a_balance_that_chance_gives_is_not_decided() -> None:
    claim = claim_of(check_of(value=LOAD, over={}, tolerance=0.2), EVEN, kind="count")
    assert outcome(claim, {"s": [whole(1.11)]}).verdict == "not decided"
    assert outcome(claim, {"s": [whole(1.0)]}).verdict == "holds", "more even than chance"
    assert outcome(claim, {"s": [whole(1.3)]}).verdict == "does not hold"
    exact = claim_of(check_of(value=LOAD, over={}, tolerance=0), EVEN, kind="count")
    assert outcome(exact, {"s": [whole(1.11)]}).verdict == "does not hold", "it is not 1, whatever chance gives"


def test_the_page_prints_chance() -> None:
    claim = claim_of(check_of(value=LOAD, tolerance=0), AT_LEAST, kind="count")
    (row,) = make_table(evaluated([claim], {"s": [batches("slow", 1.392), batches("fast", 1.376)]})).rows
    assert row[4].startswith("1.01 ± 0.05") and "chance alone: 1.54 ± 0.0" in row[4]
    assert row[4].endswith("(16 targets on 4 ranks)")
    assert str(Chance(16, 4, 82, 1.5421, 0.0591)) == "chance alone: 1.54 ± 0.059 (16 targets on 4 ranks)"


def test_what_is_of_balance() -> None:
    assert is_of_balance("100 * [imbalance/edges_computed]") and not is_of_balance("[work/edges_computed]")
