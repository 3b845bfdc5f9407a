"""The interface of a sampler, and the checks of the options that all samplers have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, final, get_args

import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.components.facts import GraphFacts, Need
from gnnexp.components.options import wrong_options
from gnnexp.components.setting import Setting
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.graph.block import Batch, BatchKey
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import Shard
from gnnexp.kernels.pool import Pool
from gnnexp.kernels.samplers.sample import largest_degree

Key = Literal["micro", "global"]
Topology = Literal["replicated", "partitioned"]


class SamplerOptions(ABC):
    """The options of a sampler. The launcher checks them, and each rank makes its `Sampler` of them.

    A subclass is a frozen dataclass. Its fields are its options, with the names of its YAML file.

    Attributes:
        version: raised when the same options give other results or counts, or a default changes (CONTRIBUTING.md).
        exact_key: whether draws are a pure function of (seed, epoch, step, micro, hop, original vertex id), so that a
            global batch is the same for every number of ranks.
        scales: whether drawn edges have `Block.scale`, which multiplies messages and does not change degrees.
        fanouts: most neighbours per destination, target hop first, -1 for all; None: all neighbours on every hop.
        key: `global` shares draws in the global batch (the paradigm makes keys with `micro = -1`), `micro` makes
            separate draws for every micro-batch.
        topology: `replicated` on every rank, or `partitioned`: a rank has all in-edges of the vertices that it owns.
        threads: number of threads of a rank that sample, with any number of ranks; batches are the same for any number.
            Each samples a batch of its own, if `prefetch` allows as many at a time. A rank samples one batch at a time
            if ranks exchange vertices to sample it, if `train.overlap` is false, or if an epoch is one batch. Threads
            that are left work inside each batch, at most `hardware.threads` of them (`threads_inside`). 0: one thread,
            and a batch is prepared when it is needed.
        prefetch: most batches that are ready or in preparation at the same time.
    """

    version: ClassVar[int] = 1
    exact_key: ClassVar[bool] = True
    scales: ClassVar[bool] = False

    fanouts: Sequence[int] | None
    key: Key = "global"
    topology: Topology = "replicated"
    threads: int = 1
    prefetch: int = 2

    def __post_init__(self) -> None:
        ConfigError.raise_all(self.problems())
        if self.fanouts is not None:
            object.__setattr__(self, "fanouts", tuple(self.fanouts))  # a configuration has a list

    def problems(self) -> list[Problem]:
        """Options outside of their ranges."""
        fanouts, keys, places = self.fanouts, get_args(Key), get_args(Topology)
        fits = fanouts is None or (len(fanouts) > 0 and all(fanout == -1 or fanout >= 1 for fanout in fanouts))
        numbers = "one number per layer, target hop first, each at least 1, or -1 for all neighbours"
        return wrong_options(
            "sampler",
            (fits, "fanouts", None if fanouts is None else list(fanouts), numbers, "[15,10,5]"),
            (self.key in keys, "key", self.key, f"must be {' or '.join(keys)}", "global"),
            (self.topology in places, "topology", self.topology, f"must be {' or '.join(places)}", "replicated"),
            (self.threads >= 0, "threads", self.threads, "must be 0 or more", 1),
            (self.prefetch >= 1, "prefetch", self.prefetch, "must be at least 1", 2),
        )

    @final
    def hops(self, num_layers: int) -> tuple[int, ...]:
        """Fanout of every hop of a model with `num_layers` layers, target hop first, -1 for all neighbours.

        Raises:
            ConfigError: the sampler has another number of fanouts.
        """
        if self.fanouts is None:
            return (-1,) * num_layers
        if len(self.fanouts) != num_layers:
            raise ConfigError(
                Problem(
                    "sampler.fanouts",
                    list(self.fanouts),
                    f"the model has {num_layers} layers",
                    f"give {num_layers} fanouts, target hop first",
                )
            )
        return tuple(self.fanouts)

    def check(self, setting: Setting) -> list[Problem]:
        """Conflicts with other choices of the run."""
        return []

    def held_bytes(self, facts: GraphFacts, num_edges: int, num_parts: int) -> int:
        """Estimated bytes of topology that a rank will hold in addition to mapped files.

        Args:
            facts: facts of the graph.
            num_edges: number of edges of the graph that a rank samples from: the whole graph, or a part of it.
            num_parts: number of parts of the partition that `topology=partitioned` follows.
        """
        if self.topology == "replicated":
            return 0
        edge = facts.id_bytes + 4 * (facts.typed + facts.weighted)
        return 8 * (facts.num_nodes + 1) + edge * -(-num_edges // num_parts)

    def needs(self, facts: GraphFacts, num_edges: int, num_parts: int, occurrence: int) -> list[Need]:
        """Memory for the topology.

        Args:
            facts: facts of the graph.
            num_edges: number of edges of the graph that a rank samples from.
            num_parts: number of parts of the partition, as in `held_bytes`.
            occurrence: bytes of the numbers of parallel edges.
        """
        return [Need("topology that the sampler holds", "host", self.held_bytes(facts, num_edges, num_parts))]

    @abstractmethod
    def make(self) -> Sampler:
        """The sampler of a rank."""


class Sampler(ABC):
    """Makes the blocks that the computation of targets needs.

    Attributes:
        options: the options that were chosen.
        pool: memory of blocks, for samplers that reuse memory.
        inside: number of threads that work inside a batch, for samplers whose kernels can use several. The paradigm
            sets it before it samples.
        spare_maps: maps of vertices that samplers of virtual ranks share; None: the sampler has its own.
    """

    options: SamplerOptions

    def __init__(self, options: SamplerOptions) -> None:
        self.options, self.pool = options, Pool()
        self.inside = 1
        self.spare_maps: list[Any] | None = None

    @final
    def topology_of(self, shard: Shard) -> Graph:
        """The graph that this rank samples from."""
        return shard.graph if self.options.topology == "replicated" else shard.owned_topology

    def topology_bytes(self, shard: Shard) -> int:
        """Bytes of the topology that this rank samples from."""
        return self.topology_of(shard).topology_bytes

    def place(self, setting: Setting, shard: Shard, device: torch.device, comm: Communicator) -> str:
        """Choose where batches are made, before `setup`. By default, this is the host. All ranks call this.

        Args:
            setting: the other choices of the run.
            shard: topology of this rank.
            device: device of this rank.
            comm: all ranks.

        Returns:
            The choice, for the record: on all ranks a GPU, or the same text.
        """
        return "cpu"

    @abstractmethod
    def setup(self, shard: Shard, num_layers: int) -> None:
        """Store the graph of this rank.

        Args:
            shard: topology, and the data that blocks must have.
            num_layers: number of blocks per batch.

        Raises:
            ConfigError: the number of fanouts is not `num_layers`.
        """

    @abstractmethod
    def sample(self, seeds: Tensor, key: BatchKey, global_count: int = 0) -> Batch:
        """The blocks of one batch. Several threads may call this at the same time.

        Args:
            seeds: `[T]` original ids of the targets, unique; may be empty.
            key: key of the draws.
            global_count: number of targets of the global batch, stored in the `Batch`.

        Returns:
            The batch. Destinations are the first sources of a block; new sources follow in order of first appearance.
            The targets are the destinations of the last block, in the given order. An added self loop is the last edge
            of its destination. It has -1 in `edge_ids`, `occurrence` and `edge_types`, and 1 in `weight` and `scale`.
        """


def threads_inside(threads: int, at_once: int) -> int:
    """Number of threads inside each batch if `threads` sample, and at most `at_once` batches at the same time."""
    return max(1, threads // max(1, min(threads, at_once)))


def largest_degree_of(graph: Graph) -> int:
    """The largest number of in-edges of a vertex.

    Raises:
        DataError: a vertex has too many edges to draw from.
    """
    largest = int(largest_degree(graph.indptr.numpy()))
    if largest >= 1 << 32:
        raise DataError(
            Problem(
                "dataset", graph.name, "a vertex may have at most 2^32 - 1 edges", "use a graph without that vertex"
            )
        )
    return largest
