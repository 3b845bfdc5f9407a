"""Find the rank that holds each requested row, and put the received rows into the requested order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnexp.feature_stores.rows import in_places, take_rows
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.kernels.pool import Pool
from gnnexp.kernels.rows.gather import move_rows, place_rows
from gnnexp.kernels.samplers.split import group_by_owner
from gnnexp.kernels.shape_tensor import memory_like


@dataclass(frozen=True, eq=False)
class Routes:
    """Where the rows of one read come from.

    Attributes:
        own: `[a]` ids whose rows this rank holds.
        own_places: `[a]` int64, positions of the own rows in the result.
        foreign: `[b]` ids whose rows other ranks hold, in the order of ranks.
        foreign_places: `[b]` int64, positions of the foreign rows in the result.
        sent: number of ids for each rank, 0 for this rank.
    """

    own: Tensor
    own_places: Tensor
    foreign: Tensor
    foreign_places: Tensor
    sent: list[int]


def route(ids: Tensor, home: np.ndarray, rank: int, size: int) -> Routes:
    """Group `ids` `[n]` by the rank that holds their rows, which `home` `[V]` gives for each vertex."""
    asked = ids.contiguous().numpy()
    counts, grouped = np.zeros(size, np.int64), np.empty_like(asked)
    places = np.empty(asked.size, np.int32)
    group_by_owner(asked, home, counts, grouped, places)
    back = np.empty(asked.size, np.int64)
    back[places] = np.arange(asked.size)
    own = slice(int(counts[:rank].sum()), int(counts[: rank + 1].sum()))
    return Routes(
        torch.from_numpy(grouped[own]),
        torch.from_numpy(back[own]),
        torch.from_numpy(np.delete(grouped, own)),
        torch.from_numpy(np.delete(back, own)),
        [0 if part == rank else int(n) for part, n in enumerate(counts)],
    )


def together(held: Rows, own: Tensor, foreign: Rows, routes: Routes, pool: Pool) -> tuple[Rows, int]:
    """Own and foreign rows in the requested order, and the bytes of the own rows.

    Args:
        held: this rank's rows, in host memory.
        own: `[a]` positions of the requested rows in `held`.
        foreign: `[b]` rows from other ranks.
        routes: positions of own and foreign rows in the result.
        pool: memory for the result, if the rows are dense.
    """
    if isinstance(held, SparseRows):
        rows = take_rows(held, own)
        return in_places([(rows, routes.own_places), (foreign, routes.foreign_places)]), rows.nbytes
    assert isinstance(foreign, Tensor)
    shape = own.numel() + foreign.shape[0], held.shape[1]
    out = memory_like(pool, shape, held)
    move_rows(held, own, routes.own_places, out)
    place_rows(foreign, routes.foreign_places, out)
    return out, own.numel() * held.shape[1] * held.element_size()
