"""The comparison table: medians after warm-up, runs grouped, every format with the same cells."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from run_on_disk import run_on_disk

from gnnexp.record.runs import RecordedRun
from gnnexp.reports.comparison import make_columns, make_table
from gnnexp.reports.tables.cells import TableCell
from gnnexp.reports.tables.data import csv_of, document_of
from gnnexp.reports.tables.groups import group_runs, row_keys
from gnnexp.reports.tables.markdown import markdown_of
from gnnexp.reports.tables.table import ReportTable
from gnnexp.reports.tables.terminal import terminal_table

FIELDS = ("mean", "half_width", "min", "max", "n")


def comparison(runs: Sequence[RecordedRun], *keys: str) -> ReportTable:
    return make_table(group_runs(runs, keys), keys)


def texts(table: ReportTable, row: int = 0) -> dict[str, str]:
    return dict(zip(table.header, table.texts[row], strict=True))


def cells(table: ReportTable, row: int = 0) -> dict[str, TableCell]:
    return dict(zip(table.header, table.rows[row], strict=True))


def test_seeds_share_a_row(tmp_path: Path) -> None:
    runs = [run_on_disk(tmp_path / f"{n}", seed=n, status="failed" if n == 2 else "finished") for n in range(3)]
    (group,) = group_runs(runs, ("system",))
    assert (len(group.runs), len(group.failed)) == (2, 1)
    table = make_table([group], ("system",))
    assert table.texts[0][-1] == "2 (+1 failed)"
    assert table.texts[0][1] == "73.00", "both have it" and table.rows[0][1].half_width == 0
    assert table.rows[0][-1].fields == {"finished": 2, "failed": 1, "verdict": "failed"}
    assert table.rows[0][1].fields == {"mean": 73, "half_width": 0, "min": 73, "max": 73, "n": 2}


def test_few_runs_show_their_range_and_many_an_interval(tmp_path: Path) -> None:
    """Accuracies are 70, 71, ... %: 0.5 is half of the distance between two of them."""
    runs = [run_on_disk(tmp_path / f"{n}", seed=n, epochs=n + 1) for n in range(5)]
    two, five = comparison(runs[:2], "system"), comparison(runs, "system")
    assert (texts(two)["acc/test %"], texts(five)["acc/test %"]) == ("70.50 (70.00 to 71.00)", "72.00 ± 1.96")
    assert cells(two)["acc/test %"].half_width == pytest.approx(12.7062 * 0.5, rel=1e-5)
    assert cells(five)["acc/test %"].half_width == pytest.approx(2.776445 * math.sqrt(2.5 / 5), rel=1e-5)
    few = "Over fewer than 5 runs: mean (least to greatest value), because a 95 % interval"
    many = "Over several runs: mean ± half the width of the 95 % interval (Student's t)."
    assert few in two.caption and many not in two.caption
    assert many in five.caption and few not in five.caption
    single = comparison(runs[:1], "system").caption
    assert few not in single and many not in single


def test_rows_say_in_which_hyper_parameters_they_differ(tmp_path: Path) -> None:
    runs = [run_on_disk(tmp_path / "a"), run_on_disk(tmp_path / "b", "dgl_reference")]
    for run, rate in zip(runs, (0.1, 0.5), strict=True):
        run.config["optimizer"]["lr"] = rate
    for keys, said in ((("system",), True), (("system", "optimizer.lr"), False)):
        assert ("hyper-parameters: optimizer.lr." in comparison(runs, *keys).caption) == said
    assert "hyper-parameters" not in comparison(runs[:1], "system").caption


def test_the_cells_are_the_records(tmp_path: Path) -> None:
    runs = [run_on_disk(tmp_path / "a"), run_on_disk(tmp_path / "b", "dgl_reference")]
    table = comparison(runs, *row_keys(runs))
    assert texts(table) == {
        "system": "dgl",
        "acc/test %": "73.00",
        "epoch s": "0.8000",
        "S s": "0.1000",
        "L s": "0.2000",
        "FB s": "0.4000",
        "sync s": "0.0500",
        "wait s": "0.0200",
        "features MB": "0",
        "gradients MB": "0.001",
        "runs": "1",
    }
    assert table.best == {(row, table.header.index(name)) for row in (0, 1) for name in ("acc/test %", "epoch s")}
    system, accuracy, seconds, *rest = table.texts[0]
    lines = [tuple(line.removeprefix("| ").removesuffix(" |").split(" | ")) for line in markdown_of(table).splitlines()]
    marked = (f"**{accuracy}**", f"**{seconds}**", *rest)
    assert [lines[0], *lines[2:4]] == [table.header, (system, *marked), ("dgl_reference", *marked)], "both are the best"
    assert "median of the 3 epochs after the first, which warms up and is left out" in table.caption
    assert terminal_table(table, 200, "x").row_count == 2


def test_the_data_are_the_records_in_full(tmp_path: Path) -> None:
    runs = [run_on_disk(tmp_path / "a"), run_on_disk(tmp_path / "b", "dgl_reference")]
    table = comparison(runs, *row_keys(runs))
    numbers = {
        "acc/test %": 73.0,
        "epoch s": 0.8,
        "S s": 0.1,
        "L s": 0.2,
        "FB s": 0.4,
        "sync s": 0.05,
        "wait s": 0.02,
        "features MB": 0.0,
        "gradients MB": 0.001,
    }
    row, other = csv.DictReader(io.StringIO(csv_of(table)))
    assert row == {
        "system": "dgl",
        **{
            f"{name} {field}": text
            for name, number in numbers.items()
            for field, text in zip(FIELDS, (repr(number), "", repr(number), repr(number), "1"), strict=True)
        },
        "runs finished": "1",
        "runs failed": "0",
        "runs verdict": "",
    }
    assert [*row] == [*other] and other == {**row, "system": "dgl_reference"}
    first = document_of(table)["rows"][0]
    assert {name: first[name]["mean"] for name in numbers} == numbers


def test_a_row_of_runs_that_failed_says_how_in_place_of_every_number(tmp_path: Path) -> None:
    fine, failed = run_on_disk(tmp_path / "a"), run_on_disk(tmp_path / "b", "p3", seed=4, status="failed")
    table = comparison([fine, replace(failed, kind="out of memory")], "system")
    assert {*table.texts[1][1:-1]} == {"OOM"} and table.texts[1][-1] == "0 (+1 OOM)"
    assert "Not in the numbers, because they did not finish: p3 digits seed 4 (out of memory)." in table.caption
    _, row = csv.DictReader(io.StringIO(csv_of(table)))
    assert (row["epoch s mean"], row["epoch s n"]) == ("", "0")
    assert (row["runs finished"], row["runs failed"], row["runs verdict"]) == ("0", "1", "OOM")


def test_a_run_without_a_value_that_others_have_is_named(tmp_path: Path) -> None:
    """A mean over fewer runs than the row has would be taken for one over all."""
    runs = [run_on_disk(tmp_path / f"{n}", seed=n) for n in range(2)]
    epochs = [{name: value for name, value in epoch.items() if name != "time/wait_s"} for epoch in runs[1].epochs]
    lacking = replace(runs[1], epochs=epochs, summary={"acc/test": math.nan})
    table = comparison([runs[0], lacking], "system")
    said = "Not in some numbers, because the value is missing or NaN: dgl digits seed 1 (no acc/test %, wait s)."
    assert said in table.caption
    assert [cells(table)[name].fields["n"] for name in ("acc/test %", "epoch s", "wait s")] == [1, 2, 1]
    assert "Not in some numbers" not in comparison(runs, "system").caption
    assert "Not in some numbers" not in comparison([lacking], "system").caption, "no run of the row has it"


def test_rows_say_that_their_runs_executed_different_code(tmp_path: Path) -> None:
    runs = [run_on_disk(tmp_path / f"{n}", seed=n) for n in range(2)]
    for run, digest in zip(runs, ("1", "2"), strict=True):
        run.provenance["code"] = {"own": {"mymodel": digest, "myparts": "3"}}
    said = "Some rows combine runs that differ in the code of mymodel."
    assert said in comparison(runs, "system").caption


def test_a_run_that_was_made_again_is_named(tmp_path: Path) -> None:
    """`--rerun` keeps the earlier run: the same seed twice is no second draw of the test metric."""
    runs = [run_on_disk(tmp_path / f"{place}", seed=seed) for place, seed in enumerate((0, 1, 1))]
    said = "1 of the runs repeats another run of the same row, seed included"
    assert said in comparison(runs, "system").caption
    assert "repeat" not in comparison(runs[:2], "system").caption


def test_negatives_are_shown_where_there_are_any(tmp_path: Path) -> None:
    run = run_on_disk(tmp_path / "a")
    times = {"time/negatives_s": 0.15, "comm/bytes_endpoints": 2_000_000}
    of_links = replace(run, config={**run.config, "system": "gsplit"}, epochs=[{**run.epochs[1], **times}])
    table = comparison([run, of_links], "system")
    shown = [texts(table, row) for row in range(2)]
    assert [(row["N s"], row["endpoints MB"]) for row in shown] == [("–", "0"), ("0.1500", "2.000")]
    assert not {"N s", "endpoints MB"} & {*comparison([run], "system").header}


def test_the_metric_that_chose_the_epoch_is_shown(tmp_path: Path) -> None:
    run = run_on_disk(tmp_path / "a")
    by_area = replace(
        run,
        config={**run.config, "task": {"metric": "roc_auc"}},
        summary={**run.summary, "roc_auc/val": 0.6, "roc_auc/test": 0.65},
    )
    assert by_area.best("test") == ("roc_auc/test", 0.65)
    assert texts(comparison([by_area], "system"))["roc_auc/test %"] == "65.00"
    mixed = comparison([run, by_area], "task.metric")
    assert mixed.header[:3] == ("task.metric", "metric", "test")
    assert [row[:3] for row in mixed.texts] == [("null", "acc %", "73.00"), ("roc_auc", "roc_auc %", "65.00")]
    assert [row[2].fields["mean"] for row in mixed.rows] == [73.0, 65.0]
    together = comparison([run, by_area], "system")
    assert together.texts[0][1:3] == ("acc %, roc_auc %", "– (several metrics)")
    assert together.rows[0][2].fields == {"mean": None, "half_width": None, "min": None, "max": None, "n": 0}


def test_a_metric_that_is_no_share_stands_as_it_is_beside_one_that_is(tmp_path: Path) -> None:
    run = run_on_disk(tmp_path / "a")
    of_numbers = replace(
        run, config={**run.config, "task": {"metric": "mse"}}, summary={"mse/val": 2.5, "mse/test": 1234.5}
    )
    failed = run_on_disk(tmp_path / "b", "p3", status="failed")
    table = comparison([run, of_numbers, failed], "system", "task.metric")
    assert [row[2:4] for row in table.texts] == [("acc %", "73"), ("mse", "1234"), ("–", "failed")]
    assert [row[3].fields["mean"] for row in table.rows] == [73.0, 1234.5, None]


def test_chosen_columns_have_their_unit(tmp_path: Path) -> None:
    runs = [run_on_disk(tmp_path / f"{n}", seed=n, epochs=n + 2) for n in range(2)]
    failed = run_on_disk(tmp_path / "f", "p3", status="failed")
    columns = {"epoch ms": "time/epoch_s", "best %": "acc/test", "gradients KB": "comm/bytes_gradients"}
    table = make_columns(group_runs([*runs, failed], ("system",)), ("system",), columns)
    assert table.header == ("system", *columns, "runs")
    assert table.texts == [("dgl", "800", "71.5 (71 to 72)", "1", "2"), ("p3", *["failed"] * 3, "0 (+1 failed)")]
    assert table.rows[0][2].half_width == pytest.approx(12.7062 * 0.5, rel=1e-5)
    assert "epoch ms: time/epoch_s; best %: acc/test; gradients KB: comm/bytes_gradients. Times" in table.caption


def test_a_target_that_no_run_reached_is_named(tmp_path: Path) -> None:
    runs = [run_on_disk(tmp_path / "a"), run_on_disk(tmp_path / "b", "p3")]
    groups = group_runs([replace(run, summary={"acc/val": 0.83, "acc/test": 0.73}) for run in runs], ("system",))
    assert "No run reached the target: dgl, p3." in make_table(groups, ("system",), 0.99).caption
    reached = make_table(groups, ("system",), 0.5)
    assert "target" not in reached.caption and "to val 0.5 s" in reached.header
