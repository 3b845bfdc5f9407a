"""A graph with every kind of data, and sparse rows."""

from __future__ import annotations

import numpy as np
import torch

from gnnexp.graph.graph import Graph, Splits
from gnnexp.graph.sparse import SparseRows
from gnnexp.testing.graphs import random_graph


def full_graph(
    num_nodes: int = 40, num_edges: int = 150, seed: int = 0, *, sparse: bool = False, multilabel: bool = False
) -> Graph:
    """A graph with every kind of data that a graph can have."""
    plain = random_graph(num_nodes, num_edges, seed, typed=True)
    draws = np.random.default_rng(seed + 1)
    dense = torch.from_numpy(draws.random((num_nodes, 6), np.float32))
    order = torch.from_numpy(draws.permutation(num_nodes))
    parts = [torch.sort(part).values for part in (order[:20], order[20:26], order[26:30])]
    single = torch.from_numpy(draws.integers(0, 4, num_nodes))
    single[order[30:]] = -1
    several = torch.from_numpy(draws.integers(0, 2, (num_nodes, 4)).astype(np.float32))
    several[order[30:]] = float("nan")
    return Graph(
        plain.indptr,
        plain.indices,
        features=sparse_rows(dense) if sparse else dense,
        labels=several if multilabel else single,
        num_classes=4,
        splits=Splits(*parts),
        edge_types=plain.edge_types,
        node_types=torch.from_numpy(draws.integers(0, 2, num_nodes).astype(np.int32)),
        edge_features=torch.from_numpy(draws.random((num_edges, 3), np.float32)),
        edge_weights=torch.from_numpy(draws.random(num_edges, np.float32)),
        links={"train": torch.tensor([[0, 0, 1], [2, 1, 3]]), "test_neg": torch.tensor([[1, 1, 2]])},
        name="every/kind of data",
        notes=("made up", "ümlaut"),
    )


def sparse_rows(dense: torch.Tensor) -> SparseRows:
    """The rows of `dense` with about half of the entries left out."""
    kept = dense > 0.5
    indptr = torch.zeros(dense.shape[0] + 1, dtype=torch.int64)
    torch.cumsum(kept.sum(1), 0, out=indptr[1:])
    return SparseRows(indptr, kept.nonzero()[:, 1].to(torch.int32), dense[kept], dense.shape[1])
