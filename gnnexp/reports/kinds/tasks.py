"""What an epoch is spent on, by task and system: negatives, GNN, decoder, loss (NeutronTP, Table 4)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gnnexp.measure.phases import Phase
from gnnexp.record.runs import Run
from gnnexp.reports.figures.drawing import Part, empty_figure, save, stack
from gnnexp.reports.published.cells import number_of, printed
from gnnexp.reports.table import Table, seconds_cell
from gnnexp.reports.values.labels import ALWAYS, figure_name, last_of_settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The four parts, what each is made of, and its colour (Okabe and Ito's palette).
_PARTS: Mapping[str, tuple[tuple[Phase, ...], str]] = {
    "negatives": (("negatives",), "#009E73"),
    "GNN": (("forward", "backward", "wait"), "#E69F00"),
    "decoder": (("decode",), "#CC79A7"),
    "loss": (("loss",), "#0072B2"),
}
_REST: tuple[Phase, ...] = ("sample", "load", "sync", "update")
# As the paper calls the parts (NeutronTP, Table 4: GCN on Reddit, 16 nodes with a T4 each).
_PUBLISHED = ("negative_sampling", "gnn_computation", "classification_computation", "loss_calculation")
_COLUMNS = (*(f"{part} s" for part in _PARTS), "sum s", *(f"{part} %" for part in _PARTS), "paper %", "wait s",
            "rest s", "epoch s")
_CAPTION = (
    "Seconds of an epoch: mean over the ranks, median of the epochs after the first, which warms up; phases are "
    "exclusive. Negatives: drawing them, and asking the owners of the ends of links for their rows. GNN: forward + "
    "backward, with the exchanges inside them (vertex data; rows of the ends of links, and their gradients back), + "
    "waiting for slower ranks, wherever they meet (wait s: that share of it). Decoder: scores, both ways; vertex "
    "classification has none, the last layer's outputs are its scores. Loss: its value and the scores' "
    "gradients. %: of the sum of the four. Paper: the same four, GCN on Reddit, 16 nodes with a GPU each. Rest, in no "
    "%: sampling, loading, the gradients' sum (sync), update. neutrontp trains the model's decoupled twin."
)


@dataclass(frozen=True)
class Spent:
    """Where a finished run's epoch went, in seconds.

    Attributes:
        labels: what tells its setting from those beside it, by column, its task first.
        parts: by name, as in the table.
        wait_s: of the GNN's, for other ranks.
        rest_s: in no part.
        epoch_s: wall time.
        published: per cent of the parts in the paper; empty where it has none.
    """

    labels: Mapping[str, str]
    parts: Mapping[str, float]
    wait_s: float
    rest_s: float
    epoch_s: float
    published: Sequence[float] = ()

    @property
    def shares(self) -> list[float]:
        """Per cent of the parts."""
        return [100 * seconds / sum(self.parts.values()) for seconds in self.parts.values()]


def find_spent(runs: Iterable[Run]) -> list[Spent]:
    """Finished runs that time the task apart, the last of each setting, in order of first appearance."""
    chosen = [run for run in runs if run.status == "finished" and _tells_task(run)]
    return [_spent(labels, run) for labels, run in last_of_settings(chosen)]


def _tells_task(run: Run) -> bool:
    """Earlier versions had the task in `forward`; DGL's own loops and offloaded classification have it still."""
    return run.median("time/loss_s_mean") > 0


def _spent(labels: Mapping[str, str], run: Run) -> Spent:
    def seconds(phases: Iterable[Phase]) -> float:
        return math.fsum(run.median(f"time/{phase}_s_mean") for phase in phases)

    task = run.value("task")
    return Spent({"task": task, **labels}, {part: seconds(phases) for part, (phases, _) in _PARTS.items()},
                 seconds(["wait"]), seconds(_REST), run.median("time/epoch_s_mean"),
                 _published(task, run.value("system")))


def _published(task: str, system: str) -> list[float]:
    """Per cent of the parts as printed, 0 for none; empty where the paper has no such row."""
    found = [printed("neutrontp", "", source="Table 4", quantity=f"{part}_share_pct", task=task, system=system)
             for part in _PUBLISHED]
    return [0.0 if math.isnan(number_of(share)) else number_of(share) for share in found] if all(found) else []


# --- the table -------------------------------------------------------------------------------------------------------
def make_table(runs: Sequence[Run]) -> Table:
    """One row per task and setting."""
    found = find_spent(runs)
    finished = [run for run in runs if run.status == "finished"]
    timed = sum(map(_tells_task, finished))
    left_out = ((len(runs) - len(finished), "failed"), (len(finished) - timed, "that do not time the task apart"),
                (timed - len(found), "repeated later"))
    caption = " ".join([_CAPTION, *(f"Left out: {count} runs {why}." for count, why in left_out if count)])
    header = found[0].labels if found else ("task", *ALWAYS)
    return Table((*header, *_COLUMNS), tuple((*one.labels.values(), *_cells(one)) for one in found), caption)


def _cells(one: Spent) -> tuple[str, ...]:
    return (*map(_seconds, one.parts.values()), seconds_cell(sum(one.parts.values())),
            *(f"{share:.1f}" if share else "–" for share in one.shares),
            " ".join(f"{percent:g}" if percent else "–" for percent in one.published) or "–",
            *map(seconds_cell, (one.wait_s, one.rest_s, one.epoch_s)))


def _seconds(value: float) -> str:
    return seconds_cell(value or math.nan)  # a phase that nobody entered


# --- the figure ------------------------------------------------------------------------------------------------------
def draw(runs: Sequence[Run], folder: Path, title: str = "") -> list[Path]:
    """Save the parts' seconds (left) and shares beside the paper's (right), a bar per row, as png and svg."""
    found = find_spent(runs)
    if not found:
        return []
    figure = empty_figure(3 + 1.5 * len(found), 4.2)
    seconds, shares = figure.subplots(1, 2)
    stack(seconds, range(len(found)), _stacked([list(one.parts.values()) for one in found]))
    seconds.set_ylabel("seconds per epoch (mean over ranks)")
    _draw_shares(shares, found)
    for axes in (seconds, shares):
        _name_bars(axes, found)
    return save({"tasks": figure}, folder, title)


def _draw_shares(axes: Axes, found: Sequence[Spent]) -> None:
    published = [place for place, one in enumerate(found) if one.published]
    stack(axes, [place - 0.2 for place in range(len(found))], _stacked([one.shares for one in found]), 0.38)
    num_ours = len(axes.containers)
    stack(axes, [place + 0.2 for place in published], _stacked([found[place].published for place in published]), 0.3)
    for container in axes.containers[num_ours:]:
        for bar in container:
            bar.set_hatch("//")
    axes.set_ylabel("% (hatched: the paper's)")
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(reversed(labels), reversed(handles), strict=True))  # ours, where both have the part
    axes.legend([named[part] for part in _PARTS if part in named], [part for part in _PARTS if part in named],
                frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _stacked(bars: Sequence[Sequence[float]]) -> list[Part]:
    """From the parts of every bar."""
    return [Part(name, colour, [bar[number] for bar in bars])
            for number, (name, (_, colour)) in enumerate(_PARTS.items())]


def _name_bars(axes: Axes, found: Sequence[Spent]) -> None:
    names = [figure_name(one.labels, [other.labels for other in found]) for one in found]
    axes.set_xticks(range(len(found)), names, fontsize=7, rotation=20, ha="right")
    axes.spines[["top", "right"]].set_visible(False)
