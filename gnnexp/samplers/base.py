"""What every sampler offers, and the checks of the options they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

from torch import Tensor

from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.plan import GraphFacts
from gnnexp.graph.block import Batch, BatchKey
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import Shard
from gnnexp.kernels.pool import Pool

Key = Literal["micro", "global"]
Topology = Literal["replicated", "partitioned"]


class Sampler(ABC):
    """Turns targets into the blocks that their computation needs.

    Attributes:
        exact_key: whether draws are a pure function of (seed, epoch, step, micro, hop, original vertex id), so that a
            global batch is the same for every number of ranks.
        fanouts: most neighbours per destination, target hop first, -1 for all; None: all of them on every hop.
        key: `global` shares draws in the global batch (the paradigm makes keys with `micro = -1`), `micro` draws for
            every micro-batch on its own.
        topology: `replicated` on every rank, or `partitioned`: a rank has all in-edges of the vertices that it owns.
        threads: threads that prepare batches in the background, 0 = prepared when asked for.
        prefetch: batches prepared or in preparation at once.
        pool: memory of blocks, for samplers that reuse it.
    """

    exact_key: ClassVar[bool] = True

    def __init__(
        self, fanouts: Sequence[int] | None, key: Key, topology: Topology, threads: int, prefetch: int
    ) -> None:
        problems = [*_check_fanouts(fanouts), *_check_choices(key, topology)]
        if threads < 0:
            problems.append(Problem("sampler.threads", threads, "must be 0 or more", "sampler.threads=1"))
        if prefetch < 1:
            problems.append(Problem("sampler.prefetch", prefetch, "must be at least 1", "sampler.prefetch=2"))
        if problems:
            raise ConfigError(problems)
        self.fanouts = None if fanouts is None else tuple(fanouts)
        self.key = key
        self.topology = topology
        self.threads = threads
        self.prefetch = prefetch
        self.pool = Pool()

    def hops(self, num_layers: int) -> tuple[int, ...]:
        """Fanout of every hop of a model with `num_layers` layers, target hop first, -1 for all neighbours.

        Raises:
            ConfigError: if the sampler was given another number of fanouts.
        """
        if self.fanouts is None:
            return (-1,) * num_layers
        if len(self.fanouts) != num_layers:
            raise ConfigError(Problem("sampler.fanouts", list(self.fanouts), f"the model has {num_layers} layers",
                                      f"give {num_layers} fanouts, target hop first"))
        return self.fanouts

    def topology_of(self, shard: Shard) -> Graph:
        """The graph that this rank samples from."""
        return shard.graph if self.topology == "replicated" else shard.owned_topology

    def topology_bytes(self, shard: Shard) -> int:
        """Bytes of topology that this rank samples from."""
        return self.topology_of(shard).topology_bytes

    def held_bytes(self, facts: GraphFacts, num_edges: int, num_parts: int) -> int:
        """Before it is set up: about how many bytes of topology a rank will hold beside the mapped files.

        Args:
            facts: of the run's graph.
            num_edges: of what a rank draws from: of the graph, or of a part where ranks work on these.
            num_parts: of the partition that `topology=partitioned` follows.
        """
        if self.topology == "replicated":
            return 0
        edge = facts.id_bytes + 4 * facts.typed
        return 8 * (facts.num_nodes + 1) + edge * -(-num_edges // num_parts)

    @abstractmethod
    def setup(self, shard: Shard, num_layers: int) -> None:
        """Take the graph of this rank.

        Args:
            shard: topology and what blocks must carry.
            num_layers: blocks per batch.

        Raises:
            ConfigError: if the number of fanouts is not `num_layers`.
        """

    @abstractmethod
    def sample(self, seeds: Tensor, key: BatchKey, global_count: int = 0) -> Batch:
        """The blocks of one batch; safe to call from several threads at once.

        Args:
            seeds: `[T]` original ids of the targets, unique; may be empty.
            key: what the draws are keyed by.
            global_count: number of targets of the global batch, passed on to the `Batch`.

        Returns:
            Blocks whose destinations are their first sources, new sources in order of first appearance; the
            targets are the destinations of the last one, in the order given. An edge that is an added self loop
            is the last one of its destination and has -1 in `edge_ids`, `occurrence` and `edge_types`.
        """


def _check_fanouts(fanouts: Sequence[int] | None) -> list[Problem]:
    if fanouts is None or (len(fanouts) > 0 and all(fanout == -1 or fanout >= 1 for fanout in fanouts)):
        return []
    return [Problem("sampler.fanouts", list(fanouts), "one number per layer, target hop first, each at least 1, or -1 "
                    "for all neighbours", "sampler.fanouts=[15,10,5]")]


def _check_choices(key: str, topology: str) -> list[Problem]:
    problems = []
    if key not in ("micro", "global"):
        problems.append(Problem("sampler.key", key, "must be micro or global", "sampler.key=global"))
    if topology not in ("replicated", "partitioned"):
        problems.append(Problem("sampler.topology", topology, "must be replicated or partitioned",
                                "sampler.topology=replicated"))
    return problems
