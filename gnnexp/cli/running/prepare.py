"""Everything that the launching process makes before the launch: checked configuration, graph, partition."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from gnnexp.cli.running.folders import run_dir_problems
from gnnexp.components.facts import GraphFacts
from gnnexp.components.locate import missing_module, target_of
from gnnexp.components.plan import Plan
from gnnexp.config.compose import ComposedConfig, Draft, draft
from gnnexp.config.folders import PRIMARY
from gnnexp.config.plugins import note_left_out
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.experiment.build import Reading, experiment_of, read
from gnnexp.experiment.check import graph_problems
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.seen import facts_of
from gnnexp.files.cache import cache_root
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import open_partition
from gnnexp.graph.parts import open_parts
from gnnexp.graph.storage.presample import Presample
from gnnexp.graph.stream import EdgeChunk, EdgeStream
from gnnexp.launchers.local import LocalLauncher
from gnnexp.paradigms.external.command import program_files
from gnnexp.paradigms.external.files import digest_of_all, digests_of
from gnnexp.partitioners.presampled import counts_hops
from gnnexp.partitioners.streaming import StreamPartitioner
from gnnexp.preparation.artifacts import (
    graph_folder,
    prepare_graph,
    prepare_partition,
    prepare_parts,
    prepare_presample,
)
from gnnexp.preparation.preflight import MemoryEstimate, estimate_memory, memory_problems


class _Rate(ProgressColumn):
    """A column with the number of edges so far, and per second."""

    def render(self, task: Task) -> Text:
        """The column's text."""
        rate = "–" if task.speed is None else f"{task.speed / 1e6:.1f}"
        return Text(f"{task.completed / 1e6:.1f} M edges, {rate} M/s")


class WatchedStream(EdgeStream):
    """A stream that shows the progress of its passes. Without a terminal, it prints a line after each pass.

    Args:
        edges: the stream of edges.
        console: where progress is shown.
        passes: numbers for the passes.
    """

    def __init__(self, edges: EdgeStream, console: Console, passes: Iterator[int] | None = None) -> None:
        self.name, self._edges, self._console = edges.name, edges, console
        self._passes = count(1) if passes is None else passes

    @property
    def num_nodes(self) -> int:
        """Number of vertices V."""
        return self._edges.num_nodes

    @property
    def num_edges(self) -> int:
        """Number of edges E."""
        return self._edges.num_edges

    def sequential(self) -> EdgeStream:
        """The same edges in the order that is fastest to read."""
        return WatchedStream(self._edges.sequential(), self._console, self._passes)

    def chunks(self) -> Iterator[EdgeChunk]:
        """The chunks of one pass."""
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), _Rate(), TimeRemainingColumn())
        with Progress(*columns, console=self._console) as progress:
            task = progress.add_task(f"pass {next(self._passes)} over {self.name}", total=self.num_edges)
            for chunk in self._edges.chunks():
                yield chunk
                progress.advance(task, int(np.size(chunk.sources)))


@dataclass(frozen=True)
class RunArtifacts:
    """The artifacts that a run needs.

    Attributes:
        graph: the graph, validated and memory-mapped.
        facts: sizes and other facts of the graph.
        plan: plan of the paradigm, with the parts that were cut.
        folder: folder of the graph.
        key: content key of the dataset.
        partition: folder of the partition; None if nothing is placed by owner.
        parts: folder of its parts; None if ranks work on the graph.
        presample: folder of the presampled epochs that the feature cache needs; None if it needs none.
        presampled: presampled epochs for the cache or the partition: folder, epochs, seconds, convergence.
        estimate: the memory that the run needs; None with `preflight=off`.
        shortages: memories that are too small, if the run is tried in spite of them (`preflight=warn`).
    """

    graph: Graph
    facts: GraphFacts
    plan: Plan
    folder: Path
    key: str
    partition: Path | None = None
    presample: Path | None = None
    presampled: tuple[Mapping[str, Any], ...] = ()
    estimate: MemoryEstimate | None = None
    shortages: tuple[Problem, ...] = ()
    parts: Path | None = None


class CheckedConfig(NamedTuple):
    """A configuration without mistakes, and the experiment that it describes, which is built only once."""

    composed: ComposedConfig
    experiment: Experiment


def checked_config(overrides: Sequence[str], config_dir: str | None, config_name: str = PRIMARY) -> CheckedConfig:
    """Compose and check the configuration. If it has mistakes, also check the dataset's files.

    Raises:
        ConfigError: the configuration has mistakes; all of them are reported.
    """
    drafted = draft(overrides, config_dir, config_name)
    problems, experiment = _judged(drafted, lambda reading: True)
    ConfigError.raise_all(problems)
    assert drafted.composed is not None and experiment is not None
    note_left_out(drafted.composed.folders.plugins)
    return _named(CheckedConfig(drafted.composed, experiment))


def shown(overrides: Sequence[str], config_dir: str | None, config_name: str = PRIMARY) -> ComposedConfig:
    """The same for a configuration that is only shown: values that must still be given are no mistakes.

    Nor is it one that this machine cannot submit to a cluster, where the ranks would be.

    Raises:
        ConfigError: `checked_config` would report the same problems.
    """
    drafted = draft(overrides, config_dir, config_name)
    open_keys = {problem.key for problem in drafted.problems if problem.value == "???"}
    problems, _ = _judged(drafted, lambda reading: isinstance(reading.launcher, LocalLauncher))
    ConfigError.raise_all(
        [open_problem for open_problem in problems if open_problem.value != "???" and open_problem.key not in open_keys]
    )
    assert drafted.composed is not None
    note_left_out(drafted.composed.folders.plugins)
    return drafted.composed


def _judged(drafted: Draft, is_for_here: Callable[[Reading], bool]) -> tuple[list[Problem], Experiment | None]:
    """All problems of a draft, and its experiment; those of this machine only if the run would be here."""
    problems = list(drafted.problems)
    if drafted.composed is None:
        return problems, None
    reading = read(drafted.composed.config, known=problems, unsure=drafted.unsure)
    problems += [
        *reading.problems,
        *run_dir_problems(drafted.composed.run_dir),
        *(_as_typed(_machine_problems(reading), drafted.composed) if is_for_here(reading) else []),
    ]
    if problems:
        problems += _data_problems(reading, problems)
    return _with_plugins(problems, drafted.composed), reading.experiment


def _with_plugins(problems: list[Problem], composed: ComposedConfig) -> list[Problem]:
    """The problems; those of a plug-in's class name the plug-in and its file."""
    folders, plugins = composed.folders, composed.folders.plugins
    if not problems or not plugins.working:
        return problems
    chosen = composed.choices.items()
    files = {group: folders.file_of(group, choice) for group, choice in chosen if choice in folders.choices(group)}
    return plugins.named(problems, files)


def _named(checked: CheckedConfig) -> CheckedConfig:
    """The configuration with the name that the files of the dataset have, where a path was given and no name."""
    composed, dataset = checked.composed, checked.experiment.dataset
    node = composed.config["dataset"]
    if not dataset.is_published or node.get("name") == dataset.name:
        return checked
    config = {**composed.config, "dataset": {**node, "name": dataset.name}}
    return CheckedConfig(replace(composed, config=config), experiment_of(config))


def _as_typed(problems: Sequence[Problem], composed: ComposedConfig) -> list[Problem]:
    """The problems; those of the hardware as a whole name the choice that was typed."""
    chosen = composed.choices.get("hardware")
    return [replace(one, value=chosen) if one.key == "hardware" and chosen else one for one in problems]


def config_problems(reading: Reading) -> list[Problem]:
    """All problems of a configuration that is already resolved."""
    return [*reading.problems] or _machine_problems(reading)


def _machine_problems(reading: Reading) -> list[Problem]:
    """Parts of the launcher and the tracker that this machine does not support or does not have."""
    problems = [] if reading.launcher is None else reading.launcher.check_here(reading.hardware)
    return problems if reading.tracker is None else [*problems, *reading.tracker.check_here()]


def _data_problems(reading: Reading, problems: Sequence[Problem]) -> list[Problem]:
    """Problems of the data for a configuration with other mistakes, if these do not prevent the check."""
    wrong = reading.wrong | {problem.key.partition(".")[0] for problem in problems}
    if reading.dataset is None or "dataset" in wrong:
        return []
    dataset = reading.dataset
    if missing := dataset.missing():
        return missing
    try:
        key = dataset.key()
        if graph_folder(dataset, cache_root(), key).exists():
            graph, _ = prepare_graph(dataset, cache_root(), key)
        elif dataset.at_hand:
            graph = dataset.load()  # not kept: a run that cannot start writes no files
        else:
            return []
    except DataError as error:
        return list(error.problems)
    judged = {"hardware", "train", "task", "feature_store", "model", "paradigm"}
    if judged & wrong or reading.experiment is None:
        return []
    return graph_problems(reading.experiment, graph, facts_of(reading.experiment, graph))


def inputs_of(experiment: Experiment) -> dict[str, str]:
    """Digests of input files of components other than the dataset, by config key: a stored partition, a command.

    Raises:
        ConfigError, DataError: the file is missing or damaged.
    """
    digests = {}
    if experiment.partitioner.reads_file:
        options = json.dumps(experiment.partitioner.options(), sort_keys=True)
        digests["partitioner"] = hashlib.sha256(options.encode()).hexdigest()[:16]
    if files := program_files(experiment):
        digests["paradigm.command"] = digest_of_all(digests_of(files))
    return digests


def prepare(experiment: Experiment, run_dir: Path) -> RunArtifacts:
    """Load or make the graph and, if the paradigm needs one, the partition.

    Raises:
        ConfigError: the experiment does not fit the data or the memory, or needs a package that is not installed.
        DataError: the data is damaged or missing.
    """
    try:
        key = experiment.dataset.key()
        graph, folder = prepare_graph(experiment.dataset, cache_root(), key)
        facts = facts_of(experiment, graph)
        ConfigError.raise_all(graph_problems(experiment, graph, facts))
        prepared = RunArtifacts(graph, facts, experiment.paradigm.plan(experiment, facts), folder, key)
        prepared = _placed(experiment, _fit(experiment, prepared, run_dir))
        while prepared.parts is not None:  # now the sizes of the parts are known
            sizes = open_parts(prepared.parts).sizes
            prepared = replace(prepared, plan=experiment.paradigm.plan(experiment, facts, sizes))
            ConfigError.raise_all(prepared.plan.problems)
            if prepared.plan.num_parts == len(sizes):
                return _fit(experiment, prepared, run_dir)
            prepared = _placed(experiment, prepared)
        return prepared
    except ModuleNotFoundError as error:
        raise ConfigError(missing_module("dataset", target_of(experiment.dataset), error)) from error


def _fit(experiment: Experiment, prepared: RunArtifacts, run_dir: Path) -> RunArtifacts:
    """`prepared` with an estimate of the memory that the run needs, and with shortages.

    Raises:
        ConfigError: there is a shortage, and `preflight=refuse`.
    """
    if experiment.preflight == "off":
        return prepared
    num_bytes = sum(file.stat().st_size for file in prepared.folder.iterdir())
    needed = estimate_memory(experiment, prepared.facts, prepared.plan, num_bytes)
    shortages = memory_problems(needed, experiment, run_dir)
    if shortages and experiment.preflight == "refuse":
        raise ConfigError(shortages)
    return replace(prepared, estimate=needed, shortages=tuple(shortages))


def _placed(experiment: Experiment, prepared: RunArtifacts) -> RunArtifacts:
    """`prepared` with presampled epochs, the partition and its parts, as far as the plan needs them."""
    store, graph, key, plan = experiment.feature_store, prepared.graph, prepared.key, prepared.plan
    presample = partition = parts = None
    counts_of: dict[Path, Presample] = {}
    if store.presampled_epochs:
        counts, presample = _cache_counts(experiment, graph, key, partitioned=plan.num_parts is not None)
        counts_of[presample] = counts
    if plan.num_parts is not None:
        partition, sampled = prepare_owners(experiment, graph, key, plan.num_parts)
        counts_of |= sampled
    if partition is not None and plan.works_on_parts:
        owners = open_partition(partition, graph=graph)
        parts = prepare_parts(graph, owners, partition, cache_root(), full_neighbors=plan.full_neighbors)[1]
    return replace(
        prepared,
        partition=partition,
        presample=presample,
        parts=parts,
        presampled=tuple(describe_counts(*item) for item in counts_of.items()),
    )


def _cache_counts(experiment: Experiment, graph: Graph, key: str, *, partitioned: bool) -> tuple[Presample, Path]:
    """Pre-sampled counts for the cache, and their folder.

    Counts by hop contain the others, so a cache takes those of the partitioner if they are of the same epochs.
    """
    store, partitioner = experiment.feature_store, experiment.partitioner
    epochs, micro = store.presampled_epochs, store.presamples_micro
    hops = partitioned and not micro and partitioner.presampled_epochs == epochs and counts_hops(partitioner)
    return prepare_presample(experiment, graph, key, epochs, cache_root(), hops=hops, micro=micro)


def prepare_owners(
    experiment: Experiment, graph: Graph, key: str, num_ranks: int, console: Console | None = None
) -> tuple[Path, dict[Path, Presample]]:
    """The folder of the partition for `num_ranks` ranks (of a group), and the presampled epochs that it used.

    Passes over a stream are shown on `console`, if one is given.
    """
    partitioner = experiment.partitioner
    num_parts, epochs = partitioner.resolve(num_ranks), partitioner.presampled_epochs
    sampled = None
    if epochs:
        sampled = prepare_presample(experiment, graph, key, epochs, cache_root(), hops=counts_hops(partitioner))
    watched = None
    if console is not None and isinstance(partitioner, StreamPartitioner):
        watched = WatchedStream(partitioner.stream(graph), console)
    folder = prepare_partition(partitioner, graph, key, num_parts, cache_root(), sampled, watched)[1]
    return folder, {} if sampled is None else {sampled[1]: sampled[0]}


def describe_counts(folder: Path, counts: Presample) -> dict[str, Any]:
    """The description of presampled epochs in a record."""
    return {
        "folder": str(folder),
        "epochs": counts.epochs,
        "seconds": counts.seconds,
        "convergence": [dict(line) for line in counts.convergence],
    }
