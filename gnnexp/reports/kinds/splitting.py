"""What partitioners make of a mini-batch's split: load balance and cross edges by layer (GSplit, Figure 5)."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gnnexp.record.records import read_epochs
from gnnexp.record.runs import Run
from gnnexp.reports.figures.drawing import empty_figure, save
from gnnexp.reports.table import Table
from gnnexp.reports.values.setting import Setting, setting_columns, setting_of, splits_one_batch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# GSplit's names (section 6.3), in the figure's order, with colours of Okabe and Ito's palette.
_NAMES = {
    "random": "Rand", "metis": "Edge", "metis_edge": "Edge", "presampled_node": "Node", "presampled": "GSplit"
}
_COLOURS = {"Rand": "#999999", "Edge": "#56B4E9", "Node": "#E69F00", "GSplit": "#D55E00"}
_COLUMNS = ("partitioner", "layer", "cross edges %", "load mean", "load max", "load below Edge %", "runs")
BatchId = tuple[str, int, int]


@dataclass(frozen=True)
class Layer:
    """One layer over all epochs and runs; layer 1 reads the features.

    Attributes:
        edges: that were computed.
        cross_edges: those whose source another rank has.
        loads: of every batch with edges, by (seed, epoch, step): the fullest rank's edges over the ranks' mean.
    """

    edges: float
    cross_edges: float
    loads: Mapping[BatchId, float]


@dataclass(frozen=True)
class Split:
    """Finished runs of one setting with one partitioner.

    Attributes:
        setting: theirs.
        partitioner: GSplit's name for it, or its own.
        runs: one per seed, the last where there were several.
        layers: in order; empty where no counts by layer were recorded.
        whole: all layers together; a rank's load is its edges of all of them.
    """

    setting: Setting
    partitioner: str
    runs: Sequence[Run]
    layers: Sequence[Layer]
    whole: Layer


def find_splits(runs: Sequence[Run]) -> list[Split]:
    """Finished split parallel runs by setting and partitioner, in the figure's order."""
    grouped: dict[tuple[Setting, str], dict[str, Run]] = {}
    names = dict(_NAMES)
    if {"metis", "metis_edge"} <= {run.value("partitioner") for run in runs}:
        names["metis"] = "metis"  # both balance edges and targets; `metis` vertices too
    for run in runs:
        if run.status == "finished" and splits_one_batch(run):
            kind = run.value("partitioner")
            grouped.setdefault((setting_of(run), names.get(kind, kind)), {})[run.value("seed")] = run
    order = [*_NAMES.values()]
    keys = sorted(grouped, key=lambda key: (key[0], order.index(key[1]) if key[1] in order else len(order), key[1]))
    return [_split(*key, list(grouped[key].values())) for key in keys]


def _split(setting: Setting, partitioner: str, runs: Sequence[Run]) -> Split:
    loads = batch_loads(runs)
    layers = _layers(runs, loads)
    whole = Layer(sum(layer.edges for layer in layers), sum(layer.cross_edges for layer in layers), loads.get(None, {}))
    return Split(setting, partitioner, runs, layers, whole)


def _layers(runs: Sequence[Run], loads: Mapping[int | None, Mapping[BatchId, float]]) -> list[Layer]:
    epochs = [epoch for run in runs for epoch in run.epochs]
    layers: list[Layer] = []
    while any(f"work/edges_layer{len(layers) + 1}" in epoch for epoch in epochs):
        edges, crossing = (sum(epoch.get(f"work/{name}_layer{len(layers) + 1}", 0) for epoch in epochs)
                           for name in ("edges", "cross_edges"))
        layers.append(Layer(edges, crossing, loads.get(len(layers), {})))
    return layers


def batch_loads(runs: Sequence[Run]) -> dict[int | None, dict[BatchId, float]]:
    """By layer from 0, and None for all layers: maximum over mean of the ranks' edges of every batch that has any."""
    loads: dict[int | None, dict[BatchId, float]] = {}
    for run in runs:
        for epoch in read_epochs(run.path):
            for step, layers in enumerate(epoch.get("batches", {}).get("edges", ())):
                batch = run.value("seed"), int(epoch["epoch"]), step
                whole = [sum(of_rank) for of_rank in zip(*layers, strict=True)]
                for layer, counts in [*enumerate(layers), (None, whole)]:
                    if sum(counts):
                        loads.setdefault(layer, {})[batch] = max(counts) * len(counts) / sum(counts)
    return loads


def share_below(loads: Mapping[BatchId, float], others: Mapping[BatchId, float]) -> float | None:
    """Share of the batches of both whose load is below the other's; None where they have none in common."""
    common = loads.keys() & others.keys()
    return statistics.fmean(loads[batch] < others[batch] for batch in common) if common else None


def make_table(runs: Sequence[Run]) -> Table:
    """One row per setting, partitioner and layer, and one for all layers together."""
    splits = find_splits(runs)
    columns = setting_columns([split.setting for split in splits])
    rows = [(*(str(getattr(split.setting, name)) for name in columns), split.partitioner, *cells, str(len(split.runs)))
            for split in splits for cells in _cells(split, _edge_of(splits, split.setting))]
    return Table((*columns, *_COLUMNS), tuple(rows), _caption(runs, splits))


def _edge_of(splits: Sequence[Split], setting: Setting) -> Split | None:
    return next((one for one in splits if one.setting == setting and one.partitioner == "Edge"), None)


def _cells(split: Split, edge: Split | None) -> Iterator[tuple[str, ...]]:
    names = [*(str(number + 1) for number in range(len(split.layers))), "all"] if split.layers else []
    peers = [None] * len(names) if edge is None else [*edge.layers, edge.whole]
    for name, layer, peer in zip(names, [*split.layers, split.whole], peers, strict=False):
        loads = list(layer.loads.values())
        known = (f"{statistics.fmean(loads):.3f}", f"{max(loads):.3f}") if loads else ("–", "–")
        below = None if split.partitioner != "GSplit" or peer is None else share_below(layer.loads, peer.loads)
        yield name, _percent(layer), *known, "–" if below is None else f"{100 * below:.1f}"


def _percent(layer: Layer) -> str:
    return f"{100 * layer.cross_edges / layer.edges:.2f}" if layer.edges else "–"


def _caption(runs: Sequence[Run], splits: Sequence[Split]) -> str:
    failed = sum(run.status != "finished" for run in runs)
    others = sum(run.status == "finished" and not splits_one_batch(run) for run in runs)
    repeated = len(runs) - failed - others - sum(len(split.runs) for split in splits)
    left_out = ((failed, "failed"), (others, "of other kinds"), (repeated, "repeated later with the same seed"))
    return " ".join([
        "Layer 1 reads the features. Cross edges: their source is another rank's. Load: the fullest rank's edges of a "
        "batch over the ranks' mean, mean and maximum over batches. Below Edge: batches in which GSplit's load is.",
        *(f"No counts by layer: {split.partitioner}, {split.setting}." for split in splits if not split.layers),
        *(f"Left out: {count} runs {why}." for count, why in left_out if count),
    ])


def draw(runs: Sequence[Run], folder: Path, title: str = "") -> list[Path]:
    """Save loads (left) and cross edges (right) by layer and partitioner, panels per setting, as png and svg."""
    splits = [split for split in find_splits(runs) if split.layers]
    settings = list(dict.fromkeys(split.setting for split in splits))
    if not settings:
        return []
    figure = empty_figure(9, 0.4 + 3 * len(settings))
    panels = figure.subplots(len(settings), 2, squeeze=False)
    for row, setting in zip(panels, settings, strict=True):
        of_setting = [split for split in splits if split.setting == setting]
        _draw_loads(row[0], of_setting)
        _draw_crossing(row[1], of_setting)
        row[0].set_title(str(setting), fontsize=8)
        row[1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return save({"splitting": figure}, folder, title)


def _draw_loads(axes: Axes, splits: Sequence[Split]) -> None:
    means = [[statistics.fmean(layer.loads.values()) if layer.loads else 0.0 for layer in split.layers]
             for split in splits]
    _draw_bars(axes, splits, means, "load: mean (bar), maximum (dash)")
    for number, split in enumerate(splits):
        tops = [max(layer.loads.values(), default=0.0) for layer in split.layers]
        axes.scatter(_places(number, len(splits), len(tops)), tops, marker="_", color="black", s=30)
    axes.set_ylim(bottom=1.0)  # the load of an even split


def _draw_crossing(axes: Axes, splits: Sequence[Split]) -> None:
    shares = [[100 * layer.cross_edges / layer.edges if layer.edges else 0.0 for layer in split.layers]
              for split in splits]
    _draw_bars(axes, splits, shares, "cross edges, %")


def _draw_bars(axes: Axes, splits: Sequence[Split], heights: Sequence[Sequence[float]], label: str) -> None:
    for number, (split, values) in enumerate(zip(splits, heights, strict=True)):
        axes.bar(_places(number, len(splits), len(values)), values, 0.8 / len(splits), label=split.partitioner,
                 color=_COLOURS.get(split.partitioner))
    num_layers = max(map(len, heights))
    axes.set_xticks(range(num_layers), [f"layer {number + 1}" for number in range(num_layers)])
    axes.set_ylabel(label)
    axes.spines[["top", "right"]].set_visible(False)


def _places(number: int, count: int, num_layers: int) -> list[float]:
    """Middles of the bars of the `number`th of `count` partitioners."""
    return [layer + 0.8 * ((number + 0.5) / count - 0.5) for layer in range(num_layers)]
