"""What all sides of a comparison get: targets in the order of every epoch, seeds to sample from, sampled blocks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gnnexp.experiment.build import experiment_of
from gnnexp.graph.block import BatchKey
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import Shard
from gnnexp.paradigms.loops.targets import TargetSchedule
from gnnexp.samplers.fused import FusedOptions


def write_inputs(folder: Path, graph: Graph, config: Mapping[str, Any], *, turns: int, batches: int) -> None:
    """Write the arrays that `driver.Request.given` reads.

    - `orders` `[turns, T]` and `seeds` `[turns, batches * batch_size]`: vertex ids, a row per turn;
    - `input_*` and `hidden_*`: the first two blocks of a batch, `indptr` `[D + 1]`, `sources` `[E]` and `num_src`.

    Args:
        folder: empty folder.
        graph: the graph of all sides.
        config: resolved configuration.
        turns: number of epochs that any side trains.
        batches: number of batches in a turn of sampling.
    """
    experiment = experiment_of(dict(config))
    train = experiment.train
    assert train.batch_size is not None
    schedule = TargetSchedule(graph.splits.train, train.batch_size, experiment.seed, train.shuffle)
    np.save(folder / "orders.npy", np.stack([schedule.order(turn).numpy() for turn in range(turns)]))
    drawn = np.random.default_rng(0)
    size = min(batches * train.batch_size, graph.num_nodes)
    np.save(folder / "seeds.npy", np.stack([drawn.choice(graph.num_nodes, size, replace=False) for _ in range(turns)]))
    fanouts = list(config["sampler"]["fanouts"])
    sampler = FusedOptions(fanouts).make()
    sampler.setup(Shard(graph), len(fanouts))
    batch = sampler.sample(schedule.global_batch(schedule.order(0), 0), BatchKey(0, 0, 0))
    for name, block in zip(("input", "hidden"), batch.blocks, strict=False):
        np.save(folder / f"{name}_indptr.npy", block.indptr.numpy())
        np.save(folder / f"{name}_sources.npy", block.sources.numpy())
        np.save(folder / f"{name}_num_src.npy", np.int64(block.num_src))
