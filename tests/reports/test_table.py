"""Reports: medians after warm-up, runs grouped, every format with the same cells."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from run_folder import metrics_of, write_epochs, write_job, write_result

from gnnexp.errors import DataError
from gnnexp.record.runs import RecordedRun, find_runs, read_run
from gnnexp.reports.comparison import make_table
from gnnexp.reports.figures.drawing import BarPart, draw_stack, empty_figure, save_figure
from gnnexp.reports.figures.panels import Figure, Panel
from gnnexp.reports.figures.stacked import draw_stacked
from gnnexp.reports.metrics import interval_cell
from gnnexp.reports.tables.data import csv_of
from gnnexp.reports.tables.groups import RunGroup, group_runs, row_keys
from gnnexp.reports.tables.markdown import markdown_of
from gnnexp.reports.tables.table import ReportTable
from gnnexp.reports.tables.terminal import terminal_table


def make_run(
    folder: Path, system: str = "dgl", seed: int = 0, epochs: int = 4, status: str = "finished"
) -> RecordedRun:
    write_job(folder, uid=str(folder), run_key=f"{system}-{seed}", date=f"2026-01-01T00:00:0{seed}")
    job = json.loads((folder / "job.json").read_text())
    job["config"] |= {"system": system, "seed": seed}
    (folder / "job.json").write_text(json.dumps(job))
    write_epochs(folder, epochs)
    write_result(folder, status, "" if status == "finished" else "rank 0 failed")
    return read_run(folder)


def test_times_are_medians_of_the_epochs_after_the_first(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    assert run.median("time/epoch_s") == metrics_of(1)["time/epoch_s"], "the first epoch, ten times slower, is left out"
    assert make_run(tmp_path / "b", epochs=1).median("time/epoch_s") == metrics_of(0)["time/epoch_s"]
    assert math.isnan(run.median("time/no_such_s"))


def test_rows_are_what_differs(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", "dgl_reference")]
    assert row_keys(runs) == ("system",)
    assert row_keys(runs, ["seed", "model.hidden"]) == ("seed", "model.hidden")
    assert runs[0].value("dataset") == "digits" and runs[0].value("model.hidden") == "64"
    assert runs[0].value("train.batch_size") == "null"


def test_seeds_share_a_row(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"{n}", seed=n, status="failed" if n == 2 else "finished") for n in range(3)]
    (group,) = group_runs(runs, ("system",))
    assert (len(group.runs), len(group.failed)) == (2, 1)
    table = make_table([group], ("system",))
    assert table.rows[0][-1] == "2 (+1 failed)"
    assert table.rows[0][1] == "73.00 ± 0.00"


def test_rows_say_in_which_hyper_parameters_they_differ(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", "dgl_reference")]
    for run, rate in zip(runs, (0.1, 0.5), strict=True):
        run.config["optimizer"]["lr"] = rate
    for keys, said in ((("system",), True), (("system", "optimizer.lr"), False)):
        assert ("hyper-parameters: optimizer.lr." in make_table(group_runs(runs, keys), keys).caption) == said
    assert "hyper-parameters" not in make_table(group_runs(runs[:1], ("system",)), ("system",)).caption


def test_what_did_not_finish_says_how_it_ended(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", status="failed")
    for kind, word in (("interrupted", "interrupted"), ("out of memory", "OOM"), ("hang", "failed")):
        (group,) = group_runs([replace(run, kind=kind)], ("system",))
        assert group.verdict == word


def test_a_partitioner_that_partitioned_nothing_is_none(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    run.config["partitioner"] = {"name": "metis"}
    cut = replace(run, quality={"edge_cut": 0.1})
    assert [group.labels for group in group_runs([run, cut], ("partitioner",))] == [("none",), ("metis",)]
    assert row_keys([run, cut]) == ("partitioner",) and run.value("partitioner") == "metis"
    refused = replace(run, status="failed", provenance={**run.provenance, "partitioned": True})
    assert refused.label("partitioner") == "metis", "it would have been partitioned"


def printed(table: ReportTable, width: int) -> list[str]:
    """What stands between the lines of a table of `width` characters."""
    console = Console(width=width, file=io.StringIO())
    console.print(terminal_table(table, width))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= width
    return [cell.strip() for line in text.splitlines() for cell in re.split("[│┃]", line)]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 180])
@pytest.mark.parametrize(("columns", "rows"), [(2, 1), (13, 1), (13, 2), (20, 3)])
def test_numbers_stand_whole_where_there_is_room_for_them(width: int, columns: int, rows: int) -> None:
    cells = [[f"{row}{column}.1234 ± 0.0{column}" for column in range(columns)] for row in range(rows)]
    table = ReportTable(
        ("a long name", *(f"bytes {column}" for column in range(columns))),
        tuple(("word " * 20, *row) for row in cells),
        "",
    )
    seen = printed(table, width)
    if width >= min(columns * 22, 12 + rows * 22):  # as columns, or as lines
        assert {cell for row in cells for cell in row} <= {*seen}
    else:  # folded: no character is lost
        assert sum(len(cell.replace(" ", "")) for row in cells for cell in row) <= sum(map(len, seen))


def test_a_table_that_is_too_wide_is_cut_into_tables_with_the_same_labels() -> None:
    """12 rows of 17 columns at width 80 were columns of three letters."""
    header = ("system", "model", "dataset", "workers", *(f"time of {place} s" for place in range(13)))
    kinds = itertools.product(("gsplit", "distdgl", "dgl"), ("digits", "cora"), ("1", "2"))
    rows = tuple(
        (system, "sage", *more, *(f"{number + place / 8:.4f}" for place in range(13)))
        for number, (system, *more) in enumerate(kinds)
    )
    seen = printed(ReportTable(header, rows, "what it means"), 80)
    assert {cell for row in rows for place, cell in enumerate(row) if place != 1} <= {*seen}, "no cell is folded"
    assert seen[0] == "in all rows: model sage"
    assert seen.count("workers") == seen.count("dataset") == seen.count("distdgl") // 4 > 1
    assert seen.count("what it means") == 1


def test_the_cells_are_the_records(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", "dgl_reference")]
    keys = row_keys(runs)
    table = make_table(group_runs(runs, keys), keys)
    row = dict(zip(table.header, table.rows[0], strict=True))
    assert row == {
        "system": "dgl",
        "acc/test %": "73.00",
        "S s": "0.1000",
        "L s": "0.2000",
        "FB s": "0.4000",
        "sync s": "0.0500",
        "wait s": "0.0200",
        "epoch s": "0.8000",
        "features MB": "0",
        "gradients MB": "0.001",
        "runs": "1",
    }
    assert [tuple(line) for line in csv.reader(io.StringIO(csv_of(table)))] == [table.header, *table.rows]
    lines = markdown_of(table).splitlines()
    assert [tuple(line.strip("| ").split(" | ")) for line in (lines[0], *lines[2:4])] == [table.header, *table.rows]
    assert "median of the 3 epochs after the first, which warms up and is left out" in table.caption
    assert terminal_table(table, 200, "x").row_count == 2


def test_rows_say_that_their_runs_executed_different_code(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"{n}", seed=n) for n in range(2)]
    for run, digest in zip(runs, ("1", "2"), strict=True):
        run.provenance["code"] = {"own": {"mymodel": digest, "myparts": "3"}}
    table = make_table(group_runs(runs, ("system",)), ("system",))
    assert "Some rows combine runs that differ in the code of mymodel." in table.caption


def test_a_run_that_was_made_again_is_named(tmp_path: Path) -> None:
    """`--rerun` keeps the earlier run: the same seed twice is no second draw of the test metric."""
    runs = [make_run(tmp_path / f"{place}", seed=seed) for place, seed in enumerate((0, 1, 1))]
    said = "1 of the runs repeats another run of the same row, seed included"
    assert said in make_table(group_runs(runs, ("system",)), ("system",)).caption
    assert "repeat" not in make_table(group_runs(runs[:2], ("system",)), ("system",)).caption


def test_texts_of_records_are_no_markup_in_markdown() -> None:
    evil = "<script>alert(1)</script> [x](javascript:alert(1)) a|b\nc"
    text = ReportTable((evil, "n"), ((evil, "1"),), f"caption {evil}", f"heading {evil}").markdown()
    assert "<" not in text and "](" not in text
    heading, _, *table, _, caption = text.splitlines()
    assert heading.startswith("heading &lt;script>") and caption.startswith("caption &lt;script>")
    assert len(table) == 3 and all(re.sub(r"\\\|", "", line).count("|") == 3 for line in table)


def test_accuracy_of_several_runs() -> None:
    assert interval_cell([50], ".2f") == "50.00"
    assert interval_cell([50, 60], ".2f") == "55.00 ± 63.53", "12.706 x 7.07 / sqrt(2)"
    assert interval_cell([math.nan], ".2f") == "–"


def test_finding_runs(tmp_path: Path) -> None:
    make_run(tmp_path / "x" / "late", seed=1)
    make_run(tmp_path / "early")
    make_run(tmp_path / "bad", seed=3, status="failed")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "result.json").write_text("{")
    runs = find_runs(tmp_path)
    assert [run.path.name for run in runs] == ["early", "late", "bad"]
    with pytest.raises(DataError, match="torn"):
        read_run(tmp_path / "torn")
    with pytest.raises(DataError, match="has ended"):
        read_run(tmp_path / "nowhere")


def save_breakdown(groups: list[RunGroup], *files: Path) -> None:
    canvas = draw_stacked(Figure("breakdown", "stacked"), [Panel("", {group.name: group for group in groups})]).canvas
    for file in files:
        save_figure(canvas, file)


def test_the_figure_is_written_in_every_format(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", "dgl_reference")]
    groups = group_runs(runs, ("system",))
    save_breakdown(groups, tmp_path / "b.png", tmp_path / "b.svg")
    assert (tmp_path / "b.png").read_bytes()[:4] == b"\x89PNG"
    svg = (tmp_path / "b.svg").read_text()
    assert svg.count("<path") > 10
    save_breakdown(group_runs([make_run(tmp_path / "c", status="failed")], ("system",)), tmp_path / "none.png")
    assert (tmp_path / "none.png").exists(), "nothing to show is an empty figure, not a crash"


def test_negatives_and_decoder_are_shown_where_there_are_any(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    times = {
        "time/negatives_s": 0.15,
        "time/negatives_s_mean": 0.125,
        "time/decode_s_mean": 0.25,
        "time/fb_s_mean": 0.375,
        "time/epoch_s_mean": 1.0,
        "comm/bytes_endpoints": 2_000_000,
    }
    of_links = replace(run, config={**run.config, "system": "gsplit"}, epochs=[{**run.epochs[1], **times}])
    groups = group_runs([run, of_links], ("system",))
    table = make_table(groups, ("system",))
    cells = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    assert [(row["N s"], row["endpoints MB"]) for row in cells] == [("–", "0"), ("0.1500", "2.000")]
    drawn = []
    for chosen in (groups[:1], groups[1:]):
        save_breakdown(chosen, tmp_path / "b.svg")
        svg = (tmp_path / "b.svg").read_text()
        drawn.append([svg.count(f"fill: {colour}") for colour in ("#009e73", "#cc79a7")])
    assert drawn == [[0, 0], [2, 2]], "a bar and a line of the legend, or none"


def test_bars_are_stacked() -> None:
    axes = empty_figure(3, 2).add_subplot()
    parts = [BarPart("a", "C0", [1.0, 2.0]), BarPart("too thin", "C1", [2**-10, 0.0]), BarPart("b", "C2", [3.0, 0.5])]
    assert draw_stack(axes, [0, 1], parts) == [4 + 2**-10, 2.5]
    assert axes.get_legend_handles_labels()[1] == ["a", "b"]
    assert [bar.get_y() for bar in axes.containers[1]] == [1 + 2**-10, 2.0]
    assert draw_stack(axes, [], [BarPart("none", "C0", [])]) == []


def test_the_metric_that_chose_the_epoch_is_shown(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    by_area = replace(
        run,
        config={**run.config, "task": {"metric": "roc_auc"}},
        summary={**run.summary, "roc_auc/val": 0.6, "roc_auc/test": 0.65},
    )
    assert by_area.best("test") == ("roc_auc/test", 0.65)
    alone = make_table(group_runs([by_area], ("system",)), ("system",))
    assert dict(zip(alone.header, alone.rows[0], strict=True))["roc_auc/test %"] == "65.00"
    mixed = make_table(group_runs([run, by_area], ("task.metric",)), ("task.metric",))
    assert [row[:2] for row in mixed.rows] == [("null", "73.00 acc"), ("roc_auc", "65.00 roc_auc")]
    (row,) = make_table(group_runs([run, by_area], ("system",)), ("system",)).rows
    assert row[1] == "– (acc, roc_auc in one row)"
