"""METIS: few cut edges, with vertices, edges and training vertices balanced (Karypis & Kumar, SISC 1998)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import psutil
import torch

from gnnexp.errors import ConfigError, Problem
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import owner_dtype
from gnnexp.kernels.graph.undirected import undirected
from gnnexp.partitioners.base import Owners, Partitioner
from gnnexp.partitioners.metis_library import MOST_IMBALANCE, check_limits, index_dtype, metis_version, part_graph

# Peak of our arrays and METIS's per directed edge, 64-bit integers: 111 to 112 measured on 400,000 vertices with
# 11.9 M directed edges and planted communities, 8 parts.
BYTES_PER_EDGE = 112

Balance = Literal["vertices", "edges", "train"]


class ByMetis(Partitioner):
    """Parts come from METIS."""

    @property
    def requires(self) -> tuple[str, ...]:
        """METIS comes with pymetis."""
        return ("pymetis",)

    @property
    def version(self) -> str:
        """Another pymetis may bring another METIS."""
        return metis_version()


class MetisPartitioner(ByMetis):
    """Multilevel partitioning of the simple undirected view; minimises the directed edges between parts.

    An undirected edge weighs as much as there are directed edges between its ends, so METIS's objective is the edge
    cut that `quality` reports. Several things are balanced at once by METIS's multi-constraint partitioning, each on
    its own, not by a sum of weights.

    Args:
        num_parts: number of parts, `auto` for one per rank.
        balance: what parts have equally much of: `vertices`, (in-)`edges`, `train` vertices. What the graph has none of
            is balanced as it is.
        imbalance: how far the largest part may exceed the mean (0.03 = 3 %, METIS's default; it is exceeded where a
            graph leaves no choice).
        recursive: recursive bisection, which cuts less where several things are balanced but lets the imbalance grow
            with every bisection (Cornell5, 8 parts, all three: cut 0.475 and balance 1.09 against 0.516 and 1.03);
            otherwise direct k-way partitioning, which DGL, DistDGL and GSplit use.
        seed: of METIS's random choices.
    """

    bytes_per_edge = BYTES_PER_EDGE

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
        problems = []
        if not self.balance or len(set(self.balance)) != len(self.balance):
            problems.append(Problem("partitioner.balance", self.balance, "some of vertices, edges, train, each once",
                                    "partitioner.balance=[vertices,edges,train]"))
        if not 0 < imbalance <= MOST_IMBALANCE:
            problems.append(Problem("partitioner.imbalance", imbalance, f"above 0, at most {MOST_IMBALANCE}",
                                    "partitioner.imbalance=0.03"))
        if not 0 <= seed < (1 << 31) - 1:
            problems.append(Problem("partitioner.seed", seed, "must be 0 to 2^31 - 2", "partitioner.seed=0"))
        if problems:
            raise ConfigError(problems)

    def assign(self, graph: Graph, num_parts: int) -> Owners:
        """Owners by METIS; no part is left empty."""
        if num_parts == 1:
            return Owners(torch.zeros(graph.num_nodes, dtype=owner_dtype(1)))
        dtype = index_dtype()
        check_memory(graph, dtype)
        weights = self._weights(graph)
        # Duplicates may make the adjacency far smaller than this bound, but not by enough to matter near the limit.
        check_limits(graph.num_nodes, 2 * graph.num_edges, weights, dtype)
        starts, neighbours, edge_weights = undirected(graph.indptr.numpy(), graph.indices.numpy(), dtype)
        equal = neighbours.size == 0 or edge_weights.min() == edge_weights.max()
        parts, _ = part_graph(
            starts, neighbours, weights.astype(dtype, copy=False), None if equal else edge_weights, num_parts,
            recursive=self.recursive, imbalance=self.imbalance, seed=self.seed,
        )
        fill_empty(parts, num_parts)
        return Owners(torch.from_numpy(parts).to(owner_dtype(num_parts)))

    def _weights(self, graph: Graph) -> np.ndarray:
        """`[V, C]` int64, one column per balance that there is something of (vertices, if there is nothing else)."""
        columns = {"vertices": np.ones(graph.num_nodes, np.int64), "edges": graph.in_degree.numpy()}
        columns["train"] = np.zeros(graph.num_nodes, np.int64)
        columns["train"][graph.splits.train.numpy()] = 1
        chosen = [columns[what] for what in self.balance if columns[what].any()]
        return np.stack(chosen or [columns["vertices"]], axis=1)


def check_memory(graph: Graph, dtype: np.dtype[np.signedinteger]) -> None:
    """Refuse what would be killed for its memory after minutes of work."""
    needed = int(BYTES_PER_EDGE * graph.num_edges * dtype.itemsize / 8)
    available = psutil.virtual_memory().available
    if needed > available:
        raise ConfigError(Problem(
            "partitioner", "metis", f"needs about {needed / 2**30:.0f} GiB for {graph.num_edges} edges, "
            f"{available / 2**30:.0f} GiB are free", "partition on a machine with more memory, or partitioner=random",
        ))


def fill_empty(parts: np.ndarray, num_parts: int) -> None:
    """Give every empty part the last vertex of the largest part (METIS leaves parts empty on tiny graphs)."""
    sizes = np.bincount(parts, minlength=num_parts)
    for part in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        parts[np.flatnonzero(parts == largest)[-1]] = part
        sizes[largest] -= 1
        sizes[part] = 1
