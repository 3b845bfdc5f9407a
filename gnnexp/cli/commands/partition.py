"""`gnnexp partition`: make a partition, keep it, and show its quality."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gnnexp.cli.console import describe_graph, describe_presample, made_table, make_console
from gnnexp.cli.output import Answer
from gnnexp.cli.running.prepare import WatchedStream, checked_config, describe_counts, prepare_owners
from gnnexp.components.locate import missing_module, target_of
from gnnexp.errors import ConfigError
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.seen import facts_of
from gnnexp.files.cache import cache_root
from gnnexp.graph.partition import Partition, open_partition
from gnnexp.partitioners.streaming import StreamPartitioner
from gnnexp.preparation.artifacts import QUALITY, prepare_graph, prepare_stream_partition, read_quality


def main(options: argparse.Namespace) -> Answer:
    """Partition the dataset of the configuration."""
    experiment = checked_config(options.overrides, options.config_dir, options.config_name).experiment
    console = make_console()
    try:
        key = experiment.dataset.key()
        partition, folder = _from_stream(experiment, key, console) or _from_graph(experiment, key, console)
    except ModuleNotFoundError as error:
        raise ConfigError(missing_module("partitioner", target_of(experiment.partitioner), error)) from error
    report = read_quality(folder)
    console.print(_overall(report, partition))
    console.print(_parts(report))
    console.print(f"partition: {folder}\nquality: {folder / QUALITY}", soft_wrap=True)
    return Answer(
        {"partition": str(folder), "method": partition.method, "num_parts": partition.num_parts, "quality": report}
    )


def _from_graph(experiment: Experiment, key: str, console: Console) -> tuple[Partition, Path]:
    """A partition of the prepared graph, and its folder. `key` is the content key of the dataset."""
    graph, _ = prepare_graph(experiment.dataset, cache_root(), key)
    console.print(describe_graph(graph), soft_wrap=True)
    if experiment.partitioner.presampled_epochs and (problems := experiment.task.check_data(graph)):
        raise ConfigError(problems)  # batches are sampled, so there must be training targets
    plan = experiment.paradigm.plan(experiment, facts_of(experiment, graph))
    folder, sampled = prepare_owners(experiment, graph, key, plan.num_parts or experiment.num_ranks, console)
    for item in sampled.items():
        console.print(describe_presample(describe_counts(*item)), soft_wrap=True)
    return open_partition(folder, graph=graph), folder


def _from_stream(experiment: Experiment, key: str, console: Console) -> tuple[Partition, Path] | None:
    """A partition of the dataset's edge stream, without a graph. None if the dataset or partitioner does not stream."""
    dataset, partitioner = experiment.dataset, experiment.partitioner
    edges = dataset.stream()
    if edges is None or not isinstance(partitioner, StreamPartitioner):
        return None
    watched = WatchedStream(edges, console)
    num_parts = partitioner.resolve(experiment.num_ranks)
    return prepare_stream_partition(partitioner, dataset, key, watched, num_parts, cache_root())


def _overall(report: dict[str, float], partition: Partition) -> Table:
    rows = [
        (name, f"{value:.4f}")
        for name, value in report.items()
        if "/" not in name and name != "parts" and name not in partition.cost
    ]
    rows += [
        (name, f"{value:,.0f}" if name.endswith("_bytes") else f"{value:.2f}") for name, value in partition.cost.items()
    ]
    return made_table(("quality", ""), rows, f"{partition.method}, {partition.num_parts} parts")


def _parts(report: dict[str, float]) -> Table:
    columns = ("vertices", "edges", "train", "halo")
    return made_table(
        ("part", *columns),
        (
            (str(part), *(f"{int(report[f'part{part}/{column}']):,}" for column in columns))
            for part in range(int(report["parts"]))
        ),
        "parts",
    )
