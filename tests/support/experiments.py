"""Experiments of tests: what a configuration does not say is as in `small_config`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnexp.comm.environment import Environment
from gnnexp.components.facts import GraphFacts
from gnnexp.components.plan import Plan, Sizes
from gnnexp.components.setting import Setting
from gnnexp.errors import Problem
from gnnexp.experiment.build import experiment_of, read
from gnnexp.experiment.check import graph_problems
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.seen import facts_of
from gnnexp.graph.graph import Graph
from gnnexp.graph.parts import Parts
from gnnexp.paradigms.base import Paradigm, trainer_of
from gnnexp.paradigms.job import Job
from gnnexp.preparation.preflight import MemoryEstimate, estimate_memory
from gnnexp.record.records import EpochLog, read_epochs
from gnnexp.testing.steps import MODELS, small_config
from gnnexp.training.assemble import Artifacts, assemble
from gnnexp.training.train import probe_memory, train


def check_config(config: Mapping[str, Any], **known: Any) -> list[Problem]:
    """All that is wrong with a resolved configuration."""
    return list(read(config, **known).problems)


def experiment_in(config: Mapping[str, Any]) -> Experiment:
    """Of a resolved configuration, whole or of some groups; of `hardware` and `train` some keys may be missing."""
    plain = small_config(MODELS["sage"])
    filled = {**plain, **config}
    for group in ("hardware", "train", "optimizer"):
        filled[group] = {**plain[group], **config.get(group, {})}
    return experiment_of(filled)


def trained(
    config: Mapping[str, Any], artifacts: Artifacts, folder: Path, environment: Environment
) -> list[dict[str, Any]]:
    """The records of a run on this rank, trained as a worker does it."""
    job = assemble(experiment_of(config), artifacts, folder, environment)
    probed = probe_memory(job)
    train(job, trainer_of(job), EpochLog(folder, environment.rank), probed)
    return read_epochs(folder)


def assembled(
    config: Mapping[str, Any], artifacts: Artifacts, folder: Path, environment: Environment
) -> tuple[Job, Any]:
    """A rank's job and its trainer, of a whole resolved configuration."""
    job = assemble(experiment_of(config), artifacts, folder, environment)
    return job, trainer_of(job)


def data_problems(config: Mapping[str, Any], graph: Graph) -> list[Problem]:
    """What of a configuration (`experiment_in`) does not fit a graph."""
    experiment = experiment_in(config)
    return graph_problems(experiment, graph, facts_of(experiment, graph))


def seen(config: Mapping[str, Any], graph: Graph) -> tuple[Experiment, GraphFacts]:
    """A configuration's experiment (`experiment_in`), and what it knows of a graph."""
    experiment = experiment_in(config)
    return experiment, facts_of(experiment, graph)


def setting_in(config: Mapping[str, Any]) -> Setting:
    """What options may know of a configuration's other choices (`experiment_in`)."""
    return experiment_in(config).setting


def setting_and_facts(config: Mapping[str, Any], graph: Graph) -> tuple[Setting, GraphFacts]:
    """The same, and facts of a graph."""
    experiment, facts = seen(config, graph)
    return experiment.setting, facts


def planned(experiment: Experiment, graph: Graph, paradigm: Paradigm | None = None, sizes: Sizes = None) -> Plan:
    """What a paradigm, or the experiment's own, wants on a graph."""
    return (paradigm or experiment.paradigm).plan(experiment, facts_of(experiment, graph), sizes)


def estimated(
    config: Mapping[str, Any], graph: Graph, graph_files: int = 0, parts: Parts | None = None
) -> MemoryEstimate:
    """The preflight's estimate of a configuration (`experiment_in`)."""
    experiment = experiment_in(config)
    plan = planned(experiment, graph, sizes=None if parts is None else parts.sizes)
    return estimate_memory(experiment, facts_of(experiment, graph), plan, graph_files)
