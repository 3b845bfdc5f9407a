"""Pre-sampling: runs the training sampler for some epochs before training, and counts (GSplit, section 4)."""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import replace

import numpy as np
import torch

from gnnexp.components.options import with_options
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.run_key import component_in_key
from gnnexp.graph.block import Batch, BatchKey
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import BlockNeeds, Shard
from gnnexp.graph.storage.presample import Presample
from gnnexp.kernels.counter import Purpose, stream
from gnnexp.kernels.samplers.tally import movement, tally_pairs, tally_positions, tally_vertices
from gnnexp.paradigms.loops.targets import TargetSchedule, targets_of_rank
from gnnexp.provenance.code import code_of, modules_of, refuse_edited
from gnnexp.provenance.recorded import RESULT_VERSION
from gnnexp.samplers.pipeline import prefetched

# Batches that are sampled while one is counted: sampling takes two to three times as long as counting.
_THREADS = len(os.sched_getaffinity(0))


def presample_key(experiment: Experiment, graph_key: str, epochs: int, *, micro: bool = False) -> str:
    """Content key of the counts, 64 hexadecimal digits. It depends on everything that decides the training batches.

    With `micro`, that is also the number of ranks, and whether they draw independently.
    """
    ignored = ("threads", "prefetch", "topology", "key")
    sampler, task, train = experiment.config.group("sampler"), experiment.config.group("task"), experiment.train
    layers = experiment.model.layers
    batches = [train.batch_size, train.shuffle, layers, component_in_key(task.mapping), experiment.seed]
    modules = modules_of({"sampler": sampler.mapping, "task": task.mapping})
    refuse_edited(modules)
    drawn_by = component_in_key(sampler.mapping, ignored)
    content = [RESULT_VERSION, graph_key, drawn_by, *batches, epochs, dict(code_of(modules).own)]
    if micro:
        content += [experiment.num_ranks, experiment.sampler.key]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def presample(
    experiment: Experiment, graph: Graph, epochs: int, *, hops: bool = False, micro: bool = False
) -> Presample:
    """Sample `epochs` epochs of global batches, or of the ranks' micro-batches, and count vertices and edges.

    The random draws differ from training. With counts of the training batches themselves, the partition would look
    better than it is. Needs 24 bytes per vertex and 8 bytes per edge, in addition to the graph, and with `hops` 8 bytes
    per vertex and hop.

    Args:
        experiment: its sampler, model, task, `train.batch_size` and seed decide the batches.
        graph: the whole graph.
        epochs: number of epochs, at least 1.
        hops: whether to count destinations by hop, too.
        micro: whether to sample the batches of each rank, with even shares of the targets (`paradigm.assign=even`).
    """
    started = time.perf_counter()
    sampler = with_options(experiment.sampler, topology="replicated").make()
    task, train = experiment.task.make(), experiment.train
    sampler.setup(Shard(graph, needs=BlockNeeds(edge_ids=True)), experiment.model.layers)
    task.setup(graph)
    seed = stream(experiment.seed, Purpose.PRESAMPLE)
    schedule = TargetSchedule(task.targets(), train.batch_size, seed, train.shuffle)
    ranks = experiment.num_ranks if micro else 1
    tally, convergence = AccessCounter(graph, experiment.model.layers if hops else 0), []
    for epoch in range(epochs):
        order = schedule.order(epoch)

        def draw(number: int, order: torch.Tensor = order, epoch: int = epoch) -> Batch:
            step, rank = divmod(number, ranks)
            batch, key = schedule.global_batch(order, step), BatchKey(seed, epoch, step)
            if micro and experiment.sampler.key == "micro":
                key = replace(key, micro=rank)
            return sampler.sample(task.examples(targets_of_rank(batch, rank, ranks), batch, key).vertices, key)

        for batch in prefetched(draw, schedule.num_steps * ranks, _THREADS, _THREADS + 1):
            tally.add(batch)
        if epoch:
            convergence.append(tally.moved(epoch + 1))
        elif epochs > 1:
            tally.remember()
    return tally.finish(epochs, time.perf_counter() - started, convergence)


class AccessCounter:
    """Counts how often batches contain each vertex and each edge; destinations of the first `num_hops` hops apart."""

    def __init__(self, graph: Graph, num_hops: int = 0) -> None:
        self._indptr, self._indices = graph.indptr.numpy(), graph.indices.numpy()
        self._destinations, self._inputs = (np.zeros(graph.num_nodes, np.int64) for _ in range(2))
        self._edges = np.zeros(graph.num_edges, np.int32)
        self._hops = np.zeros((num_hops, graph.num_nodes), np.int64)

    def add(self, batch: Batch) -> None:
        """Count one batch."""
        vertices = batch.input_ids.numpy()
        num_dst = np.array([block.num_dst for block in batch.blocks])
        tally_vertices(vertices, num_dst, self._destinations, self._inputs)
        for counts, count in zip(self._hops, reversed(num_dst.tolist()), strict=False):
            counts[vertices[:count]] += 1
        for block in batch.blocks:
            if block.edge_ids is not None:
                tally_positions(block.edge_ids.numpy(), self._edges)
            else:
                tally_pairs(
                    block.indptr.numpy(),
                    block.sources.numpy(),
                    vertices,
                    int(block.self_loops),
                    self._indptr,
                    self._indices,
                    self._edges,
                )

    def remember(self) -> None:
        """Keep the counts so far, so that `moved` can compare."""
        self._before = self._destinations.copy(), self._edges.copy()

    def moved(self, epochs: int) -> dict[str, float]:
        """The change of the mean weights in the last of `epochs` epochs."""
        return {
            "vertices": movement(self._destinations, self._before[0], epochs),
            "edges": movement(self._edges, self._before[1], epochs),
        }

    def finish(self, epochs: int, seconds: float, convergence: list[dict[str, float]]) -> Presample:
        """The counts as the artifact that is saved."""
        destinations, inputs, edges = map(torch.from_numpy, (self._destinations, self._inputs, self._edges))
        hops = torch.from_numpy(self._hops) if len(self._hops) else None
        return Presample(destinations, inputs, edges, epochs, seconds, convergence, hops)
