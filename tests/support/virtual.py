"""Virtual ranks of the counting mode in the process of a test."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from gnnexp.comm.environment import Environment
from gnnexp.comm.virtual import Turns
from gnnexp.experiment.build import experiment_of
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition
from gnnexp.paradigms.base import trainer_of
from gnnexp.testing.steps import Curve
from gnnexp.training.assemble import Artifacts, assemble
from gnnexp.training.counting import take_turns


def virtual_curves(
    config: Mapping[str, Any],
    graph: Graph,
    size: int,
    steps: int,
    partition: Partition | None = None,
    frequency: torch.Tensor | None = None,
) -> list[Curve]:
    """What `run_steps` counts on each of `size` ranks, without losses and gradients."""
    config = {**config, "train": {**config["train"], "count_only": True, "overlap": False}}
    turns, curves = Turns(), [Curve([], {}, {}, {}, {})] * size

    def rank(number: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            environment = Environment(number, size, number, size)
            artifacts = Artifacts(graph, partition, frequency)
            job = assemble(experiment_of(config), artifacts, Path(folder), environment, turns=turns)
            trainer = trainer_of(job)
            trainer.module.train()
            job.comm.ledger.take()
            done, epoch = 0, 0
            while done < steps:
                for batch in trainer.batches(epoch):
                    trainer.forward_backward(batch)
                    trainer.synchronize()
                    trainer.clear_gradients()
                    done += 1
                    if done == steps:
                        break
                epoch += 1
            traffic = job.comm.ledger.take()
            curves[number] = Curve(
                [],
                {},
                {tag: of_tag.sent_bytes for tag, of_tag in traffic.items()},
                {tag: of_tag.rounds for tag, of_tag in traffic.items()},
                trainer.end_epoch().work,
            )

    take_turns(size, rank, turns)
    return curves
