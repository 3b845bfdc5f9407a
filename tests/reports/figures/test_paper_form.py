"""Figures of a paper: as wide as a column or a page, without title and caption, and readable without colours."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from figure_runs import figure_run

from gnnexp.reports.figures.draw import draw_all, draw_figure
from gnnexp.reports.figures.panels import Figure
from gnnexp.reports.figures.paper_form import COLUMN, PAGE, paper_width, save_for_paper
from gnnexp.reports.page.page import page_figures

BARS = Figure("bars", "bars", ("work/a", "work/b"), series=("system",))
LINES = Figure("lines", "lines", ("time/epoch_s",), x="hardware.workers", series=("system",))
RUNS = [
    figure_run(system, 1.0 + number, workers=workers, metrics={"work/a": 2.0, "work/b": 3.0})
    for number, system in enumerate(("dgl", "p3", "gsplit"))
    for workers in (1, 2)
]


def test_two_files_of_a_columns_width_and_the_same_bytes_again(tmp_path: Path) -> None:
    def saved() -> list[bytes]:
        return [file.read_bytes() for file in save_for_paper(draw_figure(BARS, RUNS, ()).canvas, tmp_path, "bars")]

    first = saved()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["bars_paper.pdf", "bars_paper.svg"]
    assert first == saved()
    width = re.search(rb'<svg[^>]* width="([\d.]+)pt"', first[1])
    assert width is not None and float(width[1]) == pytest.approx(72 * COLUMN, abs=1)
    box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+)", first[0])
    assert box is not None and float(box[1]) == pytest.approx(72 * COLUMN, abs=1)


def test_neither_title_nor_caption_and_small_letters(tmp_path: Path) -> None:
    canvas = draw_figure(BARS, RUNS, ()).canvas
    canvas.suptitle("a title")
    save_for_paper(canvas, tmp_path, "bars")
    from matplotlib.text import Text

    texts = [text for text in canvas.findobj(Text) if isinstance(text, Text) and text.get_text()]
    assert not any("title" in text.get_text() or "work/a and work/b" in text.get_text() for text in texts)
    assert all(text.get_fontsize() <= 7 for text in texts)


def test_many_bars_or_panels_get_a_page() -> None:
    assert paper_width(draw_figure(BARS, RUNS, ()).canvas) == COLUMN
    many = [figure_run(f"s{number}", 1.0, metrics={"work/a": 1.0, "work/b": 1.0}) for number in range(8)]
    assert paper_width(draw_figure(BARS, many, ()).canvas) == PAGE
    wide = [figure_run("dgl", 1.0, dataset=name, metrics={"work/a": 1.0, "work/b": 1.0}) for name in "abc"]
    assert paper_width(draw_figure(replace(BARS, panels=("dataset",)), wide, ()).canvas) == PAGE


def test_a_grey_printer_tells_them_apart(tmp_path: Path) -> None:
    bars, lines = draw_figure(BARS, RUNS, ()).canvas, draw_figure(LINES, RUNS, ()).canvas
    save_for_paper(bars, tmp_path, "bars")
    save_for_paper(lines, tmp_path, "lines")
    hatches = {
        str(container.get_label()): container.patches[0].get_hatch()
        for container in bars.axes[0].containers
        if getattr(container, "patches", ())
    }
    assert len(hatches) == 2 and len(set(hatches.values())) == 2
    marks = {(line.get_linestyle(), line.get_marker()) for line in lines.axes[0].lines if line.get_marker() in "os^"}
    assert len(marks) == 3


def test_a_page_shows_each_figure_once(tmp_path: Path) -> None:
    files, data = draw_all([BARS], RUNS, (), tmp_path, "t", paper=True)
    assert {file.name for file in files} >= {"bars.svg", "bars_paper.svg", "bars_paper.pdf"}
    assert [figure.file.name for figure in page_figures(files, data)] == ["bars.svg"]
