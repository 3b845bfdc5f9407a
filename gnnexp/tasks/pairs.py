"""Links of a rank with their negatives, as the loss wants them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from gnnexp.graph.block import BatchKey
from gnnexp.kernels.counter import Purpose, stream
from gnnexp.kernels.samplers.negatives import kept_columns
from gnnexp.tasks.base import Examples
from gnnexp.tiers.tier import across

_DECODER = 1 << 32  # layers of a decoder come after those of any model


@dataclass(frozen=True, eq=False)
class Pairs(Examples):
    """Links with k negatives each; p = count * (1 + k).

    Attributes:
        vertices: `[m]` original ids of all ends, ascending.
        head, tail: `[p]` positions in `vertices`: the links, then their negatives, the first link's first.
        relation: `[p]` int64; None where links have no types.
        positive: `[p]` bool: which are links.
        weights: `[p]` float64, of each pair in the loss of its link.
        numbers: `[p]` int64, which pair of the epoch this is, whoever has it: what its dropout is keyed by.
        key: of the global batch.
    """

    head: Tensor
    tail: Tensor
    relation: Tensor | None
    positive: Tensor
    weights: Tensor
    numbers: Tensor
    key: BatchKey

    @property
    def nbytes(self) -> int:
        """Ends, relations, labels and weights."""
        crossing = (self.head, self.tail, self.relation, self.positive, self.weights)
        return sum(values.numel() * values.element_size() for values in crossing if values is not None)

    def to(self, device: torch.device, vertices: Tensor | None = None) -> Self:
        """What decoder and loss read; vertices and numbers stay on the host."""
        return replace(
            self, head=across(self.head, device), tail=across(self.tail, device),
            relation=None if self.relation is None else across(self.relation, device),
            positive=across(self.positive, device), weights=across(self.weights, device),
        )

    def drop(self, rows: Tensor, p: float, layer: int) -> Tensor:
        """Rows `[p, C]` of these pairs after a dropout of a decoder's `layer`: the same masks, whoever has a pair."""
        if p == 0:
            return rows
        key = stream(self.key.seed, Purpose.DROPOUT, self.key.epoch, self.key.step, _DECODER + layer)
        kept = kept_columns(np.uint64(key), self.numbers.numpy(), rows.shape[1], p)
        return rows * torch.from_numpy(kept).to(rows.device) / (1 - p)


def numbered(ends: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """`(vertices [m], positions [n])`: the distinct ones of `ends` `[n]`, ascending, and where each is among them."""
    if num_nodes > 8 * ends.numel():  # sorting few ends is cheaper than passing over all vertices
        return torch.unique(ends, return_inverse=True)  # type: ignore[no-any-return]
    seen = torch.zeros(num_nodes, dtype=torch.bool)
    seen[ends] = True
    return seen.nonzero().flatten(), (seen.cumsum(0) - 1)[ends]
