"""Accuracy by epoch: mean and range over seeds, a curve per kind of run, a panel per dataset."""

from __future__ import annotations

from pathlib import Path

from gnnexp.reports.accuracy import curve_table, curves, draw_curves
from gnnexp.reports.table import group_runs
from gnnexp.runs import Run

KEYS = ("dataset", "system")


def make_run(dataset: str, system: str, values: list[float | None]) -> Run:
    epochs = [{} if value is None else {"acc/test": value, "acc/val": value} for value in values]
    best = max(value for value in values if value is not None)
    return Run(Path("run"), {"dataset": {"name": dataset}, "system": system, "task": {"metric": "acc"}}, {}, epochs,
               {"acc/test": best, "acc/val": best}, "finished")


def both() -> list[Run]:
    return [
        make_run("cora", "a", [0.1, None, 0.5]), make_run("cora", "a", [0.3, None, 0.6]),
        make_run("cora", "b", [0.2, 0.3, 0.4]), make_run("citeseer", "a", [0.7, 0.8, None]),
        make_run("citeseer", "b", [None, None, 0.9]),
    ]


def test_curves_are_over_seeds_and_only_evaluated_epochs() -> None:
    found = curves(group_runs(both(), KEYS), KEYS)
    assert [(curve.panel, curve.name, curve.metric) for curve in found] == [
        ("cora", "a", "acc/test"), ("cora", "b", "acc/test"), ("citeseer", "a", "acc/test")], "one point is no curve"
    assert found[0].values == {0: [0.1, 0.3], 2: [0.5, 0.6]}
    rows = curve_table(found).rows
    assert rows[0] == ("cora", "a", "acc/test", "1", "0.2000", "0.1000", "0.3000", "2")
    assert rows[1][3:] == ("3", "0.5500", "0.5000", "0.6000", "2") and len(rows) == 2 + 3 + 2


def test_the_figure_has_a_panel_per_dataset(tmp_path: Path) -> None:
    draw_curves(curves(group_runs(both(), KEYS), KEYS), [tmp_path / "f" / "a.png", tmp_path / "f" / "a.svg"], "title")
    assert (tmp_path / "f" / "a.png").read_bytes()[:4] == b"\x89PNG"
    svg = (tmp_path / "f" / "a.svg").read_text()
    assert svg.count('id="axes_') == 2
    assert svg.count("stroke: #0072b2") >= 2 + 2 and svg.count("stroke: #d55e00") >= 1 + 1, "lines and legends"
    assert not curves(group_runs(both()[-1:], KEYS), KEYS)
