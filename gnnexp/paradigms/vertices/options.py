"""Options of vertex parallelism, and which of them go together with what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from gnnexp.errors import Problem, ProblemsError
from gnnexp.experiment.build import build
from gnnexp.experiment.kinds import kind_of
from gnnexp.graph.graph import Graph
from gnnexp.graph.sparse import row_nbytes
from gnnexp.models.model import Model
from gnnexp.paradigms.checks import attends, block_layers, num_ranks
from gnnexp.paradigms.chunks.chunking import Chunking
from gnnexp.paradigms.vertices.hybrid_dependency import check_profile

Dependency = Literal["communicate", "cache", "hybrid", "stale"]
Exchange = Literal["halo", "broadcast"]
_DEPENDENCIES = ("communicate", "cache", "hybrid", "stale")
_EXCHANGES = ("halo", "broadcast")


@dataclass(frozen=True)
class VertexOptions:
    """What `VertexParallel` takes, under the same names; `chunking` is `chunks` and `device_memory`."""

    dependency: Dependency
    exchange: Exchange
    cache_input_halo: bool
    staleness: int
    delay: int
    chunking: Chunking

    @property
    def approximates(self) -> str:
        """What is not exact, empty if everything is."""
        return "; ".join(
            [f"rows of other ranks are up to {self.staleness} epochs old"] * (self.staleness > 0)
            + [f"rows, sums and gradients of other ranks come {self.delay} epochs late"] * (self.delay > 0)
        )

    def kept_bytes(self, config: Mapping[str, Any], graph: Graph) -> int:
        """Bytes of rows that all ranks together keep for later epochs, and write into checkpoints; an upper bound.

        The foreign rows of all ranks are no more than the edges, and no more than all vertices on all other ranks.
        """
        model, ranks = build(config["model"], Model), num_ranks(config)
        itemsize = torch.empty(0, dtype=getattr(torch, config["train"]["dtype"])).element_size()
        foreign = (ranks - 1) * graph.num_nodes
        if self.exchange == "halo":
            foreign = min(foreign, graph.num_edges)
        hidden, last = max(model.hidden, graph.num_classes) * itemsize, model.num_layers - 1
        if self.staleness and foreign:  # the inputs of every layer
            features = 0 if self.cache_input_halo or graph.features is None else row_nbytes(graph.features, itemsize)
            return foreign * (features + last * hidden)
        if self.delay and foreign:  # rows of all layers but the first, sums of all layers, and gradients of both
            return self.delay * (foreign + graph.num_nodes) * (2 * last + 1) * hidden
        return 0

    def problems(self) -> list[Problem]:
        """What is wrong with them, alone and together."""
        problems = self.chunking.problems()
        if self.dependency not in _DEPENDENCIES:
            problems.append(Problem("dependency", self.dependency, f"must be one of: {', '.join(_DEPENDENCIES)}",
                                    "set paradigm.dependency=communicate"))
        if self.exchange not in _EXCHANGES:
            problems.append(Problem("exchange", self.exchange, f"must be one of: {', '.join(_EXCHANGES)}",
                                    "set paradigm.exchange=halo"))
        if self.staleness < 0:
            problems.append(Problem("staleness", self.staleness, "must be 0 (always fresh) or more epochs",
                                    "set paradigm.staleness=0"))
        if self.staleness > 0 and self.dependency != "stale":
            problems.append(Problem("staleness", self.staleness, f"dependency={self.dependency} has no old rows",
                                    "set paradigm.dependency=stale, or paradigm.staleness=0"))
        if self.exchange == "broadcast" and self.dependency in ("cache", "hybrid"):
            problems.append(Problem("exchange", self.exchange, f"dependency={self.dependency} fetches single rows",
                                    "set paradigm.exchange=halo"))
        if self.delay < 0:
            problems.append(Problem("delay", self.delay, "must be 0 (at once) or more epochs", "set paradigm.delay=0"))
        return problems

    def check(self, config: Mapping[str, Any]) -> list[Problem]:
        """Hybrid wants to know the machine, a budget the layers; over a vertex-cut no destination is whole."""
        problems = check_profile(config["hardware"]) if self.dependency == "hybrid" else []
        for name, age in (("staleness", self.staleness), ("delay", self.delay)):
            if age and config["train"].get("batch_size") is not None:
                problems.append(Problem(f"paradigm.{name}", age, "is counted in epochs of one step each, and "
                                        "train.batch_size makes several", "set train.batch_size=null"))
        if self.chunking.budget is not None and block_layers(config):
            problems.append(Problem("paradigm.device_memory", self.chunking.budget, "what layers of "
                                    f"{config['model']['_target_']} take is not known",
                                    "set paradigm.chunks=<number> and paradigm.device_memory=null"))
        try:
            cut = bool(build(config["partitioner"], kind_of("partitioner")).vertex_cut)
        except ProblemsError:
            return problems  # the partitioner's own problems are reported as such
        if cut:
            return [*problems, *self._check_cut(config)]
        if self.delay:
            problems.append(Problem("paradigm.delay", self.delay, f"{config['partitioner']['_target_']} makes an "
                                    "edge-cut, which has no partial sums",
                                    "choose partitioner=libra, or set paradigm.delay=0"))
        return problems

    def _check_cut(self, config: Mapping[str, Any]) -> list[Problem]:
        target, problems = config["partitioner"]["_target_"], []
        if self.chunking != Chunking(1, None):
            problems.append(Problem("paradigm.chunks", self.chunking.count, f"over the vertex-cut of {target} a vertex "
                                    "has its in-edges in several places",
                                    "set paradigm.chunks=1 and paradigm.device_memory=null"))
        if self.delay and attends(config):
            problems.append(Problem("paradigm.delay", self.delay, "late sums of attention were weighed with another "
                                    "epoch's peaks, so they cannot be added to today's",
                                    "set paradigm.delay=0, or choose model=gcn, sage or gin"))
        if self.dependency != "communicate" or self.exchange != "halo":
            key, value = (("paradigm.exchange", self.exchange) if self.dependency == "communicate"
                          else ("paradigm.dependency", self.dependency))
            at_once = ", paradigm.staleness=0" if self.staleness else ""
            problems.append(Problem(key, value, f"over the vertex-cut of {target} rows and sums are communicated",
                                    "choose partitioner=range or metis, or set paradigm.dependency=communicate"
                                    f"{at_once} and paradigm.exchange=halo"))
        if block_layers(config):
            problems.append(Problem("model", config["model"]["_target_"], "its layers need all in-edges of a vertex in "
                                    "one place", "choose model=gcn, sage, gin or gat, or partitioner=range or metis"))
        return problems
