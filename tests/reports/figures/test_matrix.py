"""Speed-ups of every system over every other: the column's seconds over the row's, out of memory where it was."""

from __future__ import annotations

from figure_runs import figure_run

from gnnexp.reports.figures.draw import draw_figure
from gnnexp.reports.figures.panels import Figure


def test_ratios_by_hand() -> None:
    runs = [
        figure_run("dgl", 4.0),
        figure_run("p3", 1.0),
        figure_run("p3", 3.0, seed=1),
        figure_run("quiver", kind="out of memory"),
        figure_run("dgl", 1.0, dataset="pubmed"),
    ]
    figure = Figure("speedup", "matrix", ("time/epoch_s",), series=("system",), panels=("dataset",))
    drawn = draw_figure(figure, runs, ())
    cora, pubmed = drawn.canvas.axes
    assert [text.get_text() for text in cora.texts] == ["1.00", "0.50", "OOM", "2.00", "1.00", "OOM", *["OOM"] * 3]
    assert [text.get_text() for text in pubmed.texts] == ["1.00"]
    assert drawn.table.texts[1] == ("cora", "dgl", "p3", "time/epoch_s", "0.5000")
    assert drawn.table.header[-1] == "column / row" and "Failed: quiver on cora (OOM)." in drawn.table.caption
    assert len(drawn.table.rows) == 4 + 1
