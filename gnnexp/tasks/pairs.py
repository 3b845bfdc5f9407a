"""The links of a rank's batch with their negatives: the input of decoder and loss."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from gnnexp.graph.block import BatchKey
from gnnexp.kernels.counter import Purpose, stream
from gnnexp.kernels.crossing import across
from gnnexp.kernels.samplers.negatives import kept_pair_columns
from gnnexp.tasks.base import Examples, Scores, Task

_DECODER = 1 << 32  # layers of a decoder come after those of any model


@dataclass(frozen=True, eq=False)
class Pairs(Examples):
    """Links with k negatives each; there are p = count * (1 + k) pairs.

    Attributes:
        vertices: `[m]` original ids of all ends, ascending.
        head, tail: `[p]` positions in `vertices`: first all links, then the negatives in the order of their links.
        relation: `[p]` int64 relations; None if links have no relations.
        positive: `[p]` bool, true for links and false for negatives.
        weights: `[p]` float64, weight of each pair in the loss of its link.
        numbers: `[p]` int64, index of each pair among all pairs of the epoch. Dropout depends on it, not on the rank.
        key: key of the global batch.
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
        """Bytes of ends, relations, labels and weights."""
        crossing = (self.head, self.tail, self.relation, self.positive, self.weights)
        return sum(values.numel() * values.element_size() for values in crossing if values is not None)

    def to(self, device: torch.device, vertices: Tensor | None = None) -> Self:
        """A copy whose ends, relations, labels and weights are on `device`. Vertices and numbers stay on the host."""
        return replace(
            self,
            head=across(self.head, device),
            tail=across(self.tail, device),
            relation=None if self.relation is None else across(self.relation, device),
            positive=across(self.positive, device),
            weights=across(self.weights, device),
        )

    def drop(self, rows: Tensor, p: float, layer: int) -> Tensor:
        """Rows `[p, C]` of these pairs after dropout in a decoder's `layer`. Masks do not depend on the rank."""
        if p == 0:
            return rows
        key = stream(self.key.seed, Purpose.DROPOUT, self.key.epoch, self.key.step, _DECODER + layer)
        kept = kept_pair_columns(np.uint64(key), self.numbers.numpy(), rows.shape[1], p)
        return rows * torch.from_numpy(kept).to(rows.device) / (1 - p)


def numbered(ends: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """`(vertices [m], positions [n])`: the distinct vertices of `ends` `[n]`, ascending, and each end's position."""
    if num_nodes > 8 * ends.numel():  # sorting few ends is cheaper than a pass over all vertices
        return torch.unique(ends, return_inverse=True)  # type: ignore[no-any-return]
    seen = torch.zeros(num_nodes, dtype=torch.bool)
    seen[ends] = True
    return seen.nonzero().flatten(), (seen.cumsum(0) - 1)[ends]


class PairTask(Task):
    """A task whose examples are links.

    Attributes:
        num_relations: R, number of relations of the links in all splits, set by `setup`; 0 if links have no relations.
    """

    num_relations: int = 0

    def hidden_links(self, batch: Tensor) -> Tensor | None:
        """`[T, 2 | 3]` links (head, relation, tail) of a global `batch` that message passing leaves out, or None."""
        return None

    @abstractmethod
    def score_pairs(self, split: str, outputs: Tensor, chosen: Tensor, budget: int) -> Iterator[Scores]:
        """Arrays that metrics need, for some held-out links. Arrays of pieces and ranks concatenate.

        Args:
            split: a key of `held_out`.
            outputs: `[V, C]` outputs of all vertices, in memory or mapped.
            chosen: this rank's share of the split's links.
            budget: bytes that scoring may use, in addition to `outputs`.
        """
