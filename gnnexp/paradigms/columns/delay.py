"""A first layer that runs some steps ahead: its options, its memory, and what is recorded of it."""

from __future__ import annotations

import math

import torch

from gnnexp.components.facts import GraphFacts, Need
from gnnexp.components.locate import target_of
from gnnexp.components.plan import Drawn
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.models.layer import Layer
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.largest_batch import LargestBatch


def check_delay(delay: int) -> None:
    """Refuse a `paradigm.delay` that makes no sense.

    Raises:
        ConfigError: it is negative.
    """
    if delay < 0:
        allowed = "must be 0 (exact) or more steps"
        raise ConfigError([Problem("delay", delay, allowed, "set paradigm.delay=0, or 2 as in p3_pipelined")])


def delay_problems(experiment: Experiment, delay: int) -> list[Problem]:
    """Trained rows cannot be read some steps ahead: the rows, and not only the weights, would be old."""
    if not delay or experiment.feature_store.trained_columns is None:
        return []
    return [
        Problem(
            "paradigm.delay",
            delay,
            f"{target_of(experiment.feature_store)} trains rows, which would be read before earlier steps update them",
            "set paradigm.delay=0, or choose feature_store=sliced",
        )
    ]


def most_ahead(experiment: Experiment, facts: GraphFacts, delay: int) -> int:
    """Steps by which the first layer runs ahead at most: an epoch has no more batches."""
    train, examples = experiment.train, facts.num_train if facts.num_links is None else facts.num_links
    batches = 1 if train.batch_size is None else math.ceil(examples / train.batch_size)
    return min(delay, max(0, min(batches, train.steps_per_epoch or batches) - 1))


def ahead_need(experiment: Experiment, facts: GraphFacts, drawn: Drawn, ahead: int) -> Need:
    """Memory of `ahead` batches whose first layer has run, or is under way, and which do not train yet.

    A rank has the first block of every rank. What is counted twice is there before and after a step: rows (dropout),
    and parts of the first layer (packed to be sent). With attention, edges have values.
    """
    model, num_ranks = experiment.model, experiment.num_ranks
    batch, layer = LargestBatch.of(drawn, experiment.sampler, model), model.example_layer
    assert isinstance(layer, Layer), "checked before"
    itemsize = torch.empty(0, dtype=getattr(torch, experiment.train.dtype)).element_size()
    row, width = facts.row_bytes(itemsize), model.hidden if model.layers > 1 else facts.num_classes
    inputs, destinations, edges = batch.vertices[-1], batch.vertices[-2], batch.hop_edges[-1]
    rows = row * (2 * inputs + layer.num_weights * destinations)
    parts = itemsize * num_ranks * (2 * width * (inputs + destinations) + model.values_per_edge * edges)
    blocks = 8 * (batch.edges + (num_ranks - 1) * edges)
    return Need(f"{ahead} first layers ahead, with their batches", "device", ahead * (rows + parts + blocks))


def pull_facts(job: Job, *, in_background: bool) -> dict[str, str]:
    """Where first layers are pulled, for the record."""
    why = ": NCCL lets one thread launch at a time" if job.device.type == "cuda" and job.comm.size > 1 else ""
    return {"first_layers": "pulled in the background" if in_background else f"pulled in the loop{why}"}
