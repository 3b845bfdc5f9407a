"""Reports other than the comparison table, by the word that asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gnnexp.record.runs import Run
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
from gnnexp.reports.table import Table


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
