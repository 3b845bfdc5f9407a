"""Counts launches, waits and copies of one training step on the emulated device, after warm-up steps."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import torch

from emulated_gpu import counting
from gnnexp.comm.environment import read_environment
from gnnexp.experiment.build import experiment_of
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition
from gnnexp.paradigms.base import trainer_of
from gnnexp.paradigms.trainer import Trainer
from gnnexp.training.assemble import Artifacts, assemble
from gnnexp.training.optimization import Optimization

WARM_UP = 2  # steps before the counted step; everything that is made once exists then


@dataclass(frozen=True)
class Step:
    """Counts of one step on a rank.

    Attributes:
        waits: number of times that the host waited for the GPU.
        launches: number of kernel launches.
        h2d_bytes, pageable_bytes: bytes copied to the device, and the bytes of these from memory that is not pinned.
        expected_bytes: value that `h2d_bytes` should have.
        places: counts by name (`counts.NAMES`) and by line of gnnexp.
    """

    waits: int
    launches: int
    h2d_bytes: int
    pageable_bytes: int
    expected_bytes: int
    places: Counter[tuple[str, str]]

    def lines(self, name: str) -> str:
        """The lines that caused the count `name`, largest first, for messages."""
        found = {place: number for (counted, place), number in self.places.items() if counted == name}
        return ", ".join(f"{place} ({number})" for place, number in sorted(found.items(), key=lambda one: -one[1]))


def steady_step(
    config: Mapping[str, Any],
    graph: Graph,
    partition: Partition | None,
    formula: Callable[[Trainer[Any], int], int],
) -> Step:
    """Train on this rank's GPU for `WARM_UP` steps, and count what the next step does.

    Args:
        config: resolved configuration.
        graph: the whole graph.
        partition: the partition, if the paradigm needs one.
        formula: computes the expected bytes to the device, from the trainer and the recorded bytes of the step
            (`tier/h2d_bytes`).
    """
    with tempfile.TemporaryDirectory() as folder:
        frequency = torch.arange(graph.num_nodes) % 7
        job = assemble(experiment_of(config), Artifacts(graph, partition, frequency), Path(folder), read_environment())
        trainer = trainer_of(job)
        optimization, batches = Optimization(job, trainer), _endless(trainer)
        trainer.module.train()

        def step() -> None:
            trainer.forward_backward(next(batches))
            trainer.synchronize()
            optimization.step()

        for _ in range(WARM_UP):
            step()
        trainer.end_epoch()
        job.timer.start_epoch()
        with counting() as counts:
            step()
        job.timer.end_epoch()
        expected = formula(trainer, trainer.end_epoch().work["tier/h2d_bytes"])
        job.comm.release()
    totals = counts.totals
    return Step(
        totals["waits"], totals["launches"], totals["h2d_bytes"], totals["pageable_h2d_bytes"], expected, counts.places
    )


def _endless(trainer: Trainer[Any]) -> Iterator[Any]:
    for epoch in count():
        yield from trainer.batches(epoch)
