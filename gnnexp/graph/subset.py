"""Sets of ids that are kept ascending."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnexp.graph.graph import Graph
from gnnexp.kernels.graph.edges import mark_sources


def contains(ascending: Tensor, ids: Tensor) -> Tensor:
    """`[n]` bool: whether each of `ids` `[n]` is among the distinct `ascending` `[m]`; O(n log m).

    Without sorting it again, as `torch.isin` does.
    """
    if not ascending.numel():
        return torch.zeros(ids.shape, dtype=torch.bool)
    places = torch.searchsorted(ascending, ids.to(ascending.dtype)).clamp_(max=ascending.numel() - 1)
    return ascending[places] == ids


def with_neighbours(graph: Graph, ids: Tensor) -> Tensor:
    """`[m]` int64, ascending: the vertices `ids` `[n]` and all sources of their in-edges; a pass over these edges."""
    marks = torch.zeros(graph.num_nodes, dtype=torch.bool)
    marks[ids] = True
    mark_sources(graph.indptr.numpy(), graph.indices.numpy(), ids.numpy(), marks.numpy())
    return marks.nonzero().flatten()
