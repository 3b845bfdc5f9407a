"""No table and no figure mixes kinds of machines without saying so: seconds of two kinds are not comparable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from asking import figures as figures_of
from asking import table as table_of
from figure_runs import figure_run
from run_folder import write_epochs, write_job, write_result

from gnnexp.provenance.machine import Node
from gnnexp.record.runs import MACHINE, RecordedRun, read_run
from gnnexp.reports import answer, overview
from gnnexp.reports.compare import comparison_of
from gnnexp.reports.comparison import make_columns, make_table
from gnnexp.reports.figures.draw import draw_figure
from gnnexp.reports.figures.panels import Figure, panels_of_figure
from gnnexp.reports.labels import label_runs
from gnnexp.reports.query import query_names
from gnnexp.reports.tables.groups import group_runs, row_keys
from gnnexp.reports.tables.table import ReportTable, stack

SMALL = Node("a1", "EPYC", 2, (), "2.13.0")
LARGE = Node("b1", "Xeon", 64, ("A100",), "2.13.0")


def made_on(run: RecordedRun, *nodes: Node) -> RecordedRun:
    return replace(run, nodes=[node.to_json() for node in nodes])


@pytest.fixture
def two_kinds(tmp_path: Path) -> list[RecordedRun]:
    """Three seeds of one system: two on equal nodes, one on a larger machine."""
    runs = []
    for number, node in enumerate([SMALL, replace(SMALL, host="a2"), LARGE]):
        folder = tmp_path / str(number)
        write_job(folder, uid=str(number), run_key=f"k{number}")
        write_epochs(folder, 3)
        write_result(folder)
        runs.append(made_on(read_run(folder), node))
    return runs


def test_a_comparison_has_a_row_for_each_kind(two_kinds: list[RecordedRun]) -> None:
    for wanted in ((), ("dataset",)):
        keys = row_keys(two_kinds, wanted)
        assert keys == (*(wanted or ("system",)), MACHINE)
        groups = group_runs(two_kinds, keys)
        assert [(group.labels[-1], len(group.runs)) for group in groups] == [(SMALL.kind, 2), (LARGE.kind, 1)]
        for table in (make_table(groups, keys), make_columns(groups, keys, {"epoch s": "time/epoch_s"})):
            assert MACHINE in table.header and {row[len(keys) - 1] for row in table.rows} == {SMALL.kind, LARGE.kind}
    assert row_keys(two_kinds[:2]) == ("system",), "equal nodes are one machine"
    assert row_keys(two_kinds, ("machine",)) == ("machine",), "a sweep may ask for it"


def test_no_speed_up_is_drawn_between_them() -> None:
    runs = [
        made_on(figure_run("dgl", 4.0), SMALL),
        made_on(figure_run("p3", 1.0), SMALL),
        made_on(figure_run("dgl", 100.0), LARGE),
    ]
    table = draw_figure(Figure("speedup", "matrix", ("time/epoch_s",), series=("system",)), runs, ()).table
    assert len(table.rows) == 2 * 2 + 1
    assert all((SMALL.cpu in row[1]) == (SMALL.cpu in row[2]) for row in table.rows)


def test_the_list_of_runs_names_them(two_kinds: list[RecordedRun]) -> None:
    table = overview.make_overview(two_kinds)
    assert table.header[-1] == MACHINE and {row[-1] for row in table.rows} == {SMALL.kind, LARGE.kind}
    assert MACHINE not in overview.make_overview(two_kinds[:2]).header


def test_a_comparison_of_two_runs_names_them(two_kinds: list[RecordedRun]) -> None:
    first, _, last = two_kinds
    table = comparison_of(first, last)
    assert ("setting", MACHINE, SMALL.kind, LARGE.kind) in [row[:4] for row in table.rows]
    assert "seconds are not comparable" in table.caption
    assert "comparable" not in comparison_of(*two_kinds[:2]).caption


@pytest.mark.parametrize(
    "figure",
    [
        Figure("f", "bars", y=("time/epoch_s",)),
        Figure("f", "lines", x="seed"),
        Figure("f", "curves", series=("system",)),
        Figure("f", "lines", x="seed", panels=("machine",)),
    ],
)
def test_a_figure_has_a_series_or_a_panel_for_each_kind(figure: Figure) -> None:
    runs = [made_on(figure_run("dgl", 1.0, seed=0), SMALL), made_on(figure_run("dgl", 9.0, seed=0), LARGE)]
    panels = panels_of_figure(figure, runs, ("system",))
    assert sum(len(panel.series) for panel in panels) == 2
    assert all(len(group.runs) == 1 for panel in panels for group in panel.series.values())


def test_labels_name_them(two_kinds: list[RecordedRun]) -> None:
    assert [labels[MACHINE] for labels in label_runs(two_kinds)] == [SMALL.kind, SMALL.kind, LARGE.kind]
    assert MACHINE not in label_runs(two_kinds[:2])[0]


@pytest.mark.parametrize("name", query_names())
def test_every_query_has_rows_of_their_own(name: str, two_kinds: list[RecordedRun]) -> None:
    assert table_of(name, two_kinds).header[0] == MACHINE
    assert table_of(name, two_kinds[:2]).header[0] != MACHINE


def test_figures_of_a_query_are_drawn_for_each_machine(
    two_kinds: list[RecordedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[Path, str]] = []

    def save(figures: object, folder: Path, title: str) -> list[Path]:
        drawn.append((folder, title))
        return [folder / "x.png"]

    monkeypatch.setattr(answer, "save", save)
    assert len(set(figures_of("tasks", two_kinds, tmp_path, "mine"))) == 2
    assert drawn == [(tmp_path / "machine1", f"mine, {SMALL.kind}"), (tmp_path / "machine2", f"mine, {LARGE.kind}")]


def test_stacked_tables_keep_every_column() -> None:
    both = stack(
        {"a": ReportTable(("x", "y"), (("1", "2"),), "c.", "h."), "b": ReportTable(("y", "z"), (("3", "4"),), "c.")},
        "m",
    )
    assert both.header == ("m", "x", "y", "z")
    assert both.rows == (("a", "1", "2", "–"), ("b", "–", "3", "4"))
    assert (both.caption, both.heading) == ("c.", "a: h.")
