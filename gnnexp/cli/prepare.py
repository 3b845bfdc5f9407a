"""What the launching process makes before anything is launched: checked configuration, graph, partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnexp.config.build import build, locate, missing_module
from gnnexp.config.check import check_config, check_data
from gnnexp.config.compose import Composed, compose
from gnnexp.config.schema import run_config
from gnnexp.datasets.base import Dataset
from gnnexp.errors import ConfigError
from gnnexp.graph.graph import Graph
from gnnexp.partitioners.base import Partitioner
from gnnexp.prepare import cache_root, prepare_graph, prepare_partition


@dataclass(frozen=True)
class Prepared:
    """What a run needs of the artifact cache.

    Attributes:
        graph: validated and mapped.
        folder: of the graph.
        key: content key of the dataset.
        partition: folder of the partition, None where the paradigm needs none.
    """

    graph: Graph
    folder: Path
    key: str
    partition: Path | None


def checked(overrides: Sequence[str], config_dir: str | None) -> Composed:
    """Compose and check.

    Raises:
        ConfigError: with every problem.
    """
    composed = compose(overrides, config_dir)
    if problems := check_config(composed.config):
        raise ConfigError(problems)
    return composed


def dataset_of(config: Mapping[str, Any]) -> Dataset:
    """The dataset of a configuration.

    Raises:
        ConfigError: if it needs a package that is not installed.
    """
    return build(config["dataset"], Dataset)


def prepare(config: Mapping[str, Any]) -> Prepared:
    """Graph and, if the paradigm wants one, partition, from the cache or made now.

    Raises:
        ConfigError: the configuration does not fit the data, or needs a package that is not installed.
        DataError: the data is damaged or missing.
    """
    try:
        dataset = dataset_of(config)
        graph, folder = prepare_graph(dataset, cache_root())
        if problems := check_data(config, graph):
            raise ConfigError(problems)
        key = dataset.key()
        wants = bool(getattr(locate(config["paradigm"]["_target_"]), "needs_partition", False))
        return Prepared(graph, folder, key, _partition(config, graph, key) if wants else None)
    except ModuleNotFoundError as error:
        raise ConfigError(missing_module("dataset", config["dataset"]["_target_"], error)) from error


def _partition(config: Mapping[str, Any], graph: Graph, key: str) -> Path:
    partitioner = build(config["partitioner"], Partitioner)
    num_parts = partitioner.resolve(run_config(config).hardware.num_ranks)
    return prepare_partition(partitioner, graph, key, num_parts, cache_root())[1]
