"""Links of a rank with their negatives, as the loss wants them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gnnexp.tasks.base import Examples


@dataclass(frozen=True, eq=False)
class Pairs(Examples):
    """Links with k negatives each; p = count * (1 + k).

    Attributes:
        vertices: `[m]` original ids of all ends, ascending.
        head, tail: `[p]` positions in `vertices`: the links, then their negatives, the first link's first.
        relation: `[p]` int64; None where links have no types.
        positive: `[p]` bool: which are links.
        weights: `[p]` float64, of each pair in the loss of its link.
    """

    head: Tensor
    tail: Tensor
    relation: Tensor | None
    positive: Tensor
    weights: Tensor


def numbered(ends: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """`(vertices [m], positions [n])`: the distinct ones of `ends` `[n]`, ascending, and where each is among them."""
    if num_nodes > 8 * ends.numel():  # sorting few ends is cheaper than passing over all vertices
        return torch.unique(ends, return_inverse=True)  # type: ignore[no-any-return]
    seen = torch.zeros(num_nodes, dtype=torch.bool)
    seen[ends] = True
    return seen.nonzero().flatten(), (seen.cumsum(0) - 1)[ends]
