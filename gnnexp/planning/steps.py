"""What a training step costs whatever it works on: Python, launching kernels, the optimizer (`hardware.step_s`)."""

from __future__ import annotations

import time
from pathlib import Path

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import Environment
from gnnexp.experiment.experiment import Experiment
from gnnexp.graph.graph import Graph
from gnnexp.training.assemble import Artifacts, assemble
from gnnexp.training.optimization import Optimization

# A tiny model on a tiny graph: three layers of 16 columns, 8 targets that draw 2 neighbours on each hop.
OVERRIDES = (
    "dataset=dcsbm", "dataset.num_nodes=2000", "dataset.num_edges=20000", "dataset.num_features=16",
    "partitioner=random", "sampler=fused", "sampler.fanouts=[2,2,2]", "feature_store=local", "model=sage",
    "model.hidden=16", "model.layers=3", "task=node_classification", "paradigm=data_parallel", "tracker=none",
    "train=default", "train.batch_size=8", "train.overlap=false",
)


def step(experiment: Experiment, graph: Graph, comm: Communicator, repetitions: int) -> list[float]:
    """Seconds of a step, epoch after epoch of a tiny model: each rank trains one of its own, all of them at once.

    Args:
        experiment: of `OVERRIDES`.
        graph: of its dataset.
        comm: all ranks; they meet before every repetition, and exchange nothing in it.
        repetitions: epochs, after one that warms up.
    """
    alone = Environment(local_rank=comm.rank, local_ranks=comm.size)
    job = assemble(experiment, Artifacts(graph), Path(), alone)
    trainer = job.experiment.paradigm.trainer(job)
    optimization = Optimization(job, trainer)
    trainer.module.train()
    found = []
    for epoch in range(repetitions + 1):
        comm.barrier()
        start, steps = time.perf_counter(), 0
        for batch in trainer.batches(epoch):
            trainer.forward_backward(batch)
            trainer.synchronize()
            optimization.step()
            steps += 1
        found.append((time.perf_counter() - start) / steps)
    return found[1:]
