"""Tensor parallelism: every rank has all vertices and edges, and some of the columns (NeutronTP).

    coupled     gather and split around every aggregation: exact                              (section 3)
    decoupled   all dense updates, one split, all propagations, one gather: another model,    (section 4.1)
                exact with respect to its serial twin (models/decoupled.py)

Dense updates take whole rows, so each rank finishes an even share of the vertices; aggregations take columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.plan import GraphFacts, Plan, Resident, Sizes
from gnnexp.job import Job
from gnnexp.paradigms.base import Paradigm, drawn_from_graph
from gnnexp.paradigms.checks import block_degrees
from gnnexp.paradigms.chunks.chunking import Chunking
from gnnexp.paradigms.columns.checks import check_columns, check_coupled, check_decoupled, chunk_cost
from gnnexp.paradigms.columns.coupled import CoupledTrainer
from gnnexp.paradigms.columns.decoupled import DecoupledTrainer
from gnnexp.paradigms.columns.edge_attention import AttentionWork
from gnnexp.paradigms.loops.full_graph import check_full_graph
from gnnexp.paradigms.trainer import Trainer


@dataclass(frozen=True)
class TensorParallel(Paradigm):
    """Full-graph training by columns.

    Attributes:
        mode: see above.
        chunks: ranges of destinations that are worked on one after another; null for as many as `device_memory` wants.
        device_memory: bytes that a chunk may take of the device tier, or null.
        pipeline: of `decoupled`: exchange one chunk while another is worked on.
        attention: of `decoupled`: `trained`, or `frozen` at its initial value, as the artifact's is by mistake.
        attention_work: of `decoupled`: `shared`, each rank weighs some edges and shares their weights (section 4.1.1),
            or `replicated`, every rank weighs all edges from keys that are shared anyway.
        nn_device: of `decoupled`: where dense updates run: on the `device`, or on the `host`, which features then
            never leave (section 4.2.1).
    """

    mode: Literal["coupled", "decoupled"] = "coupled"
    chunks: int | None = 1
    device_memory: int | None = None
    pipeline: bool = False
    attention: Literal["trained", "frozen"] = "trained"
    attention_work: AttentionWork = "shared"
    nn_device: Literal["device", "host"] = "device"

    def __post_init__(self) -> None:
        problems = self.chunking.problems()
        coupled = "set paradigm.mode=decoupled"
        if self.mode == "coupled" and self.pipeline:
            problems.append(Problem("pipeline", self.pipeline, "coupled layers have nothing to overlap with: each "
                                    "gather is followed by dense updates that need all of it", coupled))
        if self.mode == "coupled" and self.nn_device == "host":
            problems.append(Problem("nn_device", self.nn_device, "coupled layers alternate dense updates and "
                                    "aggregations: every layer would cross to the host and back", coupled))
        if self.mode == "coupled" and self.attention == "frozen":
            problems.append(Problem("attention", self.attention, "only the decoupled artifact's is frozen",
                                    "set paradigm.attention=trained"))
        if problems:
            raise ConfigError(problems)

    @property
    def chunking(self) -> Chunking:
        """`chunks` and `device_memory`."""
        return Chunking(self.chunks, self.device_memory)

    def check(self, experiment: Experiment) -> list[Problem]:
        """Layers on the contract only, and a column for every rank."""
        own = check_coupled(experiment) if self.mode == "coupled" else check_decoupled(experiment, self.attention)
        return [*check_full_graph(experiment, "tensor_parallel"), *block_degrees(experiment, "tensor_parallel"), *own]

    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        """All edges; whole rows of a share of the vertices, and as many values again as columns of all of them."""
        own, decoupled = -(-facts.num_nodes // experiment.num_ranks), self.mode == "decoupled"
        changed = ["the model is decoupled (exact with respect to its serial twin)"] * decoupled
        return Plan(
            experiment.num_ranks if self.wants_partition(experiment) else None, drawn_from_graph(experiment, facts),
            approximates="; ".join([*changed, *["attention is not trained"] * (self.attention == "frozen")]),
            resident=Resident(facts.num_edges, own if decoupled else 2 * own, 2 * own),
            features_on_host=self.nn_device == "host",
            problems=tuple(check_columns(experiment, facts, self.chunking, decoupled=decoupled)),
        )

    def trainer(self, job: Job) -> Trainer[Any]:
        """Coupled, or decoupled."""
        cost = chunk_cost(list(job.model.layers), job.comm.size, job.dtype, decoupled=self.mode == "decoupled")
        if self.mode == "coupled":
            return CoupledTrainer(job, self.chunking, cost)
        return DecoupledTrainer(job, self.chunking, cost, pipeline=self.pipeline, frozen=self.attention == "frozen",
                                attention_work=self.attention_work, on_host=self.nn_device == "host")
