"""Seconds: which of them decide, and which are estimated."""

from __future__ import annotations

from dataclasses import replace

import pytest
from claim_runs import check_of, claim_of, run_of

from gnnexp.record.runs import RecordedRun
from gnnexp_papers.claim import Expects
from gnnexp_papers.evaluate import outcome
from gnnexp_papers.machines import cores_of, flaw_of_seconds, of_seconds
from gnnexp_papers.page import evaluated, make_table

NODE = {"host": "n1", "cpu": "A", "cores": 4, "gpus": (), "torch": "2"}


def pair(slow: float = 6, fast: float = 3, **more: object) -> list[RecordedRun]:
    return [run_of("slow", slow, **more), run_of("fast", fast, **more)]  # type: ignore[arg-type]


@pytest.mark.parametrize("slow", [6, 1, 60])
def test_without_a_profile_seconds_of_other_hardware_are_not_decidable(slow: float) -> None:
    """Whatever was measured: it is shown, and decides nothing."""
    found = outcome(claim_of(check_of(), hardware=True), {"s": pair(slow)})
    assert found.verdict == "not decidable here" and [one.value for one in found.measured] == [slow / 3]
    assert outcome(claim_of(check_of(), hardware=False), {"s": pair()}).verdict == "holds"


def test_a_profile_without_an_estimate_does_not_decide_either() -> None:
    """The planner knows no such seconds; the runs are not as many ranks as the machine has; they lack counts."""
    runs = [run_of(system, 1, workers=4, **{"time/negatives_s": 1.0}) for system in ("slow", "fast")]
    unknown = check_of(value="[time/negatives_s]", hardware="a100x4_nvlink")
    assert outcome(claim_of(unknown, hardware=True), {"s": runs}).verdict == "not decidable here"
    check = check_of(hardware="a100x4_nvlink")
    assert outcome(claim_of(check, hardware=True), {"s": pair(workers=3 * 4)}).verdict == "not decidable here"
    bare = [replace(run, provenance={}) for run in pair(workers=4)]
    assert outcome(claim_of(check, hardware=True), {"s": bare}).verdict == "not decidable here"
    assert outcome(claim_of(check, hardware=True), {"s": pair(workers=4)}).verdict.startswith("only estimated")


@pytest.mark.parametrize(
    ("expects", "take"),
    [(Expects("ratio", None, None, 2, "higher"), "mean"), (Expects("ratio", None, 2, 2.5, "higher"), "greatest")],
)
def test_a_mean_needs_all_pairs_there(expects: Expects, take: str) -> None:
    """Twelve ranks are more than the machine has: what is left is a mean of others."""
    check = check_of(hardware="a100x4_nvlink", take=take)
    runs = [*pair(workers=4), *pair(slow=7, workers=12)]
    found = outcome(claim_of(check, expects, hardware=True), {"s": runs})
    assert (len(found.measured), len(found.estimated)) == (2, 1) and found.verdict == "not decidable here"
    assert outcome(claim_of(check, expects, hardware=True), {"s": runs[:2]}).verdict.startswith("only estimated")
    best = replace(expects, low=1, high=2, mean=None)
    assert outcome(claim_of(check_of(hardware="a100x4_nvlink"), best, hardware=True), {"s": runs}).verdict.startswith(
        "only estimated"
    ), "each pair by itself is decided"


def test_bytes_against_a_machine_s_memory_need_no_seconds() -> None:
    claim = replace(claim_of(check_of(value="[memory/device_peak_bytes]"), hardware=True), kind="memory")
    runs = [
        run_of("slow", 1, **{"memory/device_peak_bytes": 4.0}),
        run_of("fast", 1, **{"memory/device_peak_bytes": 2.0}),
    ]
    assert outcome(claim, {"s": runs}).verdict == "holds"


@pytest.mark.parametrize(("workers", "cores", "decided"), [(4, 4, True), (4, 3, False), (1, 1, True), (4, 0, True)])
def test_seconds_of_more_ranks_than_cores_decide_nothing(workers: int, cores: int, decided: bool) -> None:
    """No cores: the record does not say how many."""
    runs = pair(workers=workers, cores=cores)
    found = outcome(claim_of(check_of()), {"s": runs})
    assert found.verdict == ("holds" if decided else "not decidable here")
    assert (flaw_of_seconds(found.measured[0]) == f"{workers} ranks on {cores} cores") is not decided
    counted = [replace(run, epochs=[{"work/edges": run.median("time/epoch_s")}]) for run in runs]
    by_count = claim_of(check_of(value="[work/edges]"), kind="count")
    assert outcome(by_count, {"s": counted}).verdict == "holds", "counts do not depend on cores"


@pytest.mark.parametrize(("cards", "decided"), [(("A100",) * 4, True), (("A100",), False)])
def test_seconds_of_ranks_that_share_a_gpu_decide_nothing(cards: tuple[str, ...], decided: bool) -> None:
    runs = pair(workers=4, cores=8, nodes=({**NODE, "gpus": cards},))
    found = outcome(claim_of(check_of()), {"s": runs})
    assert found.verdict == ("holds" if decided else "not decidable here")
    assert flaw_of_seconds(found.measured[0]) == ("" if decided else "4 ranks on 1 GPUs")


@pytest.mark.parametrize(("cores", "decided"), [(8, True), (2, False)])
def test_an_estimate_that_is_made_of_measured_seconds_needs_sound_ones(cores: int, decided: bool) -> None:
    check = check_of(value="[time/negatives_s]", estimate="[time/negatives_s]", hardware="a100x4_nvlink")
    runs = [
        run_of(system, 1, workers=4, cores=cores, **{"time/negatives_s": value})
        for system, value in (("slow", 6.0), ("fast", 3.0))
    ]
    assert outcome(claim_of(check, hardware=True), {"s": runs}).verdict == (
        "only estimated: holds" if decided else "not decidable here"
    )


def test_one_crowded_side_is_enough() -> None:
    runs = [run_of("slow", 6, cores=1), run_of("fast", 3, cores=8, cpu="A")]
    assert outcome(claim_of(check_of()), {"s": runs}).verdict == "not decidable here"


def test_cores_are_those_of_all_nodes() -> None:
    run = run_of("slow", 1, workers=8, cores=1, nodes=(NODE, NODE))
    assert cores_of(run) == 8 and cores_of(run_of("slow", 1, cores=3)) == 3


def test_sides_from_different_kinds_of_machine_are_not_compared_in_seconds() -> None:
    runs = [run_of("slow", 6, cpu="A"), run_of("fast", 3, cpu="B")]
    found = outcome(claim_of(check_of()), {"s": runs})
    assert found.verdict == "not decidable here"
    assert flaw_of_seconds(found.measured[0]).startswith("different kinds of machine: 64 cores of A")
    equal = [run_of("slow", 6, nodes=(NODE,)), run_of("fast", 3, nodes=({**NODE, "host": "n2"},))]
    assert outcome(claim_of(check_of()), {"s": equal}).verdict == "holds", "another node of the same kind"
    several = [
        run_of(system, 6 / number, cpu="AB"[number - 1], seed=seed, shape=f"s{number}")
        for number in (1, 2)
        for seed, system in enumerate(("slow", "fast"))
    ]
    assert not any(map(flaw_of_seconds, outcome(claim_of(check_of(alike=("dataset.shape",))), {"s": several}).measured))


def test_growth_looks_at_the_machines_of_all_steps() -> None:
    runs = [
        run_of(system, value, workers=workers, cpu=cpu)
        for system, workers, value, cpu in (
            ("slow", 2, 6, "A"),
            ("slow", 4, 12, "B"),
            ("fast", 2, 3, "A"),
            ("fast", 4, 3, "A"),
        )
    ]
    check = check_of(take="growth", along="hardware.workers")
    assert outcome(claim_of(check), {"s": runs}).verdict == "not decidable here"


def test_the_page_leaves_such_seconds_out_and_says_why() -> None:
    runs = [*pair(workers=4, cores=2), *pair(slow=12, workers=2, cores=2)]
    (row,) = make_table(evaluated([claim_of(check_of())], {"s": runs})).rows
    assert row[4] == "4 (workers=2: slow over fast) (4 ranks on 2 cores)"
    (row,) = make_table(evaluated([claim_of(check_of())], {"s": runs[:2]})).rows
    assert row[4] == "– (4 ranks on 2 cores)" and row[6] == "not decidable here"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("100 * [time/sample_s] / [time/epoch_s]", True),
        ("[quality/seconds]", True),
        ("[paradigm/setup_s]", True),
        ("[work/edges_computed]", False),
        ("[comm/rounds_gradients]", False),
        ("[summary/acc/test]", False),
    ],
)
def test_what_is_of_seconds(value: str, seconds: bool) -> None:
    assert of_seconds(value) is seconds


def test_an_estimate_may_be_of_what_the_paper_prints() -> None:
    """HongTu's Table 9 prints 359.6 s for 100 epochs on it-2004: 0.0036 s of set-up at a thousandth are 1 %."""
    run = replace(run_of("hongtu", 9, workers=4, shape="it2004_like", scale=0.001), facts={"setup_s": 0.003596})
    check = check_of(
        of={"system": ("hongtu",)},
        over={},
        value="[paradigm/setup_s] / [time/epoch_s]",
        estimate="100 * [paradigm/setup_s] * [full] / [published/epochs_100_s]",
        printed={"source": "Table 9", "system": "hongtu", "quantity": "epochs_100_s"},
        hardware="a100x4_nvlink",
    )
    found = outcome(
        claim_of(check, Expects("value", None, 1.5, None, "lower"), hardware=True, paper="hongtu"), {"s": [run]}
    )
    assert [one.value for one in found.estimated] == [pytest.approx(1.0)]
    assert found.verdict == "only estimated: holds"
