"""Systems compared pair by pair: by hand for shares, times and bytes; runs without a partner; times not interleaved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from figure_runs import figure_run

from gnnexp.cli.page import verdicts_of
from gnnexp.errors import ConfigError
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.comparison import MeasuredColumn, chosen_columns
from gnnexp.reports.page.page import NamedTable
from gnnexp.reports.paired.fastest import answer_table, setting_answers
from gnnexp.reports.paired.pairs import match_runs
from gnnexp.reports.paired.statistics import Verdict
from gnnexp.reports.paired.verdicts import Margins, PairedResult, paired_results, paired_table
from gnnexp.reports.tables.groups import group_runs

COLUMNS = {"test %": "acc/test", "epoch s": "time/epoch_s", "features MB": "comm/bytes_features"}


def run_of(
    system: str, seed: int, epoch_s: float = 1.0, acc: float = 0.8, order: int | None = None, **metrics: float
) -> RecordedRun:
    """A run that began in minute `order`; without it, the runs of one seed come before those of the next."""
    minute = order if order is not None else 2 * seed + (system != "dgl")
    run = figure_run(
        system, epoch_s, seed=seed, metrics={f"comm/bytes_{name}": value for name, value in metrics.items()}
    )
    return replace(
        run, summary={"acc/test": acc}, provenance={"date": f"2026-01-01T00:{minute:02d}", "dataset_key": "k"}
    )


def compared(
    runs: Sequence[RecordedRun],
    columns: Mapping[str, str] | None = None,
    keys: Sequence[str] = ("system",),
    margins: Margins | None = None,
) -> dict[tuple[str, str], PairedResult]:
    """The results by the rival's label and the column's header."""
    found = paired_results(
        group_runs(runs, keys), keys, chosen_columns(columns or COLUMNS), "dgl", margins or Margins()
    )
    return {(" ".join(result.rival.labels), result.column.header): result for result in found}


def test_a_share_is_compared_in_points_and_a_time_by_its_ratio() -> None:
    ours = [run_of("dgl", seed, 2.0 + seed, 0.80 + 0.05 * seed) for seed in range(4)]
    theirs = [run_of("p3", seed, 1.0 + 0.5 * seed, 0.79 + 0.05 * seed + 0.0001 * seed) for seed in range(4)]
    found = compared([*ours, *theirs])
    share, time = found["p3", "test %"], found["p3", "epoch s"]
    assert share.difference.differences == pytest.approx((-1.0, -0.99, -0.98, -0.97))
    assert share.verdict is Verdict.DIFFERS and share.text == "differs" and not share.difference.is_ratio
    assert time.estimate == pytest.approx(0.5) and time.interval == pytest.approx((0.5, 0.5))
    assert time.verdict is Verdict.DIFFERS
    assert ("p3", "features MB") not in found, "neither sent any"


def test_within_the_margin_they_are_equal() -> None:
    ours = [run_of("dgl", seed, 1.0, 0.8) for seed in range(3)]
    theirs = [run_of("p3", seed, 1.004 + 0.001 * seed, 0.801 + 0.001 * seed) for seed in range(3)]
    found = compared([*ours, *theirs])
    assert found["p3", "epoch s"].text == "equal within 1 %"
    assert found["p3", "test %"].text == "equal within 0.5 points"
    narrow = compared([*ours, *theirs], margins=Margins(0.1, 0.01))
    assert narrow["p3", "epoch s"].verdict is Verdict.DIFFERS and narrow["p3", "test %"].verdict is Verdict.UNDECIDED
    assert found["p3", "test %"].column.header == "test %"
    same = compared([*ours, *(replace(run, config={**run.config, "system": "p3"}) for run in ours)])
    assert same["p3", "test %"].text == "identical in 3 pairs"


def test_a_share_that_is_not_in_percent_has_a_margin_of_a_hundredth() -> None:
    ours = [run_of("dgl", seed, acc=0.8) for seed in range(3)]
    theirs = [run_of("p3", seed, acc=0.803 + 0.0001 * seed) for seed in range(3)]
    assert compared([*ours, *theirs], {"test": "acc/test"})["p3", "test"].text == "equal within 0.005"


def test_undecided_says_how_many_seeds_would_decide() -> None:
    ours = [run_of("dgl", seed, acc=0.8) for seed in range(3)]
    theirs = [run_of("p3", seed, acc=0.8 + change) for seed, change in enumerate((0.05, -0.04, 0.02))]
    result = compared([*ours, *theirs])["p3", "test %"]
    more = result.difference.more_pairs()
    assert more is not None and result.text == f"undecided: about {more} more seeds would decide"
    (pair,) = [compared([ours[0], theirs[0]])["p3", "test %"]]
    assert pair.text == "undecided: 1 pair; 3 may decide" and math.isnan(pair.interval[0])


def test_times_that_were_not_interleaved_have_a_ratio_and_no_verdict() -> None:
    ours = [run_of("dgl", seed, 2.0, order=seed) for seed in range(3)]
    theirs = [run_of("p3", seed, 1.0, 0.7, order=10 + seed) for seed in range(3)]
    found = compared([*ours, *theirs])
    time = found["p3", "epoch s"]
    assert time.estimate == pytest.approx(0.5) and time.verdict is None
    assert time.text == "no verdict: runs were not interleaved"
    assert found["p3", "test %"].verdict is Verdict.DIFFERS, "accuracy does not depend on when it was measured"
    table = paired_table([*found.values()], ("system",), "dgl")
    assert "Seconds have no verdict" in table.caption
    undated = [replace(run, provenance={"dataset_key": "k"}) for run in [*ours, *theirs]]
    assert not match_runs(undated[:3], undated[3:]).interleaved


def test_runs_without_a_partner_are_named_and_not_averaged() -> None:
    ours = [run_of("dgl", seed, acc=0.8) for seed in range(3)]
    theirs = [run_of("p3", seed, acc=0.7) for seed in (1, 2, 7)]
    other_split = replace(run_of("p3", 0), provenance={"date": "2026", "dataset_key": "another"})
    found = compared([*ours, *theirs, other_split])
    result = found["p3", "test %"]
    assert len(result.difference.differences) == 2
    assert sorted(run.value("seed") for run in result.pairs.alone) == ["0", "0", "7"]
    caption = paired_table([*found.values()], ("system",), "dgl").caption
    assert "Without a partner, not compared: dgl cora seed 0, p3 cora seed 7, p3 cora seed 0." in caption


def test_a_run_made_again_is_paired_in_order() -> None:
    ours = [run_of("dgl", 0, 1.0, order=0), run_of("dgl", 0, 2.0, order=2)]
    theirs = [run_of("p3", 0, 4.0, order=3), run_of("p3", 0, 3.0, order=1)]
    pairs = match_runs(ours, theirs)
    assert [(a.median("time/epoch_s"), b.median("time/epoch_s")) for a, b in pairs.pairs] == [(1.0, 3.0), (2.0, 4.0)]
    assert pairs.interleaved and not pairs.alone


def test_bytes_that_only_one_of_them_sends_have_no_ratio() -> None:
    ours = [run_of("dgl", seed, features=0.0) for seed in range(3)]
    theirs = [run_of("p3", seed, features=5e6) for seed in range(3)]
    result = compared([*ours, *theirs])["p3", "features MB"]
    assert result.text == "differs: only one of the two has any" and not result.difference.differences


def test_labels_that_belong_to_a_system_do_not_part_the_rows() -> None:
    def on(system: str, workers: int, seed: int) -> RecordedRun:
        run = run_of(system, seed, 1.0 / workers)
        config = {**run.config, "hardware": {"workers": workers}, "sampler": {"name": f"of_{system}"}}
        return replace(run, config=config)

    runs = [on(system, workers, seed) for seed in range(3) for system in ("dgl", "p3") for workers in (1, 2)]
    keys = ("system", "sampler", "hardware.workers")
    found = compared(runs, keys=keys)
    rows = {name for name, _ in found}
    assert rows == {"p3 of_p3 1", "p3 of_p3 2"}
    assert all(result.against.labels[2] == result.rival.labels[2] for result in found.values())


def test_more_than_three_rivals_are_judged_more_strictly() -> None:
    ours = [run_of("dgl", seed) for seed in range(3)]
    rivals = [run_of(f"r{number}", seed, 1.0 + number + 0.1 * seed) for seed in range(3) for number in range(4)]
    found = compared([*ours, *rivals], {"epoch s": "time/epoch_s"})
    assert sorted(result.level for result in found.values())[0] == pytest.approx(0.05 / 4)
    assert "corrected for their number (Holm)" in paired_table([*found.values()], ("system",), "dgl").caption


@pytest.mark.parametrize(
    ("keys", "against", "said"), [(("dataset", "seed"), "dgl", "not by their system"), (("system",), "dgx", "dgl")]
)
def test_a_rival_that_is_none(keys: tuple[str, ...], against: str, said: str) -> None:
    runs = [run_of("dgl", 0), run_of("p3", 0)]
    with pytest.raises(ConfigError, match=said):
        paired_results(group_runs(runs, keys), keys, chosen_columns(COLUMNS), against, Margins())


def test_one_system_only_has_no_rival() -> None:
    runs = [run_of("dgl", seed) for seed in range(3)]
    assert compared(runs) == {}
    assert "No row has the same other labels" in paired_table([], ("system",), "dgl").caption


def test_a_value_that_is_missing_takes_no_part() -> None:
    ours = [run_of("dgl", seed) for seed in range(4)]
    theirs = [run_of("p3", seed, math.nan if seed == 2 else 2.0) for seed in range(4)]
    column = MeasuredColumn("epoch s", lambda run: run.median("time/epoch_s"), ".4g", "time/epoch_s")
    (result,) = paired_results(group_runs([*ours, *theirs], ("system",)), ("system",), [column], "dgl", Margins())
    assert result.difference.differences == pytest.approx((math.log(2),) * 3)


def test_the_dashboard_gets_the_verdicts_in_short() -> None:
    ours = [run_of("dgl", seed, 2.0 + seed) for seed in range(3)]
    theirs = [run_of("p3", seed, 1.0 + 0.5 * seed) for seed in range(3)]
    groups, keys = group_runs([*ours, *theirs], ("system",)), ("system",)
    answer = answer_table(setting_answers(groups, keys, Margins()), groups, keys)
    verdicts = paired_table([*compared([*ours, *theirs]).values()], keys, "dgl")
    tables = [NamedTable("Answer", answer, 0), NamedTable("Verdicts", verdicts), NamedTable("Comparison", answer)]
    assert verdicts_of(tables) == {
        "fastest": "p3",
        "verdict p3 test %": "difference 0 (0 to 0): identical in 3 pairs",
        "verdict p3 epoch s": "ratio 0.500 (0.500 to 0.500): differs",
    }
