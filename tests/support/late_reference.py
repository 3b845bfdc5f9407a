"""Delays, bins and averages in one process with dense matrices, and runs on ranks that are looked at epoch by epoch."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from gnnexp.comm.environment import read_environment
from gnnexp.experiment.build import experiment_of
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition
from gnnexp.paradigms.base import trainer_of
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import small_config
from gnnexp.training.assemble import Artifacts, assemble
from gnnexp.training.optimization import Optimization


class Lateness(NamedTuple):
    """The options, with their names."""

    delay: int
    bins: int = 1
    smooth_features: float = 0.0
    smooth_gradients: float = 0.0


@dataclass
class Kept:
    """The copies of all vertices' rows that other ranks use, which are the same on all of them."""

    delay: int
    bins: int
    gamma: float
    sent: list[Tensor] = field(default_factory=list)
    rows: Tensor | None = None

    def after(self, now: Tensor) -> Tensor:
        self.sent.append(now)
        rows = torch.zeros_like(now) if self.rows is None else self.rows.clone()
        then = len(self.sent) - 1 - self.delay
        if then >= 0:
            for vertex in range(then % self.bins, now.shape[0], self.bins):
                rows[vertex] = self.gamma * rows[vertex] + (1 - self.gamma) * self.sent[then][vertex]
        self.rows = rows
        return rows


class Delayed(torch.autograd.Function):
    """Rows that are late, and gradients that are late."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, forwards: Kept, backwards: Kept | None) -> Tensor:
        ctx.backwards = backwards
        return forwards.after(rows.detach())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient if ctx.backwards is None else ctx.backwards.after(gradient), None, None


def reference_losses(
    config: Mapping[str, Any],
    graph: Graph,
    partition: Partition,
    late: Lateness,
    epochs: int,
    *,
    late_gradients: bool = True,
) -> list[float]:
    """The losses of SAGE without dropout. `late_gradients=False` is another algorithm, as a control."""
    layers, optimizer = _parameters(config, graph)
    adjacency = _adjacency(graph, partition)
    degree = (graph.indptr[1:] - graph.indptr[:-1]).clamp(min=1).double().unsqueeze(1)

    def pair() -> tuple[Kept, Kept | None]:
        of = late.delay, late.bins
        return Kept(*of, late.smooth_features), Kept(*of, late.smooth_gradients) if late_gradients else None

    points = [(pair(), pair()) for _ in layers]
    assert graph.features is not None and graph.labels is not None and graph.splits is not None
    targets, losses = graph.splits.train.long(), []
    for _ in range(epochs):
        h = torch.as_tensor(graph.features).double()
        for index, ((weight, self_weight, bias), (of_rows, of_sums)) in enumerate(zip(layers, points, strict=True)):
            if index:
                h = torch.relu(h)
            if partition.edge_owner is None:  # raw rows arrive, and features are never late
                copies = Delayed.apply(h, *of_rows) if index else h
                summed = (adjacency["own", "own"] @ h + adjacency["foreign", "own"] @ copies) @ weight.T
            else:
                rows = h @ weight.T
                copies = Delayed.apply(rows, *of_rows) if index else rows
                away = adjacency["own", "foreign"] @ rows + adjacency["foreign", "foreign"] @ copies
                here = adjacency["own", "own"] @ rows + adjacency["foreign", "own"] @ copies
                summed = here + Delayed.apply(away, *of_sums)
            h = summed / degree + h @ self_weight.T + bias
        loss = F.cross_entropy(h[targets], torch.as_tensor(graph.labels)[targets].long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _parameters(config: Mapping[str, Any], graph: Graph) -> tuple[list[tuple[Tensor, ...]], torch.optim.Optimizer]:
    serial = {
        **config,
        "paradigm": small_config(config["model"])["paradigm"],
        "hardware": {**config["hardware"], "workers": 1},
    }
    with tempfile.TemporaryDirectory() as folder:
        job = assemble(experiment_of(serial), Artifacts(graph, None), Path(folder), read_environment())
        state = dict(job.model.named_parameters())
        job.comm.release()
    count = config["model"]["layers"]
    made = [
        tuple(
            state[f"layers.{index}.{name}"].detach().clone().requires_grad_()
            for name in ("weight", "self_weight", "bias")
        )
        for index in range(count)
    ]
    return made, torch.optim.Adam([one for layer in made for one in layer], lr=config["optimizer"]["lr"])


def _adjacency(graph: Graph, partition: Partition) -> dict[tuple[str, str], Tensor]:
    """Numbers of edges `[V, V]` by whether the edge's rank owns its source, and its destination."""
    master, dst, src = partition.node_owner, graph.destinations().long(), graph.indices.long()
    rank = master[dst] if partition.edge_owner is None else partition.edge_owner
    found = {}
    for source in ("own", "foreign"):
        for destination in ("own", "foreign"):
            chosen = ((master[src] == rank) == (source == "own")) & ((master[dst] == rank) == (destination == "own"))
            matrix = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
            matrix.index_put_((dst[chosen], src[chosen]), torch.ones((), dtype=torch.float64), accumulate=True)
            found[source, destination] = matrix
    return found


class Epoch(NamedTuple):
    """What a rank did in an epoch: its sum of losses, bytes and rounds by tag, and its counters."""

    loss: float
    targets: int
    sent_bytes: dict[str, int]
    rounds: dict[str, int]
    work: dict[str, int]


def epochs_on_rank(config: Mapping[str, Any], partition: Partition, epochs: int) -> list[Epoch]:
    """Runs on a rank of a pool, on `nasty_graph`."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        artifacts = Artifacts(nasty_graph(), partition)
        job = assemble(experiment_of(config), artifacts, Path(folder), read_environment())
        trainer = trainer_of(job)
        optimization = Optimization(job, trainer)
        trainer.module.train()
        job.comm.ledger.take()
        for epoch in range(epochs):
            (batch,) = trainer.batches(epoch)
            loss, count = trainer.forward_backward(batch)
            trainer.synchronize()
            optimization.step()
            work, traffic = trainer.end_epoch().work, job.comm.ledger.take()
            found.append(
                Epoch(
                    float(loss),
                    count,
                    {tag: one.sent_bytes for tag, one in traffic.items()},
                    {tag: one.rounds for tag, one in traffic.items()},
                    work,
                )
            )
        job.comm.release()
    return found
