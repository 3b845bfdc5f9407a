"""Reports other than the comparison table, by the word that asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gnnexp.record.runs import MACHINE, Run
from gnnexp.reports.kinds import (
    balance,
    balance_figure,
    heterogeneous,
    partitioning,
    partitioning_figure,
    redundancy,
    splitting,
    tasks,
)
from gnnexp.reports.offload import figure as offload_figure
from gnnexp.reports.offload import offload
from gnnexp.reports.table import Table, stack


class Kind(NamedTuple):
    """How a report is made.

    Attributes:
        make_table: of the runs.
        draw: saves the figures of the runs in a folder, under a title; the files. None where there is nothing to draw.
    """

    make_table: Callable[[Sequence[Run]], Table]
    draw: Callable[[Sequence[Run], Path, str], list[Path]] | None = None


KINDS: Mapping[str, Kind] = {
    "redundancy": Kind(redundancy.make_table),
    "splitting": Kind(splitting.make_table, splitting.draw),
    "balance": Kind(balance.make_table, balance_figure.draw),
    "offload": Kind(offload.make_table, offload_figure.draw),
    "partitioning": Kind(partitioning.make_table, partitioning_figure.draw),
    "heterogeneous": Kind(heterogeneous.make_table),
    "tasks": Kind(tasks.make_table, tasks.draw),
}


def make_table(kind: str, runs: Sequence[Run]) -> Table:
    """The table of a kind of report; where runs were made on several kinds of machines, each kind has its own rows."""
    by_machine = _by_machine(runs)
    if len(by_machine) == 1:
        return KINDS[kind].make_table(runs)
    return stack({machine: KINDS[kind].make_table(made) for machine, made in by_machine.items()}, MACHINE)


def draw(kind: str, runs: Sequence[Run], folder: Path, title: str) -> list[Path]:
    """Save the figures of a kind of report; the files. Each kind of machine has figures of its own, in a folder."""
    drawn = KINDS[kind].draw
    if drawn is None:
        return []
    by_machine = _by_machine(runs)
    if len(by_machine) == 1:
        return drawn(runs, folder, title)
    return [file for number, (machine, made) in enumerate(by_machine.items(), 1)
            for file in drawn(made, folder / f"machine{number}", f"{title}, {machine}")]


def _by_machine(runs: Sequence[Run]) -> Mapping[str, list[Run]]:
    """Runs by the kind of machine, in order of first appearance."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.machine, []).append(run)
    return found
