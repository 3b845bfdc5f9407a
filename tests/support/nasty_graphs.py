"""A small graph with every trap in it: directed, parallel edges, self loops, isolated vertices, uneven degrees."""

from __future__ import annotations

import numpy as np
import torch

from gnnexp.graph.build import build_graph
from gnnexp.graph.graph import Graph, Splits


def nasty_graph(
    num_nodes: int = 60, num_edges: int = 400, num_features: int = 13, num_classes: int = 4, *, simple: bool = False,
    typed: bool = False, seed: int = 0,
) -> Graph:
    """A random multigraph; vertices 0 and 1 are isolated, the last one is a hub. `simple`: undirected, no parallels.

    `typed`: parallel edges of one type and of several; of 6 relations number 2 has no edges, number 5 a single one.
    """
    generator = np.random.default_rng(seed)
    src = generator.integers(2, num_nodes, num_edges)
    dst = generator.integers(2, num_nodes, num_edges)
    dst[: num_edges // 5] = num_nodes - 1
    src[:10], dst[:10] = src[10:20], dst[10:20]
    if simple:
        arrays = build_graph(src, dst, num_nodes, symmetrize=True, self_loops="remove")
    elif typed:
        types = generator.choice([0, 0, 0, 1, 3, 4], num_edges)
        types[:5], types[5:10], types[-1] = types[10:15], types[15:20] == 0, 5
        arrays = build_graph(src, dst, num_nodes, types=types, duplicates="keep")
    else:
        arrays = build_graph(src, dst, num_nodes, duplicates="keep")
    order = torch.from_numpy(generator.permutation(num_nodes))
    half, rest = num_nodes // 2, num_nodes * 3 // 4
    return Graph(
        arrays.indptr,
        arrays.indices,
        edge_types=arrays.types,
        features=torch.from_numpy(generator.normal(size=(num_nodes, num_features)).astype(np.float32)),
        labels=torch.from_numpy(generator.integers(0, num_classes, num_nodes)),
        num_classes=num_classes,
        splits=Splits(*(ids.sort().values for ids in (order[:half], order[half:rest], order[rest:]))),
        name="nasty",
    )


def typed_graph() -> Graph:
    """The same with relations."""
    return nasty_graph(typed=True)
