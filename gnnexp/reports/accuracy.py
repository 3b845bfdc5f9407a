"""The task's metric by epoch (NeutronTP, Figure 16; SDT-GNN, Figures 2 and 10): mean and range over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gnnexp.reports.drawing import colour_of
from gnnexp.reports.labels import said
from gnnexp.reports.table import Group, Table


@dataclass(frozen=True)
class Curve:
    """Runs of one kind.

    Attributes:
        panel: in which it is drawn: their dataset, and their model where more than that sets runs apart.
        name: what else does.
        metric: its name, on the test vertices (`acc/test`).
        values: of every evaluated epoch (from 0), one value per run that has it.
    """

    panel: str
    name: str
    metric: str
    values: Mapping[int, Sequence[float]]


def curves(groups: Sequence[Group], keys: Sequence[str]) -> list[Curve]:
    """Of groups with finished runs that evaluated more than one epoch."""
    panels = ("dataset", "model") if set(keys) - {"dataset", "model"} else ("dataset",)
    found = []
    for group in groups:
        metric = group.runs[0].best("test")[0] if group.runs else ""
        values: dict[int, list[float]] = {}
        for run in group.runs:
            for number, epoch in enumerate(run.epochs):
                if metric in epoch:
                    values.setdefault(number, []).append(epoch[metric])
        if len(values) > 1:
            labels = dict(zip(keys, group.labels, strict=True))
            panel = [labels.pop(key) for key in panels if key in labels] or [group.runs[0].value("dataset")]
            name = " ".join(said(key, label) for key, label in labels.items() if label != "null")
            found.append(Curve(" ".join(panel), name or group.runs[0].value("system"), metric,
                               dict(sorted(values.items()))))
    return found


def curve_table(found: Sequence[Curve]) -> Table:
    """A row per curve and evaluated epoch."""
    rows = [
        (curve.panel, curve.name, curve.metric, str(epoch + 1), f"{statistics.fmean(values):.4f}",
         f"{min(values):.4f}", f"{max(values):.4f}", str(len(values)))
        for curve in found for epoch, values in curve.values.items()
    ]
    return Table(("panel", "runs of", "metric", "epoch", "mean", "min", "max", "runs"), tuple(rows),
                 "Test metric after each evaluated epoch, over runs that differ in nothing else but their seed.")


def draw_curves(found: Sequence[Curve], files: Sequence[Path], title: str = "") -> None:
    """Save the panels, a line per kind of run with the range over its runs, once per file."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(curve.panel for curve in found))
    figure = Figure(figsize=(1.0 + 3.6 * max(1, len(names)), 3.4), dpi=150, layout="constrained")
    colours = {name: colour_of(i) for i, name in enumerate(dict.fromkeys(c.name for c in found))}
    panels = figure.subplots(1, max(1, len(names)), squeeze=False)[0]
    for axes, name in zip(panels, names, strict=False):
        for curve in (one for one in found if one.panel == name):
            epochs = [epoch + 1 for epoch in curve.values]
            axes.plot(epochs, [statistics.fmean(v) for v in curve.values.values()], label=curve.name,
                      color=colours[curve.name], linewidth=1.3)
            axes.fill_between(epochs, [min(v) for v in curve.values.values()], [max(v) for v in curve.values.values()],
                              color=colours[curve.name], alpha=0.2, linewidth=0)
            axes.set_ylabel(curve.metric)
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("epoch")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=7, loc="lower right")
    figure.suptitle(title, fontsize=10)
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file)
