"""Checks of the options of model averaging, and the number of parts that fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gnnexp.components.facts import GraphFacts
from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.graph.parts import PartSizes
from gnnexp.paradigms.checks import plain_features, vertices_only, whole_topology
from gnnexp.paradigms.parts.needs import feature_bytes, topology_bytes

if TYPE_CHECKING:
    from gnnexp.paradigms.model_averaging import ModelAveraging

_NAME = "model_averaging"
# At most this many times the parts of section III-C: with more parts, halos hardly shrink.
_MOST_TIMES = 8


def batch_size_of(options: ModelAveraging, whole: int | None, parts: int) -> int | None:
    """Targets of a part's batch, for `whole` targets in a global batch (`train.batch_size`); None: all targets."""
    if options.local_batch_size is not None or whole is None:
        return options.local_batch_size
    return -(-whole // parts)


def memory_of(experiment: Experiment, options: ModelAveraging) -> int | None:
    """M, bytes of a rank; None if no option says it."""
    return experiment.hardware.device_memory if options.memory is None else options.memory


def option_problems(options: ModelAveraging) -> list[Problem]:
    """Invalid options."""
    found = []
    if options.sync_every < 1:
        found.append(
            Problem("paradigm.sync_every", options.sync_every, "must be 1 or more epochs", "set paradigm.sync_every=1")
        )
    if options.local_batch_size is not None and options.local_batch_size < 1:
        found.append(
            Problem(
                "paradigm.local_batch_size",
                options.local_batch_size,
                "must be 1 or more, or null",
                "set paradigm.local_batch_size=null",
            )
        )
    if options.memory is not None and options.memory < 1:
        found.append(Problem("paradigm.memory", options.memory, "must be bytes, or null", "set paradigm.memory=null"))
    return found


def check_averaging(experiment: Experiment, options: ModelAveraging) -> list[Problem]:
    """Conflicts with the other choices of the experiment."""
    every, eval_every = options.sync_every, experiment.train.eval_every
    problems = [
        *plain_features(experiment, _NAME),
        *whole_topology(experiment, _NAME),
        *vertices_only(experiment, _NAME, "the ends of a link are in different parts"),
    ]
    if (eval_every or 0) % every:
        problems.append(
            Problem(
                "train.eval_every",
                eval_every,
                f"must be a multiple of {every} (paradigm.sync_every): between averages there is no model to evaluate",
                f"set train.eval_every={every}",
            )
        )
    if experiment.schedule is not None and experiment.schedule.interval == "step":
        problems.append(
            Problem(
                "scheduler.interval",
                "step",
                "parts take turns, so that their steps are not those of the run",
                "set scheduler.interval=epoch",
            )
        )
    memory, reserve = memory_of(experiment, options), options.reserve
    if reserve is not None and not (memory is not None and 0 <= reserve < memory):
        problems.append(
            Problem(
                "paradigm.reserve",
                reserve,
                f"must be 0 or more and below the memory of a rank ({memory})",
                "set paradigm.reserve=null, or paradigm.memory",
            )
        )
    return problems


def fitting_parts(
    experiment: Experiment, facts: GraphFacts, options: ModelAveraging, sizes: Sequence[PartSizes], least: int
) -> int | Problem:
    """The number of parts that fits the memory of a rank. Section III-C counts `least` parts without their halos.

    If each cut part fits, their number. Else twice as many, if partitioner.num_parts=auto.
    """
    memory, count = memory_of(experiment, options), len(sizes)
    largest = max(topology_bytes(facts, size) + feature_bytes(facts, size) for size in sizes)
    if memory is None or largest <= memory:
        return count
    if experiment.partitioner.num_parts == "auto" and 2 * count <= min(_MOST_TIMES * least, facts.num_nodes):
        return 2 * count
    key = "hardware.device_memory" if options.memory is None else "paradigm.memory"
    return Problem(
        key,
        memory,
        f"the largest of {count} parts has {largest} bytes of topology and features, its halo included",
        f"set partitioner.num_parts={2 * count}, or {key}={largest} or more",
    )
