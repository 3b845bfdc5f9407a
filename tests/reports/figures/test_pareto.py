"""A point per series; filled are those that no other beats in both metrics."""

from __future__ import annotations

from dataclasses import replace

from figure_runs import figure_run

from gnnexp.record.runs import RecordedRun
from gnnexp.reports.figures.draw import draw_figure
from gnnexp.reports.figures.panels import Figure, read_figures

PARETO = Figure("pareto", "pareto", ("time/epoch_s", "acc/test"), series=("system",))


def run_of(system: str, seconds: float, acc: float, seed: int = 0) -> RecordedRun:
    return replace(figure_run(system, seconds, seed=seed), summary={"acc/test": acc, "mse/test": 1 - acc})


RUNS = [
    run_of("fast", 1.0, 0.7),
    run_of("good", 3.0, 0.9),
    run_of("between", 2.0, 0.8, 0),
    run_of("between", 2.2, 0.82, 1),
    run_of("beaten", 3.0, 0.75),
    run_of("as good", 1.0, 0.7),
    figure_run("unmeasured", 1.0),
]


def test_the_front_by_hand() -> None:
    table = draw_figure(PARETO, RUNS, ()).table
    front = {row[1]: row[-1] for row in table.texts}
    assert front == {"fast": "yes", "good": "yes", "between": "yes", "beaten": "no", "as good": "yes"}
    cells = dict(zip(table.header, table.texts[2], strict=True))
    assert cells["time/epoch_s"] == "2.1 (2 to 2.2)" and cells["acc/test"] == "0.81 (0.8 to 0.82)"
    assert "acc/test of unmeasured" in table.caption


def test_an_error_is_better_if_it_is_lower() -> None:
    figure = replace(PARETO, y=("time/epoch_s", "mse/test"))
    assert {row[1]: row[-1] for row in draw_figure(figure, RUNS, ()).table.texts}["beaten"] == "no"


def test_points_are_filled_on_the_front_only() -> None:
    (axes,) = draw_figure(PARETO, RUNS, ()).canvas.axes
    filled = {
        str(container.get_label()): container.lines[0].get_markerfacecolor() != "none" for container in axes.containers
    }
    assert filled == {"fast": True, "good": True, "between": True, "beaten": False, "as good": True}


def test_it_takes_two_metrics() -> None:
    _, problems = read_figures([{"name": "a", "draw": "pareto", "y": ["time/epoch_s"]}], "report.figures")
    assert [problem.allowed for problem in problems] == ["pareto takes two metrics"]
    figures, problems = read_figures([{"name": "a", "draw": "pareto", "y": ["time/epoch_s", "acc/test"]}], "f")
    assert not problems and figures[0].y == ("time/epoch_s", "acc/test")
