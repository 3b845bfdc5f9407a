"""DGL's full-graph script (the single-device DGL rows of HongTu's Table 5): the whole graph is every layer's graph."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.needs import Need
from gnnexp.graph.graph import Graph
from gnnexp.graph.parts import Parts
from gnnexp.job import Job
from gnnexp.models.model import Model
from gnnexp.paradigms.base import Paradigm
from gnnexp.paradigms.checks import cpu_only, no_decoder, plain_features, vertices_only, whole_topology
from gnnexp.paradigms.dgl.layers import SUPPORTED, DGLStack, supported, wants_self_loops
from gnnexp.paradigms.dgl_reference import dense_features, dgl_needs, epoch_seed, to_dgl, unsupported_model
from gnnexp.tasks.base import Examples


class DGLFullGraph(Paradigm[Tensor]):
    """One rank, one step per epoch, all vertices."""

    exact = False
    approximates = "dropout masks are torch's; otherwise serial full-graph training"

    def check(self, config: Mapping[str, Any]) -> list[Problem]:
        """One worker and one batch only, and a model that DGL has."""
        ranks = config["hardware"]["nodes"] * config["hardware"]["workers"]
        why = "DGL's scripts for vertices are its peer"
        problems = [*vertices_only(config, "dgl_full_graph", why), *no_decoder(config, "dgl_full_graph", why),
                    *unsupported_model(config), *plain_features(config, "dgl_full_graph"),
                    *whole_topology(config, "dgl_full_graph"), *cpu_only(config, "dgl_full_graph")]
        if ranks != 1:
            problems.append(
                Problem("hardware.workers", ranks, "dgl_full_graph runs on one worker", "set hardware.workers=1")
            )
        if (size := config.get("train", {}).get("batch_size")) is not None:
            problems.append(Problem("train.batch_size", size, "dgl_full_graph trains on all training vertices at once",
                                    "set train.batch_size=null"))
        return problems

    def needs(self, config: Mapping[str, Any], graph: Graph, parts: Parts | None = None) -> Iterable[Need]:
        """DGL's own copies of the graph and the features."""
        return dgl_needs(graph)

    def setup(self, job: Job) -> None:
        """Build DGL's graph and stack."""
        if reason := supported(job.model):
            raise ConfigError(Problem("model", type(job.model).__name__, reason, SUPPORTED))
        self.job = job
        self.graph = to_dgl(job.graph, wants_self_loops(job.model))
        self.graph.create_formats_()
        self.features = dense_features(job)
        self.stack = DGLStack(job.model)
        self.steps = 0

    @property
    def module(self) -> nn.Module:
        """The DGL stack."""
        return self.stack

    def evaluation_model(self) -> Model:
        """Our model with the stack's parameters."""
        self.stack.store_to(self.job.model)
        return self.job.model

    def batches(self, epoch: int, first: int = 0) -> Generator[Tensor, None, None]:
        """All training vertices at once; torch's dropout is seeded anew, so that no epoch hangs on earlier ones."""
        torch.manual_seed(epoch_seed(self.job.run.seed, epoch, 0))
        yield self.job.task.targets()

    def forward_backward(self, batch: Tensor) -> tuple[Tensor, int]:
        """Gradients of the mean loss over all training vertices."""
        timer, count = self.job.timer, int(batch.numel())
        with timer.phase("forward"):
            logits = self.stack([self.graph] * len(self.stack.convs), self.features)
            loss = self.job.task.loss_sum(logits[batch], Examples(batch, count))
        with timer.phase("backward"):
            (loss / count).backward()  # type: ignore[no-untyped-call]
        self.steps += 1
        return loss.detach(), count

    def synchronize(self) -> None:
        """A single rank has nobody to agree with."""

    def clear_gradients(self) -> None:
        """As `optimizer.zero_grad()`."""
        self.stack.zero_grad(set_to_none=True)

    def end_epoch(self) -> dict[str, int]:
        """Every layer computes every vertex and edge."""
        layers = len(self.stack.convs) * self.steps
        self.steps = 0
        return {
            "edges_computed": layers * self.graph.num_edges(), "vertices_computed": layers * self.graph.num_nodes()
        }
