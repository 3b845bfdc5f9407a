"""The task's metric by epoch (NeutronTP, Figure 16): mean and range over seeds, a panel per dataset."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gnnexp.reports.drawing import colour_of
from gnnexp.reports.table import Group, Table


@dataclass(frozen=True)
class Curve:
    """Runs of one kind.

    Attributes:
        dataset: theirs.
        name: what else sets them apart.
        metric: its name, on the test vertices (`acc/test`).
        values: of every evaluated epoch (from 0), one value per run that has it.
    """

    dataset: str
    name: str
    metric: str
    values: Mapping[int, Sequence[float]]


def curves(groups: Sequence[Group], keys: Sequence[str]) -> list[Curve]:
    """Of groups with finished runs that evaluated more than one epoch."""
    found = []
    for group in groups:
        metric = group.runs[0].best("test")[0] if group.runs else ""
        values: dict[int, list[float]] = {}
        for run in group.runs:
            for number, epoch in enumerate(run.epochs):
                if metric in epoch:
                    values.setdefault(number, []).append(epoch[metric])
        if len(values) > 1:
            others = [label for key, label in zip(keys, group.labels, strict=True) if key != "dataset"]
            name = " ".join(others) or group.runs[0].value("system")
            found.append(Curve(group.runs[0].value("dataset"), name, metric, dict(sorted(values.items()))))
    return found


def curve_table(found: Sequence[Curve]) -> Table:
    """A row per curve and evaluated epoch."""
    rows = [
        (curve.dataset, curve.name, curve.metric, str(epoch + 1), f"{statistics.fmean(values):.4f}",
         f"{min(values):.4f}", f"{max(values):.4f}", str(len(values)))
        for curve in found for epoch, values in curve.values.items()
    ]
    return Table(("dataset", "runs of", "metric", "epoch", "mean", "min", "max", "runs"), tuple(rows),
                 "Test metric after each evaluated epoch, over runs that differ in nothing else but their seed.")


def draw_curves(found: Sequence[Curve], files: Sequence[Path], title: str = "") -> None:
    """Save a panel per dataset, a line per kind of run with the range over its runs, once per file."""
    from matplotlib.figure import Figure

    datasets = list(dict.fromkeys(curve.dataset for curve in found))
    figure = Figure(figsize=(1.0 + 3.6 * max(1, len(datasets)), 3.4), dpi=150, layout="constrained")
    colours = {name: colour_of(i) for i, name in enumerate(dict.fromkeys(c.name for c in found))}
    panels = figure.subplots(1, max(1, len(datasets)), squeeze=False)[0]
    for axes, dataset in zip(panels, datasets, strict=False):
        for curve in (one for one in found if one.dataset == dataset):
            epochs = [epoch + 1 for epoch in curve.values]
            axes.plot(epochs, [statistics.fmean(v) for v in curve.values.values()], label=curve.name,
                      color=colours[curve.name], linewidth=1.3)
            axes.fill_between(epochs, [min(v) for v in curve.values.values()], [max(v) for v in curve.values.values()],
                              color=colours[curve.name], alpha=0.2, linewidth=0)
            axes.set_ylabel(curve.metric)
        axes.set_title(dataset, fontsize=9)
        axes.set_xlabel("epoch")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=7, loc="lower right")
    figure.suptitle(title, fontsize=10)
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file)
