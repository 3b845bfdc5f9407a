"""Chunks that stay on the device (`paradigm.resident_memory`), and the memory that is left for them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from gnnexp.components.facts import Need
from gnnexp.components.locate import choice_of
from gnnexp.components.options import rule_problems
from gnnexp.components.plan import Resident, activation_bytes
from gnnexp.components.schema import HardwareConfig
from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.optimization import entries_of
from gnnexp.feature_stores.cache import available_bytes
from gnnexp.paradigms.checks import has_block_layers
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.chunking import Chunking
from gnnexp.placement.chunks import Chunk
from gnnexp.tiers.resident import prefix

_KEY = "paradigm.resident_memory"


def resident_problems(experiment: Experiment, chunking: Chunking) -> list[Problem]:
    """Conflicts of `resident_memory` with the memory of the device."""
    wanted, limit = chunking.resident, experiment.hardware.device_memory
    return rule_problems(
        (
            wanted != "fit" or not has_block_layers(experiment),
            _KEY,
            wanted,
            f"what layers of {choice_of(experiment.model)} take is not known",
            "set paradigm.resident_memory=<bytes>",
        ),
        (
            not isinstance(wanted, int) or limit is None or wanted <= limit,
            _KEY,
            wanted,
            f"is more than hardware.device_memory={limit}",
            "set paradigm.resident_memory=fit",
        ),
    )


def keep_resident(
    job: Job, chunking: Chunking, chunks: Sequence[Chunk], dearest: int, static: Iterable[Tensor | None] = ()
) -> None:
    """Say which chunks stay in the job's device tier: none without `resident_memory`.

    Args:
        job: job of the rank.
        chunking: the option.
        chunks: chunks of the rank that visit the device, in order.
        dearest: bytes of the dearest chunk, for `fit`.
        static: weights of all edges that are the same in every epoch; None for ones.
    """
    if chunking.resident is None:
        return
    budget = room_for_chunks(job, dearest) if chunking.resident == "fit" else chunking.resident
    blocks = list(dict.fromkeys(chunk.block for chunk in chunks))
    weights = [values for values in static if values is not None]
    job.tier.resident = prefix(blocks, budget, weights, reads_transpose=job.tier.reads_transpose)


def room_for_chunks(job: Job, dearest: int) -> float:
    """Bytes of the rank's device that a run leaves to chunks that stay; infinite if the device is RAM without a limit.

    The rest is for the dearest chunk, for parameters, gradients and the optimizer's states, and for rows that stay on a
    GPU. On CPU these rows are in the host tier.
    """
    limit = device_limit(job.experiment.hardware, job.device)
    parameters = sum(parameter.nbytes for parameter in job.model.parameters())
    rows = 0 if job.device.type == "cpu" or job.plan.resident is None else _rows_bytes(job, job.plan.resident)
    return limit - dearest - (2 + entries_of(job.experiment.optimizer)) * parameters - rows


def device_limit(hardware: HardwareConfig, device: torch.device) -> float:
    """Bytes that a rank may use on its device: `hardware.device_memory`, on a GPU at most its share of free memory."""
    limit = math.inf if hardware.device_memory is None else hardware.device_memory
    if device.type == "cuda":  # ranks that share a GPU share its memory
        limit = min(limit, available_bytes(device) // -(-hardware.workers // max(1, torch.cuda.device_count())))
    return limit


def resident_needs(chunking: Chunking) -> tuple[Need, ...]:
    """Device memory of chunks that stay, if it is given."""
    wanted = chunking.resident
    return (Need("chunks that stay (paradigm.resident_memory)", "device", wanted),) if isinstance(wanted, int) else ()


def _rows_bytes(job: Job, held: Resident) -> int:
    """An upper bound of features, of outputs of hidden layers with their gradients, and of values per edge."""
    model, itemsize = job.experiment.model, job.dtype.itemsize
    features = 0 if job.plan.features_on_host else held.inputs * job.model.in_dim * itemsize
    rows = (model.layers - 1) * held.rows
    return features + activation_bytes(
        rows, held.edges, hidden=model.hidden, per_edge=model.values_per_edge, itemsize=itemsize
    )
