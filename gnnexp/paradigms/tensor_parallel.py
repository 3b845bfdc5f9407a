"""Tensor parallelism: every rank has all vertices and edges, and some of the columns (NeutronTP).

`coupled`: ranks split and gather columns around every aggregation (section 3). This is exact.

`decoupled`: all dense updates, one split, all propagations, one gather (section 4.1). This changes the model. Training
is exact with respect to the serial twin (models/decoupled.py).

Dense updates take whole rows, so each rank finishes an even share of the vertices. Aggregations take columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from gnnexp.components.facts import GraphFacts
from gnnexp.components.options import rule_problems
from gnnexp.components.plan import Plan, Resident, Sizes
from gnnexp.errors import ConfigError, Problem, Refusal
from gnnexp.experiment.experiment import Experiment
from gnnexp.models.layer import Layer
from gnnexp.ops.products import matmul_problems
from gnnexp.paradigms.base import Paradigm, drawn_from_graph
from gnnexp.paradigms.checks import block_degree_problems
from gnnexp.paradigms.columns.checks import chunk_cost, column_problems, coupled_problems, decoupled_problems
from gnnexp.paradigms.columns.coupled import CoupledTrainer
from gnnexp.paradigms.columns.decoupled import DecoupledTrainer
from gnnexp.paradigms.columns.edge_attention import AttentionWork
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.chunking import UNCUT, Chunking
from gnnexp.paradigms.loops.full_graph import full_graph_problems
from gnnexp.paradigms.trainer import Trainer


@dataclass(frozen=True)
class TensorParallel(Paradigm):
    """Full-graph training in which ranks share columns.

    Attributes:
        mode: `coupled` or `decoupled`, see above.
        chunks: number of ranges of destinations, computed one after another; null: as many as `device_memory` needs.
        device_memory: bytes of the device tier that a chunk may take, or null.
        pipeline: for `decoupled`: whether to exchange one chunk while another one is computed.
        attention: for `decoupled`: `trained`, or `frozen` at its initial value, as in the artifact by mistake.
        attention_work: for `decoupled`: `shared`: each rank weighs some edges and shares their weights (section 4.1.1);
            or `replicated`: every rank weighs all edges from the shared keys.
        nn_device: for `decoupled`: where dense updates run. With `host`, features never leave the host (section
            4.2.1).
    """

    mode: Literal["coupled", "decoupled"] = "coupled"
    chunks: int | None = 1
    device_memory: int | None = None
    pipeline: bool = False
    attention: Literal["trained", "frozen"] = "trained"
    attention_work: AttentionWork = "shared"
    nn_device: Literal["device", "host"] = "device"

    def __post_init__(self) -> None:
        decoupled, fix = self.mode != "coupled", "set paradigm.mode=decoupled"
        rules = rule_problems(
            (
                decoupled or not self.pipeline,
                "pipeline",
                self.pipeline,
                "coupled layers have nothing to overlap with: each gather is followed by dense updates that need all "
                "of it",
                fix,
            ),
            (
                decoupled or self.nn_device != "host",
                "nn_device",
                self.nn_device,
                "coupled layers alternate dense updates and aggregations: every layer would cross to the host and back",
                fix,
            ),
            (
                decoupled or self.attention != "frozen",
                "attention",
                self.attention,
                "only the decoupled artifact's is frozen",
                "set paradigm.attention=trained",
            ),
        )
        ConfigError.raise_all([*self.chunking.problems(), *rules])

    @property
    def chunking(self) -> Chunking:
        """How layers are cut into chunks: `chunks` and `device_memory`."""
        return Chunking(self.chunks, self.device_memory)

    def refuses_capture(self, experiment: Experiment) -> Refusal | None:
        """A step can be captured if everything stays on the GPU."""
        if self.nn_device == "host":
            return Refusal("the host computes dense updates (paradigm.nn_device)")
        if self.chunking != UNCUT:
            return Refusal("chunks are copied to the GPU in every step (paradigm.chunks, paradigm.device_memory)")
        layer = experiment.model.example_layer
        if self.mode == "decoupled" and isinstance(layer, Layer) and layer.traits.kind == "projected":
            return Refusal(
                "edges whose attention a rank computes are copied to the GPU in every step (paradigm.mode=decoupled)"
            )
        return None

    def check(self, experiment: Experiment) -> list[Problem]:
        """Conflicts: needs contract layers, and at least one column for each rank."""
        own = coupled_problems(experiment) if self.mode == "coupled" else decoupled_problems(experiment, self.attention)
        if self.nn_device == "host":
            own += matmul_problems(experiment.train.matmul, "cpu")
        return [
            *full_graph_problems(experiment, "tensor_parallel"),
            *block_degree_problems(experiment, "tensor_parallel"),
            *own,
        ]

    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        """The plan: a rank holds all edges, whole rows of its vertices, and as many values in columns."""
        own, decoupled = -(-facts.num_nodes // experiment.num_ranks), self.mode == "decoupled"
        changed = ["the model is decoupled (exact with respect to its serial twin)"] * decoupled
        return Plan(
            experiment.num_ranks if self.wants_partition(experiment) else None,
            drawn_from_graph(experiment, facts),
            approximates="; ".join([*changed, *["attention is not trained"] * (self.attention == "frozen")]),
            resident=Resident(facts.num_edges, own if decoupled else 2 * own, 2 * own),
            features_on_host=self.nn_device == "host",
            problems=tuple(column_problems(experiment, facts, self.chunking, decoupled=decoupled)),
        )

    def trainer(self, job: Job) -> Trainer[Any]:
        """The trainer of the mode."""
        weighted, decoupled = job.graph.edge_weights is not None, self.mode == "decoupled"
        cost = chunk_cost(list(job.model.layers), job.comm.size, job.dtype, decoupled=decoupled, weighted=weighted)
        if self.mode == "coupled":
            return CoupledTrainer(job, self.chunking, cost)
        return DecoupledTrainer(
            job,
            self.chunking,
            cost,
            pipeline=self.pipeline,
            frozen=self.attention == "frozen",
            attention_work=self.attention_work,
            on_host=self.nn_device == "host",
        )
