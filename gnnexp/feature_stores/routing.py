"""Which rows are asked for where, and putting the answers back into the order of the question."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnexp.feature_stores.rows import in_places
from gnnexp.graph.sparse import Rows
from gnnexp.kernels.pool import Pool
from gnnexp.kernels.split import group_by_owner


@dataclass(frozen=True, eq=False)
class Routes:
    """Where the rows of one read come from.

    Attributes:
        own: `[a]` ids whose rows are here.
        own_places: `[a]` int64 where they belong in the answer.
        foreign: `[b]` ids whose rows are elsewhere, those of rank 0 first.
        foreign_places: `[b]` int64.
        sent: ids for each rank, 0 for this one.
    """

    own: Tensor
    own_places: Tensor
    foreign: Tensor
    foreign_places: Tensor
    sent: list[int]


def route(ids: Tensor, home: np.ndarray, rank: int, size: int) -> Routes:
    """Sort `ids` `[n]` by the rank that `home` `[V]` names for each."""
    asked = ids.contiguous().numpy()
    counts, grouped = np.zeros(size, np.int64), np.empty_like(asked)
    places = np.empty(asked.size, np.int32)
    group_by_owner(asked, home, counts, grouped, places)
    back = np.empty(asked.size, np.int64)
    back[places] = np.arange(asked.size)
    own = slice(int(counts[:rank].sum()), int(counts[: rank + 1].sum()))
    return Routes(
        torch.from_numpy(grouped[own]), torch.from_numpy(back[own]), torch.from_numpy(np.delete(grouped, own)),
        torch.from_numpy(np.delete(back, own)), [0 if part == rank else int(n) for part, n in enumerate(counts)],
    )


def together(own: Rows, foreign: Rows, routes: Routes, pool: Pool) -> Rows:
    """Own and foreign rows in the order in which they were asked for."""
    return in_places([(own, routes.own_places), (foreign, routes.foreign_places)], pool)
