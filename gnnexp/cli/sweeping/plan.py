"""What a sweep is about to do: how many runs, and how much they will write."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from gnnexp.cli.sweeping.cases import State
from gnnexp.cli.sweeping.definition import Sweep
from gnnexp.config.compose import Composed
from gnnexp.experiment.build import experiment_of
from gnnexp.experiment.check import check_data
from gnnexp.experiment.seen import facts_of
from gnnexp.graph.graph import Graph
from gnnexp.graph.storage.format import open_graph
from gnnexp.preparation.artifacts import cache_root, graph_folder
from gnnexp.preparation.preflight import as_text, estimate


def disk_of(composed: Sequence[Composed], states: Sequence[State]) -> tuple[int, int]:
    """Bytes that the waiting runs will write about, and of how many nobody knows: their data is not prepared yet."""
    graphs: dict[str, Graph | None] = {}
    total = unknown = 0
    for one, state in zip(composed, states, strict=True):
        if state.status != "waiting":
            continue
        experiment = experiment_of(one.config)
        node = experiment.config.group("dataset").text()
        if node not in graphs:
            folder = graph_folder(experiment.dataset, cache_root())
            graphs[node] = open_graph(folder) if folder.exists() else None
        graph = graphs[node]
        facts = None if graph is None else facts_of(experiment, graph)
        if graph is None or facts is None or check_data(experiment, graph, facts):
            unknown += 1
        else:
            total += estimate(experiment, facts, experiment.paradigm.plan(experiment, facts), 0).total("disk")
    return total, unknown


def tell_plan(console: Console, sweep: Sweep, states: Sequence[State], disk: tuple[int, int]) -> None:
    """Runs, skipped ones, disk."""
    before = sum(state.status == "finished before" for state in states)
    begun = sum(state.status == "waiting" and bool(state.run_dir) for state in states)
    total, unknown = disk
    written = f"about {as_text(total)} on disk" + (f" and {unknown} runs whose data is not prepared" if unknown else "")
    foreign = sum(state.status == "waiting" and "--accept-foreign" in state.reason for state in states)
    runs = f"{len(states)} runs, {before} finished before, {begun} to go on with"
    runs += f", {foreign} there from another kind of machine (--accept-foreign takes them)" if foreign else ""
    console.print(f"sweep {sweep.name}: {runs}; {written}. {sweep.description}", soft_wrap=True)
