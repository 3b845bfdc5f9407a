"""`gnnexp run --dry-run`: the checked plan of a run and the memory that it needs. Nothing is prepared or written."""

from __future__ import annotations

import argparse

from rich.console import Console

from gnnexp.cli.console import made_table, make_console, marked
from gnnexp.cli.output import Answer
from gnnexp.cli.running.prepare import checked_config
from gnnexp.components.facts import Memory
from gnnexp.components.plan import Plan
from gnnexp.datasets.base import Dataset
from gnnexp.datasets.generated.shapes import SizeOptions
from gnnexp.datasets.published.digits import Digits
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.check import graph_problems, split_notes
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.seen import facts_of
from gnnexp.files.cache import cache_root
from gnnexp.graph.graph import Graph
from gnnexp.graph.storage.format import open_graph
from gnnexp.preparation.artifacts import graph_folder
from gnnexp.preparation.preflight import MemoryEstimate, as_text, estimate_memory, memory_problems

# Data that is not prepared is read or generated here, in memory, up to this size.
MOST_BYTES = 1 << 27
_PLACES: tuple[Memory, ...] = ("host", "device", "shared", "disk")


def dry_run(options: argparse.Namespace) -> Answer:
    """Check a run, and show what it would do.

    Raises:
        ConfigError, DataError: the run could not start; the same problems that it would report.
    """
    composed, experiment = checked_config(options.overrides, options.config_dir, options.config_name)
    console = make_console()
    document: dict[str, object] = {
        "run_dir": str(composed.run_dir),
        "choices": composed.choices,
        "system": experiment.system,
        "ranks": experiment.num_ranks,
        "parts": None,
        "approximates": None,
        "bytes": None,
        "shortages": [],
    }
    rows = [
        ("system", experiment.system or str(composed.choices["paradigm"])),
        ("dataset, model", f"{composed.choices['dataset']}, {composed.choices['model']}"),
        ("ranks", f"{experiment.num_ranks} on {experiment.hardware.device}"),
        ("run directory", str(composed.run_dir)),
    ]
    graph, size = _graph(experiment)
    if graph is None:
        _tell(console, rows)
        console.print(
            "the data is not prepared, so memory and disk are not known yet: gnnexp run prepares it, and "
            "checks them before it starts",
            soft_wrap=True,
        )
        return Answer(document)
    facts = facts_of(experiment, graph)
    ConfigError.raise_all(graph_problems(experiment, graph, facts))
    plan = experiment.paradigm.plan(experiment, facts)
    ConfigError.raise_all(plan.problems)
    needed = estimate_memory(experiment, facts, plan, size)
    shortages = memory_problems(needed, experiment, composed.run_dir) if experiment.preflight != "off" else []
    if shortages and experiment.preflight == "refuse":
        raise ConfigError(shortages)
    _tell(console, [*rows, *_planned(experiment, plan, needed)])
    _warn(console, shortages)
    for note in split_notes(experiment, graph):
        console.print(f"note: {note}", soft_wrap=True)
    return Answer(
        {
            **document,
            "parts": plan.num_parts,
            "approximates": plan.approximates,
            "bytes": {place: needed.total(place) for place in _PLACES},
            "shortages": [str(problem) for problem in shortages],
        }
    )


def _graph(experiment: Experiment) -> tuple[Graph | None, int]:
    """The prepared graph and the bytes of its files, or of small data. None if it must be prepared first."""
    dataset, folder = experiment.dataset, graph_folder(experiment.dataset, cache_root())
    if folder.exists():
        return open_graph(folder), sum(file.stat().st_size for file in folder.iterdir())
    size = _size(dataset)
    return (None, 0) if size is None or size > MOST_BYTES else (dataset.load(), size)


def _size(dataset: Dataset) -> int | None:
    """Bytes of the data, about; None if it is downloaded or can only be read as a stream."""
    if isinstance(dataset, SizeOptions):
        return 4 * (dataset.sizes.num_edges + dataset.sizes.num_nodes * (dataset.sizes.num_features + 2))
    if isinstance(dataset, Digits) or dataset.at_hand:
        return sum(file.stat().st_size for file in dataset.sources())
    return None


def _planned(experiment: Experiment, plan: Plan, needed: MemoryEstimate) -> list[tuple[str, str]]:
    placed = experiment.paradigm.wants_partition(experiment)
    parts = f"{plan.num_parts or experiment.num_ranks} by {experiment.partitioner.method}" if placed else "none"
    totals = [(f"{place} memory" if place != "disk" else place, as_text(needed.total(place))) for place in _PLACES]
    return [("parts", parts), ("differs from serial training", plan.approximates or "no: exact"), *totals]


def _tell(console: Console, rows: list[tuple[str, str]]) -> None:
    console.print(made_table(("dry run", ""), rows))


def _warn(console: Console, shortages: list[Problem]) -> None:
    for shortage in shortages:
        console.print(marked("warning", "yellow", f" {shortage}"), soft_wrap=True)
