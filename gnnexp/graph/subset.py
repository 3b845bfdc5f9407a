"""Sets of vertex ids in ascending order."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnexp.graph.graph import Graph
from gnnexp.kernels.graph.edges import mark_sources


def contains(ascending: Tensor, ids: Tensor) -> Tensor:
    """`[n]` bool: whether each of `ids` `[n]` is in `ascending` `[m]`, whose entries are unique; O(n log m).

    `torch.isin` would sort `ascending` again.
    """
    if not ascending.numel():
        return torch.zeros(ids.shape, dtype=torch.bool)
    places = torch.searchsorted(ascending, ids.to(ascending.dtype)).clamp_(max=ascending.numel() - 1)
    return ascending[places] == ids


def with_neighbours(graph: Graph, ids: Tensor) -> Tensor:
    """`[m]` int64, ascending: the vertices `ids` `[n]` and the sources of all their in-edges."""
    marks = torch.zeros(graph.num_nodes, dtype=torch.bool)
    marks[ids] = True
    mark_sources(graph.indptr.numpy(), graph.indices.numpy(), ids.numpy(), marks.numpy())
    return marks.nonzero().flatten()
