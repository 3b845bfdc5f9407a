"""Random owners: the baseline of all partitioners."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import owner_dtype
from gnnexp.kernels.counter import Purpose, permutation, stream, uniform_words
from gnnexp.partitioners.base import Owners, Partitioner


class RandomPartitioner(Partitioner):
    """Every vertex goes to a random part: a pure function of (seed, vertex, number of vertices, number of parts).

    Args:
        num_parts: number of parts, `auto` for one per rank.
        seed: seed of the draws.
        balanced: whether parts have equal sizes, up to one vertex, by a random permutation; False: independent draws.
    """

    def __init__(self, num_parts: int | Literal["auto"] = "auto", seed: int = 0, balanced: bool = True) -> None:
        self.num_parts = num_parts
        self.seed = seed
        self.balanced = balanced

    def assign(self, graph: Graph, num_parts: int) -> Owners:
        """Owners by position in a random permutation, or by one draw per vertex."""
        key = stream(self.seed, Purpose.PARTITION)
        dtype = torch.zeros(0, dtype=owner_dtype(num_parts)).numpy().dtype
        if self.balanced:
            nodes = np.empty(graph.num_nodes, dtype)
            nodes[permutation(key, graph.num_nodes)] = np.arange(graph.num_nodes) * num_parts // graph.num_nodes
        else:
            # The upper 32 bits times P, shifted right by 32 bits: uniform up to an error of P / 2^32.
            words = uniform_words(np.uint64(key), graph.num_nodes) >> np.uint64(32)
            nodes = ((words * np.uint64(num_parts)) >> np.uint64(32)).astype(dtype)
        return Owners(torch.from_numpy(nodes))
