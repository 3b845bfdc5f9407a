"""Links that are known: what negatives must not be, and what a filtered rank leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from gnnexp.graph.build import build_graph
from gnnexp.kernels.graph.links import make_sieve


@dataclass(frozen=True, eq=False)
class KnownLinks:
    """Links by one of their ends, each once, the others ascending.

    A pair without a type says nothing of its direction: it is known from both ends.

    Attributes:
        indptr: `[V + 1]` int64; empty where no lists of links were given.
        ends: `[m]` the other ends.
        types: `[m]` int32 their relations; empty where links have no types.
    """

    indptr: np.ndarray
    ends: np.ndarray
    types: np.ndarray

    @cached_property
    def sieve(self) -> np.ndarray:
        """What tells most pairs that are no links in one read; empty where no lists of links were given."""
        if not self.indptr.size:
            return np.empty(0, np.uint64)
        return make_sieve(self.indptr, self.ends, self.types)  # type: ignore[no-any-return]

    @staticmethod
    def of(links: Sequence[Tensor], num_nodes: int, *, by_tail: bool = False) -> KnownLinks:
        """Of `links`, each `[n, 2 | 3]`, by head or by tail."""
        if not links:
            return KnownLinks(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32))
        joined = torch.cat([*links]).numpy()
        heads, tails = joined[:, 0], joined[:, -1]
        typed = joined.shape[1] == 3
        arrays = build_graph(
            heads if by_tail else tails, tails if by_tail else heads, num_nodes,
            types=joined[:, 1] if typed else None, symmetrize=not typed, key="links",
        )
        kinds = np.empty(0, np.int32) if arrays.types is None else arrays.types.numpy()
        return KnownLinks(arrays.indptr.numpy(), arrays.indices.numpy(), kinds)
