"""METIS: few cut edges, and balanced vertices, edges and training vertices (Karypis & Kumar, SISC 1998)."""

from __future__ import annotations

from typing import Literal, final

import numpy as np
import torch

from gnnexp.components.options import wrong_options
from gnnexp.errors import ConfigError, Problem
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import owner_dtype
from gnnexp.kernels.graph.undirected import undirected
from gnnexp.measure.available import available_memory
from gnnexp.partitioners.base import Owners, Partitioner
from gnnexp.partitioners.metis_library import MOST_IMBALANCE, check_limits, metis_dtype, metis_version, part_graph

# Peak memory of our arrays and METIS's arrays per directed edge, with 64-bit integers. Measured: 111 to 112 bytes on
# 400,000 vertices with 11.9 M directed edges and planted communities, 8 parts.
BYTES_PER_EDGE = 112

Balance = Literal["vertices", "edges", "train"]


class ByMetis(Partitioner):
    """A partitioner that calls METIS.

    Attributes:
        recursive: whether METIS uses recursive bisection.
        imbalance: how far the heaviest part may exceed the mean.
        seed: seed of METIS's random choices.
    """

    bytes_per_edge = BYTES_PER_EDGE
    recursive = False
    imbalance: float
    seed: int

    @final
    def split(
        self,
        graph: Graph,
        num_parts: int,
        weights: np.ndarray,
        frequency: np.ndarray | None = None,
        *,
        weigh_equal: bool = True,
    ) -> Owners:
        """Owners by METIS on the simple undirected view; no part is empty.

        Args:
            graph: the graph.
            num_parts: number of parts.
            weights: `[V, C]` int64 weights of vertices, of which all parts get about the same sums.
            frequency: `[E]` weights of directed edges, None for 1 each.
            weigh_equal: whether METIS gets the weights of edges if all of them are equal.
        """
        if num_parts == 1:
            return Owners(torch.zeros(graph.num_nodes, dtype=owner_dtype(1)))
        dtype = metis_dtype()
        _check_memory(graph, dtype)
        total = 0 if frequency is None else 2 * int(frequency.sum(dtype=np.int64))
        # Duplicates can make the adjacency much smaller than this bound. Near the limit the difference does not matter.
        check_limits(graph.num_nodes, 2 * graph.num_edges, weights, dtype, total)
        starts, neighbours, edges = undirected(graph.indptr.numpy(), graph.indices.numpy(), dtype, frequency)
        weighted = weigh_equal or (neighbours.size > 0 and edges.min() < edges.max())
        parts, _ = part_graph(
            starts,
            neighbours,
            weights.astype(dtype, copy=False),
            edges if weighted else None,
            num_parts,
            recursive=self.recursive,
            imbalance=self.imbalance,
            seed=self.seed,
        )
        fill_empty(parts, num_parts)
        return Owners(torch.from_numpy(parts).to(owner_dtype(num_parts)))

    @final
    def metis_rules(self) -> tuple[tuple[bool, str, object, str, object], ...]:
        """The rules of METIS's own options, as `wrong_options` takes them."""
        allowed = f"above 0, at most {MOST_IMBALANCE}"
        return (
            (0 < self.imbalance <= MOST_IMBALANCE, "imbalance", self.imbalance, allowed, 0.03),
            (0 <= self.seed < (1 << 31) - 1, "seed", self.seed, "must be 0 to 2^31 - 2", 0),
        )

    @property
    @final
    def requires(self) -> tuple[str, ...]:
        """pymetis, which contains METIS."""
        return ("pymetis",)

    @property
    @final
    def library(self) -> str:
        """The version of pymetis, because another pymetis may contain another METIS."""
        return f"metis {metis_version()}"


class MetisPartitioner(ByMetis):
    """Multilevel partitioning of the simple undirected view; minimises the directed edges between parts.

    The weight of an undirected edge is the number of directed edges between its ends. So METIS minimises the edge cut
    that `quality` reports. METIS's multi-constraint partitioning balances several quantities at once, each separately
    and not as a weighted sum.

    Args:
        num_parts: number of parts, `auto` for one per rank.
        balance: quantities of which all parts get about the same number: `vertices`, (in-)`edges`, `train` vertices. A
            quantity that the graph does not have is ignored.
        imbalance: how far the largest part may exceed the mean: 0.03, METIS's default, means 3 %. Some graphs allow no
            partition within it; then it is exceeded.
        recursive: whether to use recursive bisection. It cuts less if several quantities are balanced, but the
            imbalance grows with every bisection. Cornell5, 8 parts, all three quantities: cut 0.475 and balance 1.09,
            instead of 0.516 and 1.03. False is direct k-way partitioning, which DGL, DistDGL and GSplit use.
        seed: seed of METIS's random choices.
    """

    def __init__(
        self,
        num_parts: int | Literal["auto"] = "auto",
        balance: list[Balance] | None = None,
        imbalance: float = 0.03,
        recursive: bool = False,
        seed: int = 0,
    ) -> None:
        self.num_parts = num_parts
        self.balance: list[Balance] = ["vertices", "edges", "train"] if balance is None else balance
        self.imbalance = imbalance
        self.recursive = recursive
        self.seed = seed
        chosen = set(self.balance)
        rules = wrong_options(
            "partitioner",
            (
                0 < len(chosen) == len(self.balance),
                "balance",
                self.balance,
                "some of vertices, edges, train, each once",
                "[vertices,edges,train]",
            ),
            *self.metis_rules(),
        )
        ConfigError.raise_all(rules)

    def assign(self, graph: Graph, num_parts: int) -> Owners:
        """Owners by METIS; no part is empty."""
        return self.split(graph, num_parts, self._weights(graph), weigh_equal=False)

    def _weights(self, graph: Graph) -> np.ndarray:
        """Weights `[V, C]` int64: one column per balanced quantity that the graph has; vertices if there is none."""
        columns = {"vertices": np.ones(graph.num_nodes, np.int64), "edges": graph.in_degree.numpy()}
        columns["train"] = np.zeros(graph.num_nodes, np.int64)
        columns["train"][graph.splits.train.numpy()] = 1
        chosen = [columns[what] for what in self.balance if columns[what].any()]
        return np.stack(chosen or [columns["vertices"]], axis=1)


def _check_memory(graph: Graph, dtype: np.dtype[np.signedinteger]) -> None:
    """Raise ConfigError if METIS needs more memory than is free: it would be killed only after minutes of work."""
    needed = int(BYTES_PER_EDGE * graph.num_edges * dtype.itemsize / 8)
    available = available_memory()
    if needed > available:
        raise ConfigError(
            Problem(
                "partitioner",
                "metis",
                f"needs about {needed / 2**30:.0f} GiB for {graph.num_edges} edges, "
                f"{available / 2**30:.0f} GiB are free",
                "partition on a machine with more memory, or partitioner=random",
            )
        )


def fill_empty(parts: np.ndarray, num_parts: int) -> None:
    """Give every empty part the last vertex of the largest part; METIS can leave parts empty on tiny graphs."""
    sizes = np.bincount(parts, minlength=num_parts)
    for part in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        parts[np.flatnonzero(parts == largest)[-1]] = part
        sizes[largest] -= 1
        sizes[part] = 1
