"""Tensor parallelism: every rank has all vertices and edges, and some of the columns (NeutronTP).

`coupled`: ranks split and gather columns around every aggregation (section 3). This is exact.

`decoupled`: all dense updates, one split, all propagations, one gather (section 4.1). This changes the model. Training
is exact with respect to the serial twin (models/decoupled.py).

Dense updates take whole rows, so each rank finishes an even share of the vertices. Aggregations take columns. If there
are fewer columns than ranks, some ranks aggregate nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from gnnexp.components.facts import GraphFacts
from gnnexp.components.options import rule_problems
from gnnexp.components.plan import Plan, Resident, Sizes
from gnnexp.errors import ConfigError, Problem, Refusal
from gnnexp.experiment.experiment import Experiment
from gnnexp.graph.sparse import SparseRows
from gnnexp.models.decoupled import contract_layer
from gnnexp.models.layer import Layer
from gnnexp.ops.products import matmul_problems
from gnnexp.paradigms.base import Paradigm, drawn_from_graph
from gnnexp.paradigms.checks import block_degree_problems
from gnnexp.paradigms.columns.checks import chunk_cost, column_problems, coupled_problems, decoupled_problems
from gnnexp.paradigms.columns.coupled import CoupledTrainer
from gnnexp.paradigms.columns.decoupled import DecoupledTrainer
from gnnexp.paradigms.columns.edge_attention import AttentionWork
from gnnexp.paradigms.columns.orders import ColumnShares, Inputs, Order, projected_layers
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.chunking import UNCUT, Chunking, ResidentMemory
from gnnexp.paradigms.loops.full_graph import full_graph_problems
from gnnexp.paradigms.loops.local_chunks import edge_kind
from gnnexp.paradigms.loops.stay import resident_problems
from gnnexp.paradigms.trainer import Trainer


@dataclass(frozen=True)
class TensorParallel(Paradigm):
    """Full-graph training in which ranks share columns.

    Attributes:
        mode: `coupled` or `decoupled`, see above.
        chunks: number of ranges of destinations, computed one after another; null: as many as `device_memory` needs.
        device_memory: bytes of the device tier that a chunk may take, or null.
        resident_memory: bytes of the device in which chunks stay, see `loops/stay.py`; null: all cross in every visit.
        order: for `coupled`: whether layers with constant weights `aggregate` first or `project` first. With
            `cheapest`, each layer takes the order that sends fewer values. Other layers always project first, and so
            does layer 1 if features are sparse.
        pipeline: for `decoupled`: whether to exchange one chunk while another one is computed.
        dense_blocks: with `pipeline`: number of blocks of a rank's rows whose dense updates run one after another. Each
            is sent while the next one is computed. With 1, rows are sent with the chunk that reads them first.
        attention: for `decoupled`: `trained`, or `frozen` at its initial value, as in the artifact by mistake.
        attention_work: for `decoupled`. With `shared`, each rank weighs some edges and shares their weights (section
            4.1.1). With `halo`, it does the same, but gets only the keys that its edges read. With `replicated`, every
            rank weighs all edges from the shared keys. With `cheapest`, the way is taken that sends the fewest values.
        pad: whether columns are filled up with zeros to a multiple of the ranks, as in the published code. Then every
            rank has equally many columns, and sends and computes zeros. Blocks of an R-GCN cannot be filled up.
        nn_device: for `decoupled`: where dense updates run. With `host`, features never leave the host (section
            4.2.1).
    """

    mode: Literal["coupled", "decoupled"] = "coupled"
    chunks: int | None = 1
    device_memory: int | None = None
    resident_memory: ResidentMemory = None
    order: Order = "aggregate"
    pipeline: bool = False
    dense_blocks: int = 1
    attention: Literal["trained", "frozen"] = "trained"
    attention_work: AttentionWork = "shared"
    pad: bool = False
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
                self.dense_blocks >= 1,
                "dense_blocks",
                self.dense_blocks,
                "must be at least 1",
                "set paradigm.dense_blocks=1",
            ),
            (
                self.dense_blocks <= 1 or self.pipeline,
                "dense_blocks",
                self.dense_blocks,
                "blocks are sent while others are computed, which paradigm.pipeline=false forbids",
                "set paradigm.pipeline=true, or paradigm.dense_blocks=1",
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
            (
                decoupled or self.attention_work == "shared",
                "attention_work",
                self.attention_work,
                "coupled layers weigh all edges on every rank",
                f"{fix}, or paradigm.attention_work=shared",
            ),
            (
                not decoupled or self.order == "aggregate",
                "order",
                self.order,
                "decoupled layers have one order: all projections, then all aggregations",
                "set paradigm.order=aggregate, or paradigm.mode=coupled",
            ),
        )
        ConfigError.raise_all([*self.chunking.problems(), *self.chunking.whole_problems(), *rules])

    @property
    def chunking(self) -> Chunking:
        """How layers are cut into chunks: `chunks`, `device_memory` and `resident_memory`."""
        return Chunking(self.chunks, self.device_memory, self.resident_memory)

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
        """Conflicts: needs contract layers."""
        own = (
            coupled_problems(experiment, pad=self.pad)
            if self.mode == "coupled"
            else decoupled_problems(experiment, self.attention)
        )
        if self.nn_device == "host":
            own += matmul_problems(experiment.train.matmul, "cpu")
        return [
            *full_graph_problems(experiment, "tensor_parallel"),
            *block_degree_problems(experiment, "tensor_parallel"),
            *resident_problems(experiment, self.chunking),
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
            problems=tuple(
                column_problems(experiment, facts, self.chunking, None if decoupled else self.order, pad=self.pad)
            ),
        )

    def trainer(self, job: Job) -> Trainer[Any]:
        """The trainer of the mode."""
        layers = [contract_layer(job.model, index) for index in range(job.model.num_layers)]
        trained = job.store.options.trained_columns is not None
        inputs, ranks = Inputs(isinstance(job.graph.features, SparseRows), trained), job.comm.size
        edges, shares = edge_kind(job), ColumnShares(job.graph.num_nodes, ranks, self.pad)
        if self.mode == "coupled":
            projects = projected_layers(layers, self.order, inputs, shares)
            cost = chunk_cost(layers, ranks, job.dtype, projects, inputs, edges)
            return CoupledTrainer(job, self.chunking, cost, projects, shares)
        return DecoupledTrainer(
            job,
            self.chunking,
            chunk_cost(layers, ranks, job.dtype, None, inputs, edges),
            pipeline=self.pipeline,
            dense_blocks=self.dense_blocks,
            frozen=self.attention == "frozen",
            attention_work=self.attention_work,
            on_host=self.nn_device == "host",
            shares=shares,
        )
