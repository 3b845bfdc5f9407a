"""Figures of the report `offload`: time by system (HongTu, Figure 9), memory and alpha by chunks (10, Table 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gnnexp.record.runs import Run
from gnnexp.reports.figures.drawing import Part, colour_of, empty_figure, save, stack
from gnnexp.reports.offload.offload import Offloaded, find_offloaded

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours of Okabe and Ito's palette.
_SEGMENTS = (
    ("H2D", "h2d", "#0072B2"), ("D2H", "d2h", "#56B4E9"), ("D2D", "d2d", "#009E73"),
    ("between hosts", "hosts", "#F0E442"), ("compute", "compute", "#E69F00"),
    ("host accumulation", "host_add", "#D55E00"),
)
# They decide how many chunks there are, which is what the curves run along.
_CHUNKS = ("paradigm.chunks", "paradigm.device_memory")
_TICK = 2.0  # chunks are doubled, as a rule
Curves = Mapping[str, Sequence[Offloaded]]


def draw(runs: Sequence[Run], folder: Path, title: str = "") -> list[Path]:
    """Save as png and svg what the runs can tell; the files.

    `offload`: seconds by system, where one is offloaded and its crossings were timed. `chunks` and `replication`: by
    chunks, where a setting was run with several numbers of them.
    """
    found = find_offloaded(runs)
    figures = {}
    timed = [one for one in found if one.seconds.epoch is not None and one.seconds.h2d is not None]
    if any(one.plan for one in timed):
        figures["offload"] = _seconds(timed)
    curves = _by_chunks(found)
    if curves:
        figures["chunks"] = _memory(curves)
    if known := {name: points for name, points in curves.items() if all(_alpha(one) is not None for one in points)}:
        figures["replication"] = _replication(known)
    return save(figures, folder, title)


def _by_chunks(found: Sequence[Offloaded]) -> Curves:
    """Settings that were run with several numbers of chunks, those in order, by what else sets them apart."""
    curves: dict[str, list[Offloaded]] = {}
    planned = [one for one in found if one.plan is not None]
    for one in planned:
        curves.setdefault(one.name(planned, but=_CHUNKS).replace("\n", " "), []).append(one)
    return {name: sorted(points, key=_chunks) for name, points in curves.items() if len(set(map(_chunks, points))) > 1}


# --- Figure 9 --------------------------------------------------------------------------------------------------------
def _seconds(found: Sequence[Offloaded]) -> Figure:
    """Stacked seconds of an epoch, a bar per setting; the mark is the wall time."""
    figure = empty_figure(max(5.5, 2.2 + 1.1 * len(found)), 4.2)
    axes = figure.add_subplot()
    places = range(len(found))
    tops = stack(axes, places, [Part(label, colour, [getattr(one.seconds, name) or 0.0 for one in found])
                                for label, name, colour in _SEGMENTS])
    walls = [one.seconds.epoch or 0.0 for one in found]
    axes.hlines(walls, [place - 0.36 for place in places], [place + 0.36 for place in places], colors="black",
                label="epoch (wall): also waits,\ngradients' sum, update")
    axes.set_xticks(places, [one.name(found) for one in found], fontsize=7, rotation=20, ha="right")
    axes.set_ylabel("seconds per epoch" + ("\n(device tier: RAM)" if any(one.emulated for one in found) else ""))
    axes.set_ylim(0, 1.1 * max([*tops, *walls]))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


# --- Figure 10 and Table 3 -------------------------------------------------------------------------------------------
def _memory(curves: Curves) -> Figure:
    """Bytes of the device tier and seconds of an epoch against chunks of a rank."""
    figure = empty_figure(9.0, 3.8)
    memory, seconds = figure.subplots(1, 2)
    for number, (name, points) in enumerate(curves.items()):
        colour = colour_of(number)
        for what, style, value in (("measured peak", "-", _peak), ("promised", "--", _bound),
                                   ("(1+α)|V|/mn rows", ":", _formula)):
            _line(memory, points, _chunks, value, style, colour, what if len(curves) == 1 else f"{name}: {what}")
        _line(seconds, points, _chunks, _epoch, "-", colour, name)
    memory.set_ylabel("device tier of the fullest rank, MB")
    memory.set_yscale("log")
    seconds.set_ylabel("seconds per epoch")
    seconds.set_ylim(bottom=0)
    for axes in (memory, seconds):
        _finish(axes, "chunks per rank", [_chunks(one) for points in curves.values() for one in points])
    return figure


def _replication(curves: Curves) -> Figure:
    """Alpha against subgraphs, ranks times chunks."""
    figure = empty_figure(6.0, 3.8)
    axes = figure.add_subplot()
    for number, (name, points) in enumerate(curves.items()):
        _line(axes, points, _num_parts, _alpha, "-", colour_of(number), name)
    axes.set_ylabel("neighbour replication factor α")
    axes.set_ylim(bottom=0)
    _finish(axes, "subgraphs (ranks x chunks)", [_num_parts(one) for points in curves.values() for one in points])
    return figure


def _line(
    axes: Axes, points: Sequence[Offloaded], across: Callable[[Offloaded], int],
    up: Callable[[Offloaded], float | None], style: str, colour: str, label: str,
) -> None:
    """Through those points that are told."""
    told = [(across(one), value) for one in points if (value := up(one)) is not None]
    if told:
        axes.plot(*zip(*told, strict=True), style, marker="o", markersize=4, color=colour, label=label)


def _finish(axes: Axes, label: str, places: Sequence[int]) -> None:
    axes.set_xscale("log", base=_TICK)
    axes.set_xticks(sorted(set(places)), [str(place) for place in sorted(set(places))])
    axes.minorticks_off()
    axes.set_xlabel(label)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.lines:
        axes.legend(frameon=False, fontsize=7)


def _chunks(one: Offloaded) -> int:
    return one.plan.chunks if one.plan else 0


def _num_parts(one: Offloaded) -> int:
    return one.plan.parts if one.plan else 0


def _alpha(one: Offloaded) -> float | None:
    return one.plan.alpha if one.plan else None


def _peak(one: Offloaded) -> float | None:
    return None if one.device_peak_bytes is None else one.device_peak_bytes / 1e6


def _bound(one: Offloaded) -> float | None:
    return None if one.plan is None or one.plan.bound_bytes is None else one.plan.bound_bytes / 1e6


def _formula(one: Offloaded) -> float | None:
    return None if one.plan is None or one.plan.subgraph_bytes is None else one.plan.subgraph_bytes / 1e6


def _epoch(one: Offloaded) -> float | None:
    return one.seconds.epoch
