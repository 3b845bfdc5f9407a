"""The provenance of a run's result: code, data, machine, libraries, and the command that reproduces it."""

from __future__ import annotations

import datetime
import os
import shlex
import sys
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gnnexp.cli.running.place import Place
from gnnexp.cli.running.prepare import CheckedConfig, inputs_of
from gnnexp.config.compose import ComposedConfig
from gnnexp.config.folders import PRIMARY, VARIABLE
from gnnexp.config.yaml_files import yaml_files
from gnnexp.datasets.base import ROOT_VARIABLE, Dataset
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.run_key import run_key
from gnnexp.graph.graph import Graph
from gnnexp.paradigms.external.command import program_files
from gnnexp.provenance.code import code_of_config, own_files
from gnnexp.provenance.machine import hardware
from gnnexp.provenance.recorded import RESULT_VERSION
from gnnexp.provenance.repository import repositories
from gnnexp.provenance.versions import code_version, library_versions


def make_provenance(
    checked: CheckedConfig, dataset_key: str, partition: str | None, place: Place | None
) -> dict[str, Any]:
    """The provenance of a run: everything except the configuration itself."""
    composed, experiment = checked
    code, inputs = code_of_config(composed.config), inputs_of(experiment)
    return {
        "uid": uuid.uuid4().hex,
        "run_key": run_key(composed.config, dataset_key, code, inputs),
        "result_version": RESULT_VERSION,
        "code": code.to_json(),
        "inputs": inputs,
        "repositories": [asdict(repository) for repository in repositories(_own_places(composed, experiment))],
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        "code_version": code_version(),
        "argv": sys.argv,
        "reproduce": reproduce_command(composed.overrides, composed.config_dir, composed.folders.primary),
        "cwd": str(Path.cwd()),
        "choices": composed.choices,
        **({"sweep": None} if place is None else place.to_json()),
        "seed": experiment.seed,
        "dataset_key": dataset_key,
        "data": recorded_origin(experiment.dataset),
        "partition": partition,
        "partitioned": experiment.paradigm.wants_partition(experiment),
        "libraries": library_versions(),
        "hardware": hardware(),
    }


def _own_places(composed: ComposedConfig, experiment: Experiment) -> list[Path]:
    """Files of the user's own code and configuration, whose repositories are recorded."""
    plugins = composed.folders.plugins
    folders = [folder for folder in composed.folders.theirs if plugins.of_file(folder) is None]
    files = [file for folder in folders for file in yaml_files(folder)]
    return [*own_files(composed.config), *program_files(experiment), *files]


def recorded_origin(dataset: Dataset) -> dict[str, str | bool] | None:
    """The published data set of whose bytes a graph is made, and its source; None for data that is not published."""
    origin = dataset.origin()
    if origin is None:
        return None
    return {
        "name": dataset.name,
        "known": origin.is_known,
        "published": origin.dataset,
        "source": origin.source,
        "text": origin.text,
    }


def graph_sizes(graph: Graph) -> dict[str, int]:
    """The sizes of the data that reports and estimates need."""
    return {
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "num_features": graph.num_features,
        "num_classes": graph.num_classes,
        "num_relations": graph.num_relations,
        "num_train": graph.splits.train.numel(),
        "num_links": graph.links["train"].shape[0] if "train" in graph.links else 0,
    }


def reproduce_command(overrides: Sequence[str], config_dir: str | None, config_name: str = PRIMARY) -> str:
    """The command that reproduces the run, in the same folder with the same code."""
    words = ["gnnexp", "run", *(line for line in overrides if not line.startswith("hydra."))]
    return with_root(shlex.join([*words, *source_words(config_dir, config_name)]))


def source_words(config_dir: str | None, config_name: str) -> list[str]:
    """The options that say where a configuration comes from, as words of a command."""
    return [
        *(["--config-dir", config_dir] if config_dir else []),
        *(["--config-name", config_name] if config_name != PRIMARY else []),
    ]


def with_root(command: str) -> str:
    """`command` with the variables that name folders of data and of configurations, if they are set."""
    found = {name: os.environ.get(name) for name in (ROOT_VARIABLE, VARIABLE)}
    return "".join(f"{name}={shlex.quote(folder)} " for name, folder in found.items() if folder) + command
