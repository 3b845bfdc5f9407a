"""Draws every figure of a report and saves it with its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gnnexp.record.runs import RecordedRun
from gnnexp.reports.figures import bars, curves, lines, load_range, matrix, pareto, stacked
from gnnexp.reports.figures.drawing import DrawnFigure, save
from gnnexp.reports.figures.panels import Figure, Panel, panels_of_figure
from gnnexp.reports.figures.paper_form import save_for_paper
from gnnexp.reports.tables.groups import group_runs, telling_keys
from gnnexp.reports.tables.save import save_table
from gnnexp.reports.tables.table import ReportTable

_DRAW: Mapping[str, Callable[[Figure, Sequence[Panel]], DrawnFigure]] = {
    "stacked": stacked.draw_stacked,
    "lines": lines.draw_lines,
    "curves": curves.draw_curves,
    "range": load_range.draw_load_range,
    "bars": bars.draw_bars,
    "matrix": matrix.draw_matrix,
    "pareto": pareto.draw_pareto,
}


def draw_figure(figure: Figure, runs: Sequence[RecordedRun], rows: Sequence[str]) -> DrawnFigure:
    """Draw `figure` from the report's `runs`; `rows` are the config keys that name a row."""
    return _DRAW[figure.draw](figure, panels_of_figure(figure, runs, rows))


def draw_all(
    figures: Sequence[Figure],
    runs: Sequence[RecordedRun],
    rows: Sequence[str],
    folder: Path,
    title: str,
    *,
    paper: bool = False,
) -> tuple[list[Path], dict[str, ReportTable]]:
    """Save each figure as png and svg, its data as csv, in `folder`. Return the files and the data by figure name.

    With `paper`, each is also saved in the form of a paper (`gnnexp.reports.figures.paper_form`).
    """
    files, data = [], {}
    for figure in figures:
        drawn = draw_figure(figure, runs, rows)
        data[figure.name] = drawn.table
        files += save({figure.name: drawn.canvas}, folder, f"{title}: {figure.name}")
        files += save_table(drawn.table, folder, figure.name, ("csv",))
        files += save_for_paper(drawn.canvas, folder, figure.name) if paper else []
    return files, data


def usual_figures(runs: Sequence[RecordedRun], rows: Sequence[str]) -> list[Figure]:
    """Figures of a report that describes none: phases, and (if evaluated often) the metric by epoch and by time."""
    finished = [run for run in runs if run.status == "finished"]
    figures = [Figure("breakdown", "stacked", series=tuple(rows))] if finished else []
    if not any(_evaluated_often(run) for run in finished):
        return figures
    rows = telling_keys(group_runs(runs, rows), rows)
    figures = [Figure("breakdown", "stacked", series=tuple(rows))]
    panels = tuple(key for key in ("dataset", "model") if key in rows)
    if not set(rows) - {"dataset", "model"}:
        panels = panels[:1]
    series = tuple(key for key in rows if key not in panels) or ("system",)
    test = next(name for run in finished if (name := run.best("test")[0]))
    if len({tuple(run.label(key) for key in series) for run in finished}) > 1:
        figures.append(Figure("pareto", "pareto", ("time/epoch_s", test), series=series, panels=panels))
    return [
        *figures,
        *(
            Figure(name, "curves", series=series, panels=panels, by=by)
            for name, by in (("accuracy", "epoch"), ("accuracy_time", "time"))
        ),
    ]


def _evaluated_often(run: RecordedRun) -> bool:
    metric = run.best("test")[0]
    return sum(metric in epoch for epoch in run.epochs) > 1
