"""Runs cut into the panels and series of a figure, and what its caption must say of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gnnexp.record.runs import MACHINE, Run
from gnnexp.reports.figures.description import Figure
from gnnexp.reports.table import Group, group_runs, mixtures, with_machine
from gnnexp.reports.values.labels import said
from gnnexp.reports.values.metrics import typical_epoch, values_of

_SEEDS = "Over several seeds: mean and 95 % interval (Student's t)."


@dataclass(frozen=True)
class Panel:
    """A panel of a figure.

    Attributes:
        title: what its runs have in common; empty where there is one panel.
        series: its runs by the name of their line or bar, in order of first appearance.
    """

    title: str
    series: Mapping[str, Group]


def cut(figure: Figure, runs: Sequence[Run], rows: Sequence[str]) -> list[Panel]:
    """The panels of `figure`.

    Args:
        figure: what is asked for.
        runs: of the report, those that failed too.
        rows: config keys that name a row of the report: series where the figure names none.
    """
    shown = [run for run in runs if all(run.value(key) in values for key, values in figure.where.items())]
    keys = figure.series if figure.series is not None else series_of(figure, shown, rows)
    keys = keys if MACHINE in (figure.x, *figure.panels) else with_machine(keys, shown)
    panels = []
    for of_panel in group_runs(shown, figure.panels):
        series: dict[str, Group] = {}
        for group in group_runs((*of_panel.runs, *of_panel.failed), keys):
            series[name_of(keys, group.labels)] = group
        panels.append(Panel(name_of(figure.panels, of_panel.labels), series))
    return panels


def series_of(figure: Figure, runs: Sequence[Run], rows: Sequence[str]) -> tuple[str, ...]:
    """Those of `rows` that are neither panels nor along the axis and that differ, else the system."""
    left = [key for key in rows if key not in (*figure.panels, figure.x)]
    return tuple(key for key in left if len({run.value(key) for run in runs}) > 1) or ("system",)


def name_of(keys: Sequence[str], values: Sequence[str]) -> str:
    """`p3 workers=4`: values in one line, bare numbers with their key; those that are null are left out."""
    return " ".join(said(key, value) for key, value in zip(keys, values, strict=True) if value != "null")


def names_of(panels: Iterable[Panel]) -> list[str]:
    """Every series of any panel, once: what has a colour of its own."""
    return list(dict.fromkeys(name for panel in panels for name in panel.series))


def runs_of(panels: Iterable[Panel]) -> list[Run]:
    """The finished ones."""
    return [run for panel in panels for group in panel.series.values() for run in group.runs]


def caption_of(
    panels: Sequence[Panel], metrics: Sequence[str] = (), first: str = "", seeds: str = _SEEDS,
    places: Sequence[Group] | None = None,
) -> str:
    """What a reader of the figure must know: what is drawn, over which epochs and runs, and what is missing.

    Args:
        panels: of the figure.
        metrics: that are drawn as the runs' own values.
        first: how the caption begins.
        seeds: what is drawn of several.
        places: runs that are taken together, where that is not all of a series.
    """
    where = [(name, panel, group) for panel in panels for name, group in panel.series.items()]
    notes = [first or f"{' and '.join(metrics)}: {typical_epoch(runs_of(panels))}."]
    together = [group for _, _, group in where] if places is None else places
    if any(len(group.runs) > 1 for group in together):
        notes.append(seeds)
    ended = [one for one in where if one[2].runs]
    lacking = []
    for metric in metrics:
        without = [_place(name, panel) for name, panel, group in ended if not values_of(group.runs, metric)]
        lacking += [f"{metric} of {'all' if len(without) == len(ended) > 1 else ', '.join(without)}"] if without else []
    failed = [f"{_place(name, panel)} ({group.verdict})" for name, panel, group in where if group.failed]
    if lacking:
        notes.append(f"Not recorded, not drawn: {'; '.join(lacking)}.")
    if failed:
        notes.append(f"Failed: {', '.join(failed)}.")
    if found := mixtures(together):
        notes.append(f"Runs that differ in {', '.join(found)} are taken together.")
    return " ".join(notes)


def _place(name: str, panel: Panel) -> str:
    return f"{name} on {panel.title}" if panel.title else name
