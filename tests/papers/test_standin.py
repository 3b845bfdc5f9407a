"""Stand-ins: their counts and the paper's, and what they may decide; numbers that a paper prints for every pair."""

from __future__ import annotations

from dataclasses import replace

import pytest
from claim_runs import check_of, claim_of, run_of

from gnnexp.record.runs import RecordedRun
from gnnexp_papers.claim import Cells, Check, Claim, Count, Expects
from gnnexp_papers.evaluate import outcome
from gnnexp_papers.page import evaluated, make_table, sweeps_of

# GSplit's Table 1: 926M edges of micro-batches on Orkut, 452M on Papers100M.
EDGES = Count(
    "edges micro",
    "[work/edges_computed] * [full] * [steps]",
    {"source": "Table 1", "quantity": "edges_computed", "batches": "micro"},
    {"system": ("slow",)},
)
COUNTED = check_of(value="[work/edges_computed]", alike=("dataset.shape",), counts=(EDGES,))


def counted(system: str, edges: float, shape: str = "orkut_like", scale: float = 0.5) -> RecordedRun:
    return run_of(system, 1, shape=shape, scale=scale, **{"work/edges_computed": edges})


def gsplit(check: Check, expects: Expects | None = None) -> Claim:
    return claim_of(check, expects or Expects("ratio", 1.5, 2.5, None, "higher"), kind="count", paper="gsplit")


def pair(edges: float, ratio: float = 2.0, shape: str = "orkut_like") -> list[RecordedRun]:
    return [counted("slow", edges, shape), counted("fast", edges / ratio, shape)]


@pytest.mark.parametrize(
    ("off", "verdict"),
    [
        (1.0, "holds"),
        (1.45, "holds"),
        (1 / 1.45, "holds"),
        (1.55, "not decidable on this graph"),
        (1 / 1.55, "not decidable on this graph"),
    ],
)
def test_a_stand_in_that_is_too_far_off_decides_nothing(off: float, verdict: str) -> None:
    """At half the published size, and as many steps: an epoch of the full graph counts twice as much."""
    found = outcome(gsplit(COUNTED), {"s": pair(926e6 / 2 * off)})
    assert found.verdict == verdict
    assert [(one.graph, one.name, one.papers) for one in found.counts] == [("orkut", "edges micro", 926e6)]
    assert found.counts[0].ours == pytest.approx(926e6 * off)


def test_steps_that_were_left_out_count() -> None:
    """GSplit's artifact trains a tenth of Orkut; a twentieth has half of its steps."""
    runs = [
        replace(
            run, config={**run.config, "dataset": {**run.config["dataset"], "train": 0.05}, "train": {"batch_size": 8}}
        )
        for run in pair(926e6 / 4)
    ]
    assert outcome(gsplit(COUNTED), {"s": runs}).counts[0].ours == pytest.approx(926e6)


def test_the_page_names_the_counts() -> None:
    (row,) = make_table(evaluated([gsplit(COUNTED)], {"s": pair(926e6)})).rows
    assert row[8] == "orkut: edges micro 1.85B / 926M (2x off)" and row[6] == "not decidable on this graph"


def test_a_like_graph_may_refute_and_not_confirm() -> None:
    """Orkut's stand-in counts right, Papers100M's ten times too many; the claim is of both."""

    def found(ratio: float, take: str = "each") -> str:
        runs = [*pair(926e6 / 2, ratio), *pair(452e6 * 5, 2.0, "papers_like")]
        return outcome(gsplit(replace(COUNTED, take=take)), {"s": runs}).verdict

    assert found(2.0) == "not decidable on this graph" and found(3.0) == "not decidable on this graph"
    assert found(0.9) == "does not hold" and found(1.1) == "too weak"
    assert found(1.3, "greatest") == "in direction", "the best of the graphs that count"
    assert found(2.0, "mean") == found(0.9, "mean") == "not decidable on this graph", "a mean needs all of them"


def test_real_graphs_are_never_unlike() -> None:
    runs = [replace(run, config={**run.config, "dataset": {"name": "orkut"}}) for run in pair(1.0)]
    assert outcome(gsplit(COUNTED), {"s": runs}).verdict == "holds"


def test_counts_may_be_of_another_sweep() -> None:
    check = replace(COUNTED, counts=(replace(EDGES, sweeps=("t",)),))
    far = {"s": pair(926e6 / 2), "t": [counted("slow", 926e6)]}
    assert sweeps_of([gsplit(check)]) == ("s", "t")
    assert outcome(gsplit(check), far).verdict == "not decidable on this graph"
    near = {"s": pair(926e6), "t": [counted("slow", 926e6 / 2)]}
    assert outcome(gsplit(check), near).verdict == "holds"


def test_a_stand_in_that_nobody_has_counted_decides_nothing() -> None:
    """The sweep that counts was not run, or has failed: nothing says that the graph is like the paper's."""
    check = replace(COUNTED, counts=(replace(EDGES, sweeps=("t",)),))
    failed = [replace(counted("slow", 926e6 / 2), status="failed")]
    for runs in ({"s": pair(926e6 / 2)}, {"s": pair(926e6 / 2), "t": failed}):
        assert outcome(gsplit(check), runs).verdict == "not decidable on this graph"
        (row,) = make_table(evaluated([gsplit(check)], runs)).rows
        assert row[8] == "orkut: edges micro not counted"
    unprinted = replace(EDGES, cell={**EDGES.cell, "batches": "none"}, sweeps=("t",))
    assert outcome(gsplit(replace(COUNTED, counts=(unprinted,))), {"s": pair(926e6 / 2)}).verdict == "holds"


def test_of_seconds_the_machine_comes_first() -> None:
    claim = replace(gsplit(COUNTED), kind="time", depends_on_hardware=True)
    assert outcome(claim, {"s": pair(926e6)}).verdict == "not decidable here"


def test_what_a_stand_in_lacks_is_said() -> None:
    claim = gsplit(replace(COUNTED, unlike="Its relations are random."))
    assert outcome(claim, {"s": pair(926e6 / 2)}).verdict == "not decidable on this graph"
    (row,) = make_table(evaluated([claim], {"s": pair(926e6 / 2)})).rows
    assert row[9].startswith("Its relations are random. a reason")


def test_numbers_without_a_verdict_are_shown_on_any_graph() -> None:
    nothing = Expects("ratio", None, None, None, "higher")
    assert outcome(gsplit(COUNTED, nothing), {"s": pair(1.0)}).verdict == "shown"


# Table 1's ratios of edges: 1.2 on Orkut, 1.2 on Papers100M, 1.0 on Friendster.
BY_CELL = replace(
    COUNTED,
    counts=(),
    cells=Cells({"source": "Table 1", "quantity": "redundancy_ratio", "of": "edges_computed"}, by={}),
)
RANGE = Expects("ratio", 1.0, 1.2, None, "higher")


@pytest.mark.parametrize(
    ("orkut", "papers", "verdict"),
    [
        (1.2, 1.2, "holds"),
        (1.2, 1.0, "does not hold"),
        (1.2, 1.01, "too weak"),
        (1.07, 1.2, "in direction"),
        (1.5, 1.2, "exceeds"),
    ],
)
def test_every_pair_is_compared_with_its_own_cell(orkut: float, papers: float, verdict: str) -> None:
    """1.0 on Papers100M is in the range of the three graphs, and not what the paper prints of it."""
    runs = [*pair(1.0, orkut), *pair(1.0, papers, "papers_like")]
    assert outcome(gsplit(BY_CELL, RANGE), {"s": runs}).verdict == verdict
    greatest = replace(BY_CELL, take="greatest")
    assert outcome(gsplit(greatest, RANGE), {"s": runs}).verdict == verdict, "not the best of them"


def test_the_page_prints_the_cells() -> None:
    runs = [*pair(1.0, 1.3), *pair(1.0, 1.1, "papers_like")]
    (row,) = make_table(evaluated([gsplit(BY_CELL, RANGE)], {"s": runs})).rows
    assert row[4] == "orkut_like: slow over fast 1.3 [1.2]; papers_like: slow over fast 1.1 [1.2]"


def test_a_printed_mean_has_to_agree_too() -> None:
    """Of an "up to 2.5, 1.4 on average" the best pair alone says nothing."""
    expects = Expects("ratio", None, 2.5, 1.4, "higher")
    check = replace(COUNTED, counts=(), take="greatest")
    runs = [*pair(1.0, 2.5), *pair(1.0, 1.02, "papers_like"), *pair(1.0, 1.02, "friendster_like")]
    assert outcome(gsplit(check, replace(expects, mean=1.3)), {"s": runs}).verdict == "exceeds", "a mean of 1.51"
    assert outcome(gsplit(check, expects), {"s": runs}).verdict == "holds"
    assert outcome(gsplit(check, replace(expects, mean=2.4)), {"s": runs}).verdict == "in direction"


def test_a_quotient_of_two_cells() -> None:
    """SDT-GNN's Table IV: DistDGL's 1.855 s on flickr over 1.514 s."""
    cells = Cells(
        {"source": "Table IV", "system": "distdgl", "quantity": "epoch_s"},
        {"source": "Table IV", "system": "sdt_gnn", "quantity": "epoch_s"},
        by={},
    )
    claim = replace(gsplit(replace(BY_CELL, cells=cells), RANGE), paper="sdt_gnn")
    (row,) = make_table(evaluated([claim], {"s": pair(1.0, 1.2, "flickr_like")})).rows
    assert row[4].endswith("1.2 [1.23]") and row[6] == "holds"
