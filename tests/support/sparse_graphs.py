"""The graphs that exactness is tested on, with features that are mostly zero: sparse rows, or the same rows dense."""

from __future__ import annotations

from dataclasses import replace

import torch
from small_graphs import sparse_rows

from gnnexp.graph.graph import Graph
from gnnexp.testing.graphs import nasty_graph

# Ways that take no sparse features.
DENSE_ONLY = ("offload_raw",)


def mostly_zero(*, sparse: bool = True, num_features: int = 13) -> Graph:
    """`nasty_graph`; two of three features are 0, some rows are 0 altogether."""
    graph = nasty_graph(num_features=num_features)
    assert isinstance(graph.features, torch.Tensor)
    kept = torch.where(graph.features > 0.5, graph.features, torch.zeros(()))
    kept[::7] = 0
    return replace(graph, features=sparse_rows(kept) if sparse else kept)


def sparse_links() -> Graph:
    """The same with links, some of the edges."""
    graph = mostly_zero()
    edges = torch.unique(torch.stack((graph.indices.long(), graph.destinations().long()), 1), dim=0)
    links = edges[edges[:, 0] != edges[:, 1]][:60]
    return replace(graph, links={"train": links[:40], "valid": links[40:50], "test": links[50:]})


def as_wide_as_hidden() -> Graph:
    """As many features as `small_config` has hidden columns."""
    return mostly_zero(num_features=16)
