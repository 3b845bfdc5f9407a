"""What the launching process makes before anything is launched: checked configuration, graph, partition."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from gnnexp.cli.running.progress import WatchedStream
from gnnexp.config.compose import Composed, draft
from gnnexp.datasets.base import Dataset
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.experiment.build import build, check_fields, missing_module
from gnnexp.experiment.check import check_config, check_data
from gnnexp.experiment.schema import HardwareConfig
from gnnexp.feature_stores.base import FeatureStore
from gnnexp.files.regular import what_is
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import open_partition
from gnnexp.graph.parts import Parts, open_parts
from gnnexp.graph.storage.presample import Presample
from gnnexp.launchers.base import Launcher
from gnnexp.paradigms.base import Paradigm
from gnnexp.partitioners.base import Partitioner
from gnnexp.partitioners.streams.streaming import StreamPartitioner
from gnnexp.preparation.artifacts import (
    cache_root,
    graph_folder,
    prepare_graph,
    prepare_partition,
    prepare_parts,
    prepare_presample,
)
from gnnexp.preparation.preflight import Estimate, estimate, judge
from gnnexp.provenance.code import remember_own
from gnnexp.trackers.base import Tracker

_MOST_NAME_BYTES = 255


@dataclass(frozen=True)
class Prepared:
    """What a run needs of the artifact cache.

    Attributes:
        graph: validated and mapped.
        folder: of the graph.
        key: content key of the dataset.
        partition: folder of the partition, None where nothing is placed by owner.
        parts: folder of its parts, None where ranks work on the graph.
        presample: folder of the pre-sampled epochs that the feature cache asks for, None where nothing does.
        presampled: what was pre-sampled, for the cache or the partition: folder, epochs, seconds, convergence.
        estimate: of the memory that the run needs, None where nobody asked (`preflight=off`).
        shortages: what there is not enough of, where the run may be tried all the same (`preflight=warn`).
    """

    graph: Graph
    folder: Path
    key: str
    partition: Path | None
    presample: Path | None
    presampled: tuple[Mapping[str, Any], ...] = ()
    estimate: Estimate | None = None
    shortages: tuple[Problem, ...] = ()
    parts: Path | None = None


def checked(overrides: Sequence[str], config_dir: str | None) -> Composed:
    """Compose and check; where something is wrong, look for the files of the dataset too.

    Raises:
        ConfigError: with every problem.
    """
    made = draft(overrides, config_dir)
    problems = list(made.problems)
    if made.composed is not None:
        config = made.composed.config
        _remember(config)
        problems += check_config(config, known=problems, unsure=made.unsure)
        problems += check_run_dir(made.composed.run_dir)
        if "hardware" not in made.unsure:
            problems += _machine_problems(config)
        if "tracker" not in made.unsure:
            problems += _tracker_problems(config)
        wrong = made.unsure | {problem.key.partition(".")[0] for problem in problems}
        if problems and "dataset" not in wrong:
            problems += _data_problems(config, wrong)
    if problems:
        raise ConfigError(problems)
    assert made.composed is not None
    return made.composed


def problems_of(config: Mapping[str, Any]) -> list[Problem]:
    """Everything wrong with a configuration that is resolved already."""
    _remember(config)
    return check_config(config) or [*_machine_problems(config), *_tracker_problems(config)]


def _remember(config: Mapping[str, Any]) -> None:
    """Keep which code this command begins with, before it imports any; what cannot be read fails at its import."""
    with suppress(DataError):
        remember_own(config)


def _machine_problems(config: Mapping[str, Any]) -> list[Problem]:
    """What this machine cannot do, of a profile whose values are of the right types."""
    profile = {key: value for key, value in config["hardware"].items() if key != "launcher"}
    launcher = config["hardware"].get("launcher")
    if check_fields("hardware", HardwareConfig, profile) or not isinstance(launcher, Mapping):
        return []
    try:
        return build(launcher, Launcher).check_here(config)
    except ConfigError:  # what its constructor refuses is said already
        return []


def _tracker_problems(config: Mapping[str, Any]) -> list[Problem]:
    """What the tracker lacks on this machine."""
    try:
        return build(config["tracker"], Tracker).check_here()
    except ConfigError:  # what its constructor refuses is said already
        return []


def _data_problems(config: Mapping[str, Any], wrong: Collection[str]) -> list[Problem]:
    """What is wrong with the data of a configuration that has mistakes elsewhere, as far as that can be judged."""
    dataset = dataset_of(config)
    if missing := dataset.missing():
        return missing
    try:
        if graph_folder(dataset, cache_root()).exists():
            graph, _ = prepare_graph(dataset, cache_root())
        elif dataset.at_hand:
            graph = dataset.load()  # and not kept: nothing is written for a run that cannot start
        else:
            return []
    except DataError as error:
        return list(error.problems)
    judged = {"hardware", "train", "task", "feature_store", "model", "paradigm"}
    return [] if judged & set(wrong) else check_data(config, graph)


def check_run_dir(run_dir: Path) -> list[Problem]:
    """Whether the run directory is there already, or cannot be made."""
    if os.path.lexists(run_dir):
        return [Problem("hydra.run.dir", str(run_dir), "a run never writes into a folder that exists",
                        "name a new one, or remove it; gnnexp run --rerun keeps the run that is there under another "
                        "name and runs it again")]
    return check_folder("hydra.run.dir", run_dir)


def check_folder(key: str, folder: Path) -> list[Problem]:
    """Whether files can be written into `folder`, which is made where it is missing."""
    if too_long := _check_names(key, folder):
        return too_long
    above = next((one for one in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(one)), Path("/"))
    if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
        return []
    why = "may not be written to" if above.is_dir() else _no_folder(above)
    return [Problem(key, str(folder), f"cannot be made: {above} {why}", f"{key}=<a folder that you may write to>")]


def _no_folder(path: Path) -> str:
    leads_nowhere = path.is_symlink() and not path.exists()
    return f"is a link that leads nowhere ({path.readlink()})" if leads_nowhere else "is no folder"


def check_new_file(key: str, file: Path) -> list[Problem]:
    """Whether a file can be written there: nothing else may have its name; a file that is there will be replaced."""
    if os.path.lexists(file) and (why := what_is(file)):
        return [Problem(key, str(file), f"cannot be written: {why}", f"{key}=<a file that is not there>")]
    return _check_names(key, file) or check_folder(key, file.parent)


def _check_names(key: str, path: Path) -> list[Problem]:
    if all(len(os.fsencode(part)) <= _MOST_NAME_BYTES for part in path.parts):
        return []
    return [Problem(key, f"{str(path)[:40]}…", f"a name has at most {_MOST_NAME_BYTES} bytes", "take a shorter name")]


def dataset_of(config: Mapping[str, Any]) -> Dataset:
    """The dataset of a configuration.

    Raises:
        ConfigError: if it needs a package that is not installed.
    """
    return build(config["dataset"], Dataset)


def inputs_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Digests of what components other than the dataset read from files, by config key: of a stored partition.

    Raises:
        ConfigError, DataError: it is not there, or damaged.
    """
    if not config["partitioner"].get("path"):
        return {}
    options = json.dumps(build(config["partitioner"], Partitioner).options(), sort_keys=True)
    return {"partitioner": hashlib.sha256(options.encode()).hexdigest()[:16]}


def prepare(config: Mapping[str, Any], run_dir: Path) -> Prepared:
    """Graph and, if the paradigm wants one, partition, from the cache or made now.

    Raises:
        ConfigError: the configuration does not fit the data or the memory, or needs a package that is not installed.
        DataError: the data is damaged or missing.
    """
    _remember(config)  # a process that makes one case of a sweep has not imported the user's code yet
    try:
        dataset = dataset_of(config)
        graph, folder = prepare_graph(dataset, cache_root())
        if problems := check_data(config, graph):
            raise ConfigError(problems)
        needed, shortages = _preflight(config, graph, folder, run_dir)
        prepared = _with_parts(config, graph, folder, dataset.key())
        if prepared.parts is not None:  # now it is known how large they are
            parts = open_parts(prepared.parts)
            paradigm: Paradigm[Any] = build(config["paradigm"], Paradigm)
            if problems := paradigm.check_parts(config, graph, parts):
                raise ConfigError(problems)
            needed, shortages = _preflight(config, graph, folder, run_dir, parts)
        return replace(prepared, estimate=needed, shortages=shortages)
    except ModuleNotFoundError as error:
        raise ConfigError(missing_module("dataset", config["dataset"]["_target_"], error)) from error


def _preflight(
    config: Mapping[str, Any], graph: Graph, folder: Path, run_dir: Path, parts: Parts | None = None
) -> tuple[Estimate | None, tuple[Problem, ...]]:
    """What the run needs, and what of it is not there.

    Raises:
        ConfigError: something is not there, and `preflight=refuse`.
    """
    if config.get("preflight") == "off":
        return None, ()
    needed = estimate(config, graph, sum(file.stat().st_size for file in folder.iterdir()), parts)
    shortages = judge(needed, config, run_dir)
    if shortages and config.get("preflight", "refuse") == "refuse":
        raise ConfigError(shortages)
    return needed, tuple(shortages)


def _with_parts(config: Mapping[str, Any], graph: Graph, folder: Path, key: str) -> Prepared:
    """Pre-sampled epochs and the partition, where they are wanted."""
    paradigm: Paradigm[Any] = build(config["paradigm"], Paradigm)
    store = build(config["feature_store"], FeatureStore)
    presample = partition = None
    found: dict[Path, Presample] = {}
    if store.needs_presampling:
        counts, presample = prepare_presample(config, graph, key, store.presampled_epochs, cache_root())
        found[presample] = counts
    if paradigm.wants_partition(config):
        num_parts = paradigm.num_parts(config, graph)
        partition, sampled = prepare_owners(config, graph, key, num_parts)
        found |= sampled
    parts = None
    if partition is not None and paradigm.works_on_parts:
        full = bool(config["paradigm"].get("full_neighbors", True))
        owners = open_partition(partition, graph=graph)
        parts = prepare_parts(graph, owners, partition, cache_root(), full_neighbors=full)[1]
    return Prepared(graph, folder, key, partition, presample, tuple(told(*item) for item in found.items()), parts=parts)


def prepare_owners(
    config: Mapping[str, Any], graph: Graph, key: str, num_ranks: int, console: Console | None = None
) -> tuple[Path, dict[Path, Presample]]:
    """The folder of the partition of `config` for `num_ranks` ranks (of a group), and what was pre-sampled for it.

    Passes over a stream are shown on the `console`, if there is one.
    """
    partitioner = build(config["partitioner"], Partitioner)
    num_parts, epochs = partitioner.resolve(num_ranks), partitioner.presampled_epochs
    sampled = prepare_presample(config, graph, key, epochs, cache_root()) if epochs else None
    watched = None
    if console is not None and isinstance(partitioner, StreamPartitioner):
        watched = WatchedStream(partitioner.stream(graph), console)
    folder = prepare_partition(partitioner, graph, key, num_parts, cache_root(), sampled, watched)[1]
    return folder, {} if sampled is None else {sampled[1]: sampled[0]}


def told(folder: Path, counts: Presample) -> dict[str, Any]:
    """What a record says of pre-sampled epochs."""
    return {"folder": str(folder), "epochs": counts.epochs, "seconds": counts.seconds,
            "convergence": [dict(line) for line in counts.convergence]}
